"""Local refit: update the vectors of a model after facts were added or removed, without training again.

The vectors of entities in changed facts move, and those of relations that are new, or of which most facts changed;
everything else stays as it is, bit for bit. The trained model is assumed to be at the minimum of its loss, so the new
vectors minimise

    loss(added facts) + forgetting(removed facts) + D(vectors, vectors before)

D is the Bregman divergence of the loss of the facts that stay: the loss minus its linear part at the start. Its gradient
on a batch of those facts is the current gradient minus the gradient at the start. At the start it is exactly zero,
not only in expectation: nothing moves without a changed fact, and the facts that stay resist the movement (variance
reduction as in SVRG, Johnson and Zhang 2013). A removed fact no longer balances the others, so its gradient at the start
is subtracted too; its log-odds then fall to those of a fact not trained on (forgetting.py).
docs/decisions/018-local-refit.md has the reasons and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from harmonium.config.settings import TrainConfig
from harmonium.data.graph_changes import GraphChange
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError, out_of_memory_error
from harmonium.kernels.precision import matmul_precision
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import BatchScorer
from harmonium.runtime.device import pick_device
from harmonium.training.losses import contrastive_loss, contrastive_scores
from harmonium.training.negatives import SIDES
from harmonium.training.refit.extended_model import extend_model
from harmonium.training.refit.forgetting import Forgetting
from harmonium.training.refit.replay import Cycle, Replay, degrees
from harmonium.training.regularisers import regularisation
from harmonium.training.relative_weights import normalised

REFIT_STEPS = 100  # optimiser steps
MAX_SMALL_FACTS, SMALL_STEP_FACTOR = 4096, 3  # graphs up to this size get more steps if relations move
PASSES, MIN_BATCH = 8, 64  # batches that contain each changed fact; minimum number of changed facts in a batch
REPLAYED_PER_CHANGED, MIN_REPLAYED = 3, 128  # facts in a batch that stay: per changed fact, and minimum
MAX_BATCH_SHARE = 0.01  # of all training facts in a batch, for changed facts and for replayed ones
# Candidates besides the entities of the batch: if training samples negatives, and if it uses all entities
SAMPLED_CANDIDATES, FULL_CANDIDATES = 1024, 2048
MAX_ALL_CANDIDATES = 8192  # if training uses all entities, so does the refit up to this many
LEARNING_RATE = 0.5  # times the root mean square of the vectors; decays linearly to zero
STIFFNESS = 270.0  # initial accumulator of Adagrad, in squared gradients of single facts
ADDED_WEIGHT, NEW_WEIGHT = 1.5, 1.5  # factor of added facts, and a further one of facts with a new entity or relation
FORGETTING_WEIGHT = 0.25  # of the squared log-odds by which removed facts exceed their targets
MIN_CHANGED_SHARE = 0.5  # of the facts of a relation, for its vector to move
# or: maximum number of its facts for each fact of the rarer entities of its changed facts
MAX_FACTS_PER_ENTITY_FACT = 4.0


@dataclass(frozen=True)
class Refitted:
    """A refitted model, and the ids of entities and relations whose vectors moved, including new ones."""

    model: GradientGraph
    entities: Tensor
    relations: Tensor


def refit(
    model: GradientGraph, change: GraphChange, settings: TrainConfig, progress: Callable[[int], None] | None = None
) -> Refitted:
    """Refit a model to the graph after a change; `progress` is called after each step."""
    if not len(change.added) and not len(change.removed):
        none = torch.empty(0, dtype=torch.int64)
        return Refitted(extend_model(model, change), none, none)
    try:
        with matmul_precision(settings.precision):
            return LocalRefit(model, change, settings).solve(progress)
    except (MemoryError, RuntimeError) as error:
        raise out_of_memory_error(error, "update with fewer facts at a time") from error


class LocalRefit:
    """The state of a refit: the vectors that move, and the facts they are fitted to. All other vectors are frozen."""

    def __init__(self, model: GradientGraph, change: GraphChange, settings: TrainConfig) -> None:
        self.change, self.settings, self.device = change, settings, pick_device(settings.device)
        self.n_entities, self.n_relations = change.graph.n_entities, change.graph.n_relations
        self.generator = torch.Generator().manual_seed(settings.seed)
        train = normalised(change.graph.train, settings.weight_power)
        n_kept = len(train) - len(change.added)
        self.n_train, self.kept, self.added, self.removed = len(train), train[:n_kept], train[n_kept:], change.removed
        importance = torch.where(change.has_new(self.added), ADDED_WEIGHT * NEW_WEIGHT, ADDED_WEIGHT)
        self.added = replace(self.added, weight=self.added.weights() * importance)
        changed = Triples.cat([replace(facts, weight=None) for facts in (self.added, self.removed)])
        self.replay = Replay(self.kept, changed, self.n_entities, self.generator)
        self.entities = torch.cat([changed.head, changed.tail]).unique()
        self.relations = self._moved_relations(changed)
        self.steps = REFIT_STEPS * (SMALL_STEP_FACTOR if len(self.relations) and len(train) <= MAX_SMALL_FACTS else 1)

        self.model = extend_model(model, change).requires_grad_(False).move_to(self.device, settings.entity_storage)
        table = self.model.entity
        rows = table[self.entities.to(table.device)].to(self.model.relation)
        self.rows = nn.Parameter(rows)
        self.position = torch.full((self.n_entities,), -1)  # entity -> row among the moved ones, -1 for others
        self.position[self.entities] = torch.arange(len(self.entities))
        self.position = self.position.to(self.device)
        self.model.relation.requires_grad_(bool(len(self.relations)))
        self.start = deepcopy(self.model)
        self.start.entity.data = table.data  # shares the table to save memory: moved rows are not read from it
        self.start_rows = nn.Parameter(rows.clone())
        self.optimisers = self._optimisers(changed)
        self.added_cycle, self.removed_cycle = (
            Cycle(len(facts), self.generator) for facts in (self.added, self.removed)
        )
        count = REPLAYED_PER_CHANGED * max(len(self.added), len(self.removed))
        self.n_replayed = max(MIN_REPLAYED, self.batch_size(count)) if n_kept else 0
        self.forgetting = Forgetting(self) if len(self.removed) else None

    def _moved_relations(self, changed: Triples) -> Tensor:
        """Relations of which most facts changed, and those with hardly more facts than the entities that move."""
        n_changed = changed.relation.bincount(minlength=self.n_relations)
        n_facts = n_changed + self.kept.relation.bincount(minlength=self.n_relations)
        of_entities = degrees(Triples.cat([replace(self.kept, weight=None), changed]), self.n_entities)
        fewer = of_entities[changed.head].minimum(of_entities[changed.tail])
        of_ends = torch.zeros(self.n_relations, dtype=torch.int64).index_add_(0, changed.relation, fewer)
        has_few_facts = n_facts * n_changed <= MAX_FACTS_PER_ENTITY_FACT * of_ends
        return ((n_changed > MIN_CHANGED_SHARE * n_facts) | (has_few_facts & (n_changed > 0))).nonzero()[:, 0]

    def _optimisers(self, changed: Triples) -> list[_RowAdagrad]:
        """An optimiser for the moved entities and, if relations move, one for these."""
        facts = Triples.cat([replace(self.kept, weight=None), changed])
        of_entities = degrees(facts, self.n_entities)
        of_relations = facts.relation.bincount(minlength=self.n_relations)
        of_relations = of_relations.repeat(2) if self.model.reciprocal else of_relations
        batch = self.train_sample(self.batch_size(self.n_train))
        candidates = self.draw_candidates([batch])
        rows = self.table(self.start, self.start_rows, candidates).detach().requires_grad_()
        relation = self.start.relation.requires_grad_()
        loss = self._loss(self.scorer_of(self.start, rows, batch, candidates))
        gradients = torch.autograd.grad(loss, [rows, relation], materialize_grads=True)
        self.start.relation.requires_grad_(bool(len(self.relations)))
        squares = []
        for gradient, degree in zip(gradients, (of_entities, of_relations), strict=True):
            frequency = (degree.to(self.device, gradient.dtype) + 1)[:, None] / self.n_train
            of_one = len(batch) * gradient.square().mean(1).sum() / frequency.sum()
            squares.append(STIFFNESS * of_one * frequency / self.n_train)
        optimisers = [_RowAdagrad(self.rows, squares[0][self.entities.to(self.device)])]
        if len(self.relations):
            can_move = torch.zeros_like(squares[1]).index_fill_(0, self.relation_rows().to(self.device), 1)
            optimisers.append(_RowAdagrad(self.model.relation, squares[1], can_move))
        return optimisers

    def relation_rows(self) -> Tensor:
        """Rows of the relation table that move: two per relation with reciprocal relations."""
        rows = self.relations
        return torch.cat([rows, rows + self.n_relations]) if self.model.reciprocal else rows

    def solve(self, progress: Callable[[int], None] | None = None) -> Refitted:
        for step in range(self.steps):
            totals = [torch.zeros_like(optimiser.rows) for optimiser in self.optimisers]
            for weight, gradients in self._terms():
                for total, gradient in zip(totals, gradients, strict=True):
                    total.add_(gradient, alpha=weight)
            for optimiser, total in zip(self.optimisers, totals, strict=True):
                optimiser.step(total, LEARNING_RATE * (1 - step / self.steps))
            if progress:
                progress(1)
        return self._result()

    def _terms(self) -> Iterator[tuple[float, list[Tensor]]]:
        """The terms of the objective of a step: weight and gradients of each; sums over facts, divided by their number."""
        added = self.added[self.added_cycle.draw(self.batch_size(len(self.added)))]
        index = self.removed_cycle.draw(self.batch_size(len(self.removed)))
        removed = self.removed[index]
        kept = self.replay.draw(self.n_replayed)
        candidates = self.draw_candidates([added, removed, kept])
        if len(kept):
            weight = len(self.kept) / self.n_train
            yield weight, self._gradients(self.model, self.rows, kept, candidates)
            yield -weight, self._gradients(self.start, self.start_rows, kept, candidates)
            if self.n_entities > self.change.before.n_entities:
                yield weight, self._gradients_of(self._intrusion(kept, candidates), self.model, self.rows)
        if len(added):
            weight = len(self.added) / self.n_train
            yield weight, self._gradients(self.model, self.rows, added, candidates)
        if self.forgetting is not None:
            weight = len(self.removed) / self.n_train
            yield -weight, self._gradients(self.start, self.start_rows, removed, candidates)
            loss = FORGETTING_WEIGHT * self.forgetting.loss(index)
            yield weight, self._gradients_of(loss, self.model, self.rows)

    def _result(self) -> Refitted:
        """The model with the new rows, on the CPU."""
        model, rows = self.model.requires_grad_(False), self.rows.detach()
        if not (rows.isfinite().all() and model.relation.isfinite().all()):
            raise HarmoniumError("the update diverged: vectors are not finite; train again with the changed graph")
        entity: Tensor = model.entity.data
        entity[self.entities.to(entity.device)] = rows.to(entity)
        return Refitted(model.to("cpu").requires_grad_(), self.entities, self.relations)

    # Losses ----------------------------------------------------------------------------------------------------------

    def table(self, model: GradientGraph, rows: Tensor, candidates: Tensor | None) -> Tensor:
        """(m, entity_dim): the vectors of the candidates (ascending ids; None: all), with `rows` for moved entities."""
        fixed, position = model.entity.detach(), self.position
        if candidates is not None:
            fixed, position = fixed[candidates.to(fixed.device)], position[candidates]
        moved = (position >= 0).nonzero()[:, 0]
        return fixed.to(rows).index_copy(0, moved, rows.index_select(0, position[moved]))

    def scorer_of(self, model: GradientGraph, rows: Tensor, batch: Triples, candidates: Tensor | None) -> BatchScorer:
        """The scorer of a batch with these candidates, which must include the entities of the batch."""
        batch = batch.to(self.device)
        if candidates is not None:
            head, tail = (torch.searchsorted(candidates, batch[slot]) for slot in SIDES)
            batch = replace(batch, head=head, tail=tail)
        return model.scorer(rows).for_batch(batch)

    def scorer(self, batch: Triples) -> BatchScorer:
        """The scorer of a batch among all entities."""
        return self.scorer_of(self.model, self.table(self.model, self.rows, None), batch, None)

    def _gradients(self, model: GradientGraph, rows: Tensor, batch: Triples, candidates: Tensor | None) -> list[Tensor]:
        """Gradients of the training objective in the rows and relations that move.

        For the model at the start, new entities and relations are left out, as it was trained without them.
        """
        is_start = model is self.start
        known = self.change.before.n_entities
        if is_start and known < self.n_entities:
            ids = self._ids(candidates)
            candidates = ids[ids < known]
        loss = self._loss(self.scorer_of(model, self.table(model, rows, candidates), batch, candidates))
        gradients = self._gradients_of(loss, model, rows)
        if is_start and len(self.relations):
            for half in gradients[1].split(self.n_relations):
                half[self.change.before.n_relations :] = 0
        return gradients

    def _gradients_of(self, loss: Tensor, model: GradientGraph, rows: Tensor) -> list[Tensor]:
        parameters = [rows, *([model.relation] if len(self.relations) else [])]
        return list(torch.autograd.grad(loss, parameters, materialize_grads=True))

    def _loss(self, scorer: BatchScorer) -> Tensor:
        """The training objective of a batch."""
        settings = self.settings
        if settings.loss in ("full", "sampled"):
            loss = scorer.entity_cross_entropy(settings.label_smoothing)
        else:
            competitors = torch.arange(len(scorer.entity_vectors.table), device=self.device)[None]
            scores = contrastive_scores(scorer, dict.fromkeys(SIDES, competitors))
            loss = contrastive_loss(scores, settings, scorer.weights(len(SIDES)))
        penalty = regularisation(scorer, settings)
        if penalty is not None:
            loss = loss + penalty
        if settings.relation_prediction:
            loss = loss + settings.relation_prediction * scorer.relation_cross_entropy()
        return loss

    def _intrusion(self, batch: Triples, candidates: Tensor | None) -> Tensor:
        """A penalty on new entities: mean of -log of the softmax share of old entities, the answer left out.

        A trained model is certain of the answers it was trained on, so their loss does not keep new entities from
        outranking all others in queries with unknown answers.
        """
        scorer = self.scorer_of(self.model, self.table(self.model, self.rows, candidates), batch, candidates)
        known = int((self._ids(candidates) < self.change.before.n_entities).sum())
        losses = []
        for slot in SIDES:
            scores = scorer.score_slot(slot).scatter(1, scorer.batch[slot][:, None], -torch.inf)
            losses.append(scores.logsumexp(1) - scores[:, :known].logsumexp(1))
        return (torch.stack(losses) * scorer.batch.weights().to(losses[0])).mean()

    # Batches ---------------------------------------------------------------------------------------------------------

    def batch_size(self, count: int) -> int:
        """Batch size for `count` facts."""
        largest = math.ceil(MAX_BATCH_SHARE * self.n_train)
        return max(MIN_BATCH, min(largest, math.ceil(PASSES * count / self.steps)))

    def draw_candidates(self, batches: list[Triples]) -> Tensor | None:
        """Draw the candidates of a step, in ascending order of ids; None: all entities."""
        limit = count = SAMPLED_CANDIDATES
        if self.settings.loss == "full":
            limit, count = MAX_ALL_CANDIDATES, FULL_CANDIDATES
        if self.n_entities <= limit:
            return None
        drawn = torch.randint(self.n_entities, (count,), generator=self.generator)
        ends = [ids for batch in batches for ids in (batch.head, batch.tail)]
        candidates: Tensor = torch.cat([drawn, *ends]).unique()
        return candidates.to(self.device)

    def _ids(self, candidates: Tensor | None) -> Tensor:
        return torch.arange(self.n_entities, device=self.device) if candidates is None else candidates

    def train_sample(self, count: int) -> Triples:
        """Facts that the old model was trained on, if any are left."""
        return self.sample(self.kept if len(self.kept) else self.added, count)

    def sample(self, facts: Triples, count: int) -> Triples:
        """A random sample of distinct facts."""
        return facts[torch.randperm(len(facts), generator=self.generator)[:count]]


class _RowAdagrad:
    """Adagrad with momentum and one accumulated square for each row, so that rows move along their gradient.

    The accumulated squares start at values as after a long training: proportional to the number of facts of the row.
    """

    def __init__(
        self, rows: nn.Parameter, squares: Tensor, can_move: Tensor | None = None, momentum: float = 0.9
    ) -> None:
        self.rows, self.squares, self.can_move, self.momentum, self.steps = rows, squares, can_move, momentum, 0
        self.scale = rows.detach().square().mean().sqrt()
        self.mean = torch.zeros_like(rows)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> None:
        if self.can_move is not None:
            gradient = gradient * self.can_move
        self.steps += 1
        self.squares += gradient.square().mean(1, keepdim=True)
        self.mean.lerp_(gradient, 1 - self.momentum)
        length = self.squares.sqrt().clamp(min=1e-20) * (1 - self.momentum**self.steps)
        self.rows.sub_(rate * self.scale * self.mean / length)
