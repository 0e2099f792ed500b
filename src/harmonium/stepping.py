"""One step of training: what is drawn, scored and moved, and how a GPU replays it."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import kernels, launch
from harmonium.config import TrainConfig
from harmonium.distributed import World
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples
from harmonium.kernels.gpu import runs
from harmonium.kernels.memory import keep_freed_memory
from harmonium.kernels.precision import matmul_precision
from harmonium.model import GradientGraph, Snapshot
from harmonium.objective import (
    CONTRASTIVE,
    SAMPLERS,
    TypeHead,
    contrastive_loss,
    full_softmax,
    groups,
    n3,
    relation_softmax,
    spread,
)
from harmonium.optimiser import Adagrad, RowAdagrad, RowAdam, RowwiseAdagrad
from harmonium.tables import Dealt, Hosted, Local, Table


class Drawn(NamedTuple):
    """What a step draws, whatever the parameters are."""

    ids: Tensor | None  # (m,): the distinct entities, along which those below count; all when None
    batch: Triples
    negatives: dict[Slot, Tensor]  # (b, n) each, or fewer rows that are shared
    relations: Tensor | None  # (k,): the distinct relations, along which the batch's count; all when None
    share: float  # of the batch, in this process
    shift: Tensor | None  # (2b, 1 + n): of scores, by how they were drawn


class Stepper:
    """One step of training: draw negatives, score, and move the parameters.

    Entities are moved row by row when a step uses less than half of them (`touched_rows`) or they are kept apart from
    what computes (in other memory, in fewer bits), all at once otherwise.
    On a GPU whole batches are replayed as a CUDA graph, captured after a few ordinary steps.
    """

    WARM_UP = 3

    def __init__(self, model: GradientGraph, train: Triples, settings: TrainConfig, generator: torch.Generator) -> None:
        self.model, self.train, self.settings, self.generator = model, train, settings, generator
        keep_freed_memory()
        on_gpu = train.head.is_cuda
        self.rate = torch.tensor(settings.learning_rate, device=train.head.device)  # changed in place by the schedule
        self.done, self.steps = 0, settings.epochs * math.ceil(len(train) / settings.batch_size)
        self.sampler = SAMPLERS[settings.sampler](train, model.n_entities, settings.shared)
        drawn = 2 * (settings.batch_size + settings.negatives * groups(settings.batch_size, settings.shared))
        reasons = {  # for moving rows by themselves, however few entities there are
            "train.optimizer=row-adagrad": settings.optimizer == "row-adagrad",
            "train.table=host": settings.table == "host",
            "model.entity_dtype=bfloat16": model.entity.dtype == torch.bfloat16,
            "several processes": model.world is not None,
        }
        if settings.loss == "full" and any(reasons.values()):
            given = ", ".join(reason for reason, holds in reasons.items() if holds)
            raise HarmoniumError(f"train.loss=full needs all entities together, not {given}; choose another loss")
        apart = any(holds for reason, holds in reasons.items() if reason != "several processes")
        by_rows = apart or (settings.loss != "full" and settings.rows != "all" and model.n_entities > 2 * drawn)
        self.row_rate = torch.tensor(settings.learning_rate)  # in the host's memory: a number, wherever rows are moved
        self.noise = torch.Generator(model.entity.device) if model.entity.dtype == torch.bfloat16 else None
        by_row = {"adam": RowAdam, "adagrad": RowAdagrad, "row-adagrad": RowwiseAdagrad}[settings.optimizer]
        self.rows = by_row(model.entity, self.row_rate, self.noise) if by_rows else None
        self.table: Table | None = None  # all rows take part in a step
        if model.world is not None:
            if on_gpu and torch.cuda.device_count() < launch.local_size():
                raise HarmoniumError("there are more processes than GPUs here; start as many, or say train.device=cpu")
            if settings.table == "host" and on_gpu:
                raise HarmoniumError("train.table=host is for one process; several hold more in their GPUs: say device")
            self.table = Dealt(model.entity, model.n_entities, self.rows, model.world)
        elif settings.table == "host":
            self.table = Hosted(model.entity, self.rows, train.head.device)
        elif by_rows:
            self.table = Local(model.entity, self.rows)
        self.ahead: tuple[Tensor, Drawn, Tensor] | None = None  # of which index, what was drawn, the generator before
        self.types = torch.nn.Module()
        if settings.type_loss:
            self.types = TypeHead(model.entity.shape[1], model.n_relations).to(train.head.device)
        moved = [p for p in model.parameters() if p.requires_grad and not (by_rows and p is model.entity)]
        self.moved = moved = [*moved, *self.types.parameters()]
        if settings.optimizer == "adam":
            rate = self.rate if on_gpu else settings.learning_rate
            self.optimizer = torch.optim.Adam(moved, lr=rate, fused=True, capturable=on_gpu)
        elif on_gpu:
            self.optimizer = Adagrad(moved, self.rate)
        else:
            self.optimizer = torch.optim.Adagrad(moved, lr=settings.learning_rate, fused=True)
        self.graph = None
        self.steps_to_graph = self.WARM_UP if on_gpu and self.table is None else -1
        need_all = settings.loss == "full" or settings.relation_corruption or settings.type_loss
        self.by_relation = on_gpu and model.composition.by_relation and not need_all
        self.room = model.n_relations  # for the distinct relations of a batch

    @torch.no_grad()
    def way(self) -> str:
        """How scores are computed here, and why no faster."""
        one, model = self.train[:1], self.model
        snapshot = model.snapshot(model.relation.new_ones(1, model.entity.shape[1]))  # wherever the entities are kept
        first = Triples(torch.zeros_like(one.head), one.relation, torch.zeros_like(one.tail))
        way, reason = kernels.chosen(snapshot.form, snapshot.slot_map(Slot.TAIL, first), snapshot.entities)
        if self.settings.loss == "full" and way == "gpu":
            way, reason = "fused", "train.loss=full scores all entities"
        return f"{way} kernels" + (f", as {reason}" if reason else "")

    def state_dict(self) -> dict[str, Tensor]:
        """What the optimisers remember, and the parameters that are no part of the model."""
        found = {f"{i}.{k}": v for i, p in enumerate(self.moved) for k, v in self.optimizer.state[p].items()}
        found |= {f"rows.{k}": v for k, v in self.rows.state_dict().items()} if self.rows is not None else {}
        return found | {f"types.{k}": v for k, v in self.types.state_dict().items()}

    @property
    def dealt(self) -> set[str]:
        """The tensors of `state_dict` with a row for each entity."""
        mine = [f"{i}." for i, p in enumerate(self.moved) if p is self.model.entity] or ["rows."]
        return {name for name, value in self.state_dict().items() if name.startswith(mine[0]) and value.dim()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in state.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        self.types.load_state_dict(parts.pop("types", {}))
        if self.rows is not None:
            self.rows.load_state_dict(parts.pop("rows"))
        for part, values in parts.items():
            parameter = self.moved[int(part)]
            self.optimizer.state[parameter].update({k: v.to(parameter.device) for k, v in values.items()})

    def begin_epoch(self, order: Tensor) -> Tensor:
        """The order of an epoch; batches are sorted by relation where scoring works relation by relation.

        There it also learns how many distinct relations the batches hold, which is what a step must have room for.
        """
        if not self.by_relation:
            return order
        cut = len(order) // self.settings.batch_size * self.settings.batch_size
        whole, rest = order[:cut].view(-1, self.settings.batch_size), order[cut:]
        relations, places = self.train.relation[whole].sort(dim=1, stable=True)
        if cut:
            most = int((relations.diff(dim=1) != 0).sum(dim=1).max()) + 1
            if self.graph is None or most > self.room:
                self.room, self.graph = min(math.ceil(1.05 * most / 16) * 16, self.model.n_relations), None
        return torch.cat([whole.gather(1, places).flatten(), rest[self.train.relation[rest].argsort(stable=True)]])

    def __call__(self, index: Tensor, following: Tensor | None = None) -> Tensor:
        """Move the parameters by the training triples at index (b,); returns the loss.

        What the step after it needs may be brought near meanwhile, if its index is told.
        """
        self._set_rate()
        if len(index) != self.settings.batch_size or self.steps_to_graph != 0:
            self.steps_to_graph -= self.steps_to_graph > 0 and len(index) == self.settings.batch_size
            return self.move(index, following)
        if self.graph is None:
            self._capture(index)
        self.index.copy_(index)
        self.graph.replay()
        return self.loss_value

    def _set_rate(self) -> None:
        """The learning rate of this step: constant, or falling in a line to zero at the end of training."""
        if self.settings.schedule == "linear":
            rate = self.settings.learning_rate * (1 - self.done / self.steps)
            self.rate.fill_(rate)
            self.row_rate.fill_(rate)
            if not self.rate.is_cuda:
                self.optimizer.param_groups[0]["lr"] = rate
        if self.noise is not None:
            self.noise.manual_seed(hash((self.settings.seed, self.done)))  # nothing to save in a checkpoint
        self.done += 1

    def _capture(self, index: Tensor) -> None:
        self.index, self.graph = index.clone(), torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.loss_value = self.move(self.index)

    def move(self, index: Tensor, following: Tensor | None = None) -> Tensor:
        """One step, plainly."""
        with matmul_precision(self.settings.precision):
            return self._move(index, following)

    def settle(self) -> None:
        """Forget what was drawn ahead; it will be drawn again."""
        if self.ahead is not None:
            self.generator.set_state(self.ahead[2])
            self.ahead = None

    def _draw_ahead(self, index: Tensor) -> None:
        """Draw for the next step, and have its rows read while this one is computed."""
        before = self.generator.get_state()
        with self.table.beside():
            drawn = self._draw(index)
            self.table.expect(drawn.ids)
        self.ahead = index, drawn, before

    def _draw(self, index: Tensor) -> Drawn:
        batch, negatives, relations, share, shift = self.train[index], {}, None, 1.0, None
        if self.settings.loss != "full":
            negatives = self.sampler.draw(batch, self.settings.negatives, self.generator)
            if self.model.world is not None:
                share, batch, negatives = own_part(self.model.world, batch, negatives)
            shift = self.sampler.shift(batch, negatives) if self.settings.loss == "sampled" else None
            if self.by_relation:
                relations, batch = distinct_relations(batch, self.room)
        ids = None
        if self.table is not None:
            ids, batch, negatives = touched_rows(batch, negatives)
        return Drawn(ids, batch, negatives, relations, share, shift)

    def _move(self, index: Tensor, following: Tensor | None) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        if self.ahead is not None and self.ahead[0] is index:
            drawn, self.ahead = self.ahead[1], None
        else:
            self.settle()
            drawn = self._draw(index)
        vectors = None
        if self.table is not None:
            vectors = self.table.fetch(drawn.ids).requires_grad_()
        form = self.model.form
        with form.dropping(self.generator) if form.dropout else nullcontext():
            snapshot = self.model.snapshot(vectors, drawn.relations)
        loss = drawn.share * self.loss(snapshot, drawn.batch, drawn.negatives, drawn.shift)
        loss.backward()
        if following is not None and isinstance(self.table, Hosted):
            self._draw_ahead(following)
        if self.table is not None:
            self.table.move(vectors.grad)
        loss = loss.detach()
        if self.model.world is not None:
            everywhere = [p for p in self.moved if p is not self.model.entity]
            self.model.world.sum([loss, *(p.grad for p in everywhere)])
        self.optimizer.step()
        return loss

    def loss(
        self, snapshot: Snapshot, batch: Triples, negatives: dict[Slot, Tensor], shift: Tensor | None = None
    ) -> Tensor:
        """What one step minimises."""
        settings = self.settings
        if negatives:
            loss = contrastive_loss(snapshot, batch, negatives, CONTRASTIVE[settings.loss], settings.margin, shift)
        else:
            loss = full_softmax(snapshot, batch)
        if settings.n3:
            loss = loss + settings.n3 * n3(snapshot, batch)
        if settings.relation_corruption:
            loss = loss + settings.relation_corruption * relation_softmax(snapshot, batch)
        if settings.type_loss:
            loss = loss + settings.type_loss * self.types(snapshot, batch)
        return loss


def own_part(world: World, batch: Triples, negatives: dict[Slot, Tensor]) -> tuple[float, Triples, dict[Slot, Tensor]]:
    """This process's share of a batch, and its triples; with none, the first one counts nothing."""
    mine = world.part(len(batch))
    share = (mine.stop - mine.start) / len(batch)
    mine = mine if share else slice(0, 1)

    def own(ids: Tensor) -> Tensor:
        sharing = len(batch) // len(ids)  # so many triples have a row of ids in common; kept where no group is cut
        if mine.start % sharing or mine.stop % sharing:
            return spread(ids, len(batch))[mine]
        return ids[mine.start // sharing : mine.stop // sharing]

    return share, batch[mine], {slot: own(ids) for slot, ids in negatives.items()}


def touched_rows(batch: Triples, negatives: dict[Slot, Tensor]) -> tuple[Tensor, Triples, dict[Slot, Tensor]]:
    """The distinct entities (m,) of a batch and its negatives, and both in places along them."""
    everyone = torch.cat([batch.head, batch.tail, *(ids.flatten() for ids in negatives.values())])
    rows, place = everyone.unique(return_inverse=True)
    head, tail, *others = place.split([len(batch), len(batch), *(ids.numel() for ids in negatives.values())])
    moved = {slot: part.view_as(negatives[slot]) for slot, part in zip(negatives, others, strict=True)}
    return rows, Triples(head, batch.relation, tail), moved


def distinct_relations(batch: Triples, room: int) -> tuple[Tensor, Triples]:
    """The distinct relations of a batch sorted by relation, padded to `room`, and the batch in places along them."""
    place, ids = runs(batch.relation, room)
    return ids, Triples(batch.head, place, batch.tail)
