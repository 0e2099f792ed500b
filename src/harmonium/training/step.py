"""One training step: sample negatives, score, update the parameters; on a GPU replayed as a CUDA graph."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.kernels import dispatch
from harmonium.kernels.cross_entropy import Shard
from harmonium.kernels.gather import number_runs
from harmonium.kernels.precision import matmul_precision
from harmonium.model.dropout import QueryDropout
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import BatchScorer, EntityShard, SharedQueries
from harmonium.runtime import torchrun
from harmonium.runtime.distributed import World
from harmonium.training.entity_store import HostStore, make_entity_store
from harmonium.training.losses import answer_weights, contrastive_loss, contrastive_scores, find_loss, query_weights
from harmonium.training.negatives import count_groups, draw_negatives, expand_groups, true_then_negatives
from harmonium.training.optimisers import make_optimiser, make_row_optimiser, scheduled_rate
from harmonium.training.query_batches import QueryBatches
from harmonium.training.regularisers import regularisation


class StepSample(NamedTuple):
    """The random sample of a step: batch and negatives. Does not depend on the parameters."""

    entity_ids: Tensor | None  # (m,): the distinct entities, in which ids below are positions; None: all
    relation_ids: Tensor | None  # (k,): the distinct relations, in which relation ids are positions; None: all
    batch: Triples
    negatives: dict[Slot, Tensor]  # (b, n) each, or (g, n) where b / g triples share a row
    weight: float  # fraction of the whole batch in this process
    queries: SharedQueries | None = None  # facts grouped by query; None: each fact answers two queries

    @property
    def global_batch(self) -> Triples:
        """The batch with the ids of entities in the graph."""
        if self.entity_ids is None:
            return self.batch
        return replace(self.batch, head=self.entity_ids[self.batch.head], tail=self.entity_ids[self.batch.tail])

    def sides(self) -> list[StepSample]:
        """Heads and tails as two samples."""
        return [self._replace(negatives={slot: ids}) for slot, ids in self.negatives.items()]


class TrainingStep:
    """One optimiser step, with everything that changes between steps except the model: optimiser state, learning rate.

    Entities are updated row by row if `updates_rows` returns true, and by the dense optimiser otherwise.
    """

    def __init__(self, model: GradientGraph, train: Triples, settings: TrainConfig, generator: torch.Generator) -> None:
        device = train.head.device
        check_settings(model, settings, device)
        self.model, self.train, self.settings, self.generator = model, train, settings, generator
        self.steps_done, self.n_steps = 0, settings.epochs * math.ceil(len(train) / settings.batch_size)
        self.learning_rate = torch.tensor(settings.learning_rate, device=device)
        self.row_learning_rate = torch.tensor(settings.learning_rate)  # row optimisers read it on the host
        self.rounding = torch.Generator(model.entity.device) if model.entity.dtype == torch.bfloat16 else None
        self.row_optimiser = None
        if updates_rows(model, settings):
            self.row_optimiser = make_row_optimiser(model.entity, settings, self.row_learning_rate, self.rounding)
        self.entity_store = make_entity_store(model, settings, self.row_optimiser, device)
        by_rows = model.entity if self.row_optimiser else None
        self.dense_parameters = [p for p in model.parameters() if p.requires_grad and p is not by_rows]
        self.optimiser = make_optimiser(self.dense_parameters, settings, self.learning_rate)
        self.replay = None
        if device.type == "cuda" and self.entity_store is None and model.form.is_capturable:
            self.replay = CudaGraphReplay()
        self.answer_weights = answer_weights(train, model.n_entities, settings.frequency_weight)
        self.warm_up_steps = 3  # before the CUDA graph is captured
        self.query_batches = None
        if shares_queries(model, settings, device):
            self.query_batches = QueryBatches(train, model.n_relations, model.reciprocal)
        self.sorts_by_relation = sorts_by_relation(model, settings, device)
        self.relation_capacity = model.n_relations  # distinct relations that a step has space for
        self.sampled_ahead: tuple[Tensor, StepSample, Tensor] | None = None  # index, sample, generator state before it

    @torch.no_grad()
    def backend(self) -> str:
        """The kernel backend of this training, and why no faster one is used."""
        one, model = self.train[:1], self.model
        scorer = model.scorer(model.relation.new_ones(1, model.entity.shape[1]))  # also if the entities are sharded
        first = Triples(torch.zeros_like(one.head), one.relation, torch.zeros_like(one.tail))
        slot_map = scorer.for_batch(first, self._dropout(torch.Generator(one.head.device))).slot_map(Slot.TAIL)
        backend, reason = dispatch.select_backend(scorer.form, slot_map, scorer.entities)
        if self.settings.loss == "full" and backend == "triton":
            backend, reason = "torch", "train.loss=full scores all entities"
        return f"{backend} kernels" + (f", as {reason}" if reason else "")

    # State -----------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The optimiser state."""
        state: dict[str, Tensor] = {}
        for number, parameter in enumerate(self.dense_parameters):
            state |= {f"{number}.{name}": value for name, value in self.optimiser.state[parameter].items()}
        if self.row_optimiser is not None:
            state |= {f"rows.{name}": value for name, value in self.row_optimiser.state_dict().items()}
        return state

    @property
    def sharded(self) -> set[str]:
        """The names in `state_dict` of tensors with one row per entity."""
        prefix = "rows." if self.row_optimiser is not None else "0."  # the table is the model's first parameter
        return {name for name, value in self.state_dict().items() if name.startswith(prefix) and value.dim()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if self.row_optimiser is not None:
            self.row_optimiser.load_state_dict(with_prefix(state, "rows."))
        for number, parameter in enumerate(self.dense_parameters):
            values = with_prefix(state, f"{number}.")
            self.optimiser.state[parameter].update({name: v.to(parameter.device) for name, v in values.items()})

    # A step ----------------------------------------------------------------------------------------------------------

    def epoch_batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        """The batches of an epoch in random order: positions of training facts, or of answers to whole queries."""
        if self.query_batches is not None:
            return torch.split(self.query_batches.order(generator), 2 * self.settings.batch_size)
        order = torch.randperm(len(self.train), generator=generator, device=self.train.head.device)
        return torch.split(self.arrange_batches(order), self.settings.batch_size)

    @property
    def epoch_size(self) -> int:
        """Total size of all batches of an epoch."""
        return len(self.train) if self.query_batches is None else self.query_batches.n_answers

    def arrange_batches(self, order: Tensor) -> Tensor:
        """The order of an epoch, each batch sorted by relation if scoring works relation by relation.

        In that case the largest number of distinct relations in a batch becomes the capacity of a step.
        """
        if not self.sorts_by_relation:
            return order
        size = self.settings.batch_size
        full = len(order) // size * size
        batches, rest = order[:full].view(-1, size), order[full:]
        relations, positions = self.train.relation[batches].sort(dim=1, stable=True)
        if full:
            largest = int((relations.diff(dim=1) != 0).sum(dim=1).max()) + 1
            is_captured = self.replay is not None and self.replay.graph is not None
            if not is_captured or largest > self.relation_capacity:
                self.relation_capacity = min(math.ceil(1.05 * largest / 16) * 16, self.model.n_relations)
                if self.replay is not None:
                    self.replay.graph = None
        rest = rest[self.train.relation[rest].argsort(stable=True)]
        return torch.cat([batches.gather(1, positions).flatten(), rest])

    def __call__(self, index: Tensor, next_index: Tensor | None = None) -> Tensor:
        """Update the parameters by a batch of an epoch, index (b,); returns the loss.

        With the index of the next step, its rows are read ahead from host memory.
        """
        self._begin_step()
        if self.replay is not None and len(index) == self.settings.batch_size:
            if not self.warm_up_steps:
                return self.replay(self, index)
            self.warm_up_steps -= 1
        with matmul_precision(self.settings.precision):
            parts = self.parts(self._next_sample(index))
            losses = [self._update(part, len(index), next_index if part is parts[-1] else None) for part in parts]
        return torch.stack(losses).mean()

    def parts(self, sample: StepSample) -> list[StepSample]:
        """The samples of the successive updates that a step makes."""
        return sample.sides() if self.settings.alternate_sides else [sample]

    def _update(self, sample: StepSample, batch_size: int, next_index: Tensor | None) -> Tensor:
        """One update of the parameters; returns the loss."""
        rows = None
        if self.entity_store is not None and sample.entity_ids is not None:
            rows = self.entity_store.fetch(sample.entity_ids).requires_grad_()
        loss = self.backward(sample, batch_size, rows)
        if next_index is not None and isinstance(self.entity_store, HostStore):
            self._sample_ahead(self.entity_store, next_index)
        if self.entity_store is not None and rows is not None and rows.grad is not None:
            self.entity_store.apply_gradient(rows.grad)
        if self.model.world is not None:
            gradients = [p.grad for p in self.dense_parameters if p.grad is not None and p is not self.model.entity]
            self.model.world.all_reduce([loss, *gradients])
        self.optimiser.step()
        return loss

    def backward(self, sample: StepSample, batch_size: int, rows: Tensor | None = None) -> Tensor:
        """Compute the gradients of the objective of a step; returns the mean loss of its queries."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = sample.weight * self.loss(sample, rows)
        queries = batch_size * (1 if self.settings.alternate_sides or sample.queries else 2)
        torch.autograd.backward(loss if self.settings.reduction == "mean" else loss * queries)
        return loss.detach()

    def _begin_step(self) -> None:
        """Set the learning rate, and seed stochastic rounding by the step, so that a checkpoint need not save it."""
        if self.settings.schedule != "constant":
            rate = scheduled_rate(self.settings, self.steps_done, self.n_steps)
            self.learning_rate.fill_(rate)
            self.row_learning_rate.fill_(rate)
            if not self.learning_rate.is_cuda:
                self.optimiser.param_groups[0]["lr"] = rate
        if self.rounding is not None:
            self.rounding.manual_seed(hash((self.settings.seed, self.steps_done)))
        self.steps_done += 1

    def loss(self, sample: StepSample, rows: Tensor | None = None) -> Tensor:
        """The objective of a step; rows (m, entity_dim) are the vectors of the sample's entities, default: the table."""
        form, settings = self.model.form, self.settings
        with form.dropping(self.generator) if isinstance(form, Harmony) and form.dropout else nullcontext():
            scorer = self._scorer(sample, rows)
        if settings.loss == "full":
            weights, shard = None, self._entity_shard(sample)
            if self.answer_weights is not None:
                weights = query_weights(self.answer_weights, sample.global_batch, sample.queries)
            return self._regularise(scorer.entity_cross_entropy(settings.label_smoothing, weights, shard), scorer)

        weights = scorer.weights(len(sample.negatives))

        def contrast(scores: Tensor, queries: slice) -> Tensor:
            return contrastive_loss(scores, settings, None if weights is None else weights[queries])

        shared = any(len(ids) < len(sample.batch) for ids in sample.negatives.values())
        if not shared:  # perhaps block by block, which saves memory
            loss = scorer.sampled_loss(true_then_negatives(sample.batch, sample.negatives), contrast)
        else:
            loss = contrast(contrastive_scores(scorer, sample.negatives), slice(None))
        return self._regularise(loss, scorer)

    def _scorer(self, sample: StepSample, rows: Tensor | None) -> BatchScorer:
        scorer = self.model.scorer(rows, sample.relation_ids)
        if sample.queries is not None:
            return scorer.with_inverse_relations().for_batch(sample.batch, queries=sample.queries)
        return scorer.for_batch(sample.batch, self._dropout(self.generator))

    def _entity_shard(self, sample: StepSample) -> EntityShard | None:
        """The candidates of this process in a softmax over all entities; None where it has all."""
        world, n = self.model.world, self.model.n_entities
        if world is None or sample.entity_ids is None:
            return None
        return EntityShard(self.model.local_entities(), sample.entity_ids, Shard(world.shard(n).start, n, world))

    def _regularise(self, loss: Tensor, scorer: BatchScorer) -> Tensor:
        """Add the regularisers and auxiliary losses with a positive weight to the loss.

        With the full loss every process has the whole batch, and computes an equal part of these terms.
        """
        settings = self.settings
        part = 1 / self.model.world.size if self.model.world is not None and settings.loss == "full" else 1
        penalty = regularisation(scorer, settings)
        if penalty is not None:
            loss = loss + part * penalty
        if settings.relation_prediction:
            loss = loss + part * settings.relation_prediction * scorer.relation_cross_entropy()
        return loss

    def _dropout(self, generator: torch.Generator) -> QueryDropout | None:
        """The dropout of one step; None if there is none."""
        vectors, composed = self.settings.vector_dropout, self.settings.composed_dropout
        return QueryDropout(vectors, composed, generator) if vectors or composed else None

    # Sampling --------------------------------------------------------------------------------------------------------

    def draw_sample(self, index: Tensor) -> StepSample:
        """The facts of a batch of an epoch, and their negatives."""
        if self.query_batches is not None:
            batch, queries = self.query_batches.batch(index)
        else:
            batch, queries = self.train[index], None
        negatives: dict[Slot, Tensor] = {}
        entity_ids, relation_ids, weight = None, None, 1.0
        if self.settings.loss != "full":
            groups = count_groups(len(batch), self.settings.negative_group_size)
            negatives = draw_negatives(self.model.n_entities, groups, self.settings.negatives, self.generator)
            if self.model.world is not None:
                weight, batch, negatives = batch_shard(self.model.world, batch, negatives)
            if self.sorts_by_relation:
                relation_ids, batch = distinct_relations(batch, self.relation_capacity)
        if self.entity_store is not None:
            entity_ids, batch, negatives = distinct_entities(batch, negatives)
        return StepSample(entity_ids, relation_ids, batch, negatives, weight, queries)

    def _next_sample(self, index: Tensor) -> StepSample:
        """The sample drawn ahead for this index, or a new one."""
        if self.sampled_ahead is not None and self.sampled_ahead[0] is index:
            sample = self.sampled_ahead[1]
            self.sampled_ahead = None
            return sample
        self.discard_sample_ahead()
        return self.draw_sample(index)

    def _sample_ahead(self, store: HostStore, index: Tensor) -> None:
        """Draw the sample of the next step and read its rows while this step is computed."""
        state = self.generator.get_state()
        with store.side_stream():
            sample = self.draw_sample(index)
            if sample.entity_ids is not None:
                store.prefetch(sample.entity_ids)
        self.sampled_ahead = index, sample, state

    def discard_sample_ahead(self) -> None:
        """Discard the sample drawn ahead, and rewind the generator so that it is drawn again."""
        if self.sampled_ahead is not None:
            self.generator.set_state(self.sampled_ahead[2])
            self.sampled_ahead = None


class CudaGraphReplay:
    """Steps of a full batch as one CUDA graph. Requires that the dense optimiser updates all parameters."""

    def __init__(self) -> None:
        self.graph: torch.cuda.CUDAGraph | None = None  # None: captured in the next step

    def __call__(self, step: TrainingStep, index: Tensor) -> Tensor:
        if self.graph is None:
            self.graph = self._capture(step, index)
        self.index.copy_(index)
        self.graph.replay()
        return self.loss

    def _capture(self, step: TrainingStep, index: Tensor) -> torch.cuda.CUDAGraph:
        self.index, graph = index.clone(), torch.cuda.CUDAGraph()
        graph.register_generator_state(step.generator)
        step.optimiser.zero_grad(set_to_none=True)
        gc.collect()  # freeing the graph of an earlier training during the capture would break it
        torch.cuda.synchronize()
        with torch.cuda.graph(graph), matmul_precision(step.settings.precision):
            losses = []
            for part in step.parts(step.draw_sample(self.index)):
                losses.append(step.backward(part, len(index)))
                step.optimiser.step()
            self.loss = torch.stack(losses).mean()
        return graph


# Decisions -----------------------------------------------------------------------------------------------------------


def updates_rows(model: GradientGraph, settings: TrainConfig) -> bool:
    """Whether entities are updated row by row: if settings require it, or a step uses less than half of them."""
    if _needs_rows(model, settings):
        return True
    groups = count_groups(settings.batch_size, settings.negative_group_size)
    sampled = 2 * (settings.batch_size + settings.negatives * groups)  # entities, with repetitions
    return settings.loss != "full" and model.n_entities > 2 * sampled


def _needs_rows(model: GradientGraph, settings: TrainConfig) -> list[str]:
    """The settings that require updates row by row, for any number of entities."""
    reasons = {
        "train.optimiser=row-adagrad": settings.optimiser == "row-adagrad",
        "train.entity_storage=host": settings.entity_storage == "host",
        "model.entity_dtype=bfloat16": model.entity.dtype == torch.bfloat16,
    }
    return [setting for setting, applies in reasons.items() if applies]


def sorts_by_relation(model: GradientGraph, settings: TrainConfig, device: torch.device) -> bool:
    """Whether batches are sorted by relation: if scoring on a GPU works relation by relation."""
    uses_all_relations = settings.loss == "full" or settings.relation_prediction
    drops = settings.vector_dropout or settings.composed_dropout  # then queries of a relation differ
    return device.type == "cuda" and model.composition.by_relation and not uses_all_relations and not drops


def shares_queries(model: GradientGraph, settings: TrainConfig, device: torch.device) -> bool:
    """Whether batches consist of whole queries: with the full loss on a CPU (a CUDA graph would need constant sizes)."""
    drops = settings.vector_dropout or settings.composed_dropout  # then equal queries have unequal masks
    return settings.loss == "full" and device.type == "cpu" and not drops


def check_settings(model: GradientGraph, settings: TrainConfig, device: torch.device) -> None:
    """Raise an error for settings that cannot be combined."""
    find_loss(settings.loss)
    conflicts = _needs_rows(model, settings)
    if settings.loss == "full" and conflicts:
        raise HarmoniumError(
            f"train.loss=full needs all entities in one table, which excludes {', '.join(conflicts)}; choose another loss"
        )
    _check_terms(model, settings)
    if settings.alternate_sides and settings.loss == "full":
        raise HarmoniumError("train.alternate_sides needs sampled negatives; set train.loss=sampled")
    if model.world is None or device.type != "cuda":
        return
    if torch.cuda.device_count() < torchrun.local_size():
        raise HarmoniumError("more processes than GPUs on this machine; start fewer, or set train.device=cpu")
    if settings.entity_storage == "host":
        raise HarmoniumError("train.entity_storage=host is for a single process; set train.entity_storage=device")


def _check_terms(model: GradientGraph, settings: TrainConfig) -> None:
    """Raise an error for a term of the objective that does not fit this model or loss."""
    if settings.label_smoothing and settings.loss not in ("full", "sampled"):
        raise HarmoniumError(
            f"train.label_smoothing needs a softmax, not train.loss={settings.loss}; set train.loss=full or sampled"
        )
    if settings.frequency_weight and settings.loss != "full":
        raise HarmoniumError("train.frequency_weight needs the loss against all entities; set train.loss=full")
    if settings.dura and not model.composition.is_linear:
        raise HarmoniumError(
            f"train.dura needs a composition that is linear in each slot, which {model.composition.name} is not; "
            "set train.dura=0, or use train.n3 or train.f2"
        )
    if settings.f2 and model.normalise:
        raise HarmoniumError("train.f2 has no effect on vectors of length one; set model.normalise=false or train.f2=0")
    for name in ("vector_dropout", "composed_dropout"):
        if getattr(settings, name) and model.world is not None and settings.loss != "full":
            raise HarmoniumError(
                f"train.{name} with sampled negatives is for a single process; set train.{name}=0 or train.loss=full"
            )


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, with the prefix removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


# Batches -------------------------------------------------------------------------------------------------------------


def batch_shard(
    world: World, batch: Triples, negatives: dict[Slot, Tensor]
) -> tuple[float, Triples, dict[Slot, Tensor]]:
    """This process's fraction of a batch, its triples and negatives; an empty one becomes a triple of weight 0."""
    shard = world.batch_slice(len(batch))
    weight = (shard.stop - shard.start) / len(batch)
    shard = shard if weight else slice(0, 1)

    def local_rows(ids: Tensor) -> Tensor:
        group = len(batch) // len(ids)  # triples that share a row; rows stay shared unless a group is cut
        first, last = shard.start // group, (shard.stop - 1) // group
        if first == last:
            return ids[first : first + 1]
        if shard.start % group or shard.stop % group:
            return expand_groups(ids, len(batch))[shard]
        return ids[shard.start // group : shard.stop // group]

    return weight, batch[shard], {slot: local_rows(ids) for slot, ids in negatives.items()}


def distinct_entities(batch: Triples, negatives: dict[Slot, Tensor]) -> tuple[Tensor, Triples, dict[Slot, Tensor]]:
    """The distinct entities (m,) of a batch and its negatives, sorted, and both with positions in them as ids."""
    ids = torch.cat([batch.head, batch.tail, *(ids.flatten() for ids in negatives.values())])
    distinct, positions = torch.unique(ids, return_inverse=True)
    sizes = [len(batch), len(batch), *(ids.numel() for ids in negatives.values())]
    head, tail, *parts = torch.split(positions, sizes)
    corrupted = {slot: part.view_as(negatives[slot]) for slot, part in zip(negatives, parts, strict=True)}
    return distinct, Triples(head, batch.relation, tail, batch.weight), corrupted


def distinct_relations(batch: Triples, capacity: int) -> tuple[Tensor, Triples]:
    """The distinct relations of a sorted batch, padded to `capacity`, and the batch with positions in them as ids."""
    positions, ids = number_runs(batch.relation, capacity)
    return ids, Triples(batch.head, positions, batch.tail, batch.weight)
