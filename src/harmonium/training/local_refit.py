"""Local refit: the vectors of a model after facts were added to its graph or removed from it, without training again.

The vectors of the entities of changed facts move, and those of relations that are new or lost or won most of their
facts; everything else stays as it is, bit for bit. Their new values are found in few large steps that minimise

    added facts             the loss of the training, in steps in which they fit worse than other facts did before
    removed facts           (log-odds - target)^2 while the log-odds are above it: how a fact that was never shown would
                            stand. A removed fact falls to the place among validation facts that it had among training
                            facts; without validation facts, to that of an entity drawn at random
    facts of moved entities the loss of the training, so that what they said before still holds
    all training facts      likewise: the moved entities are candidates of their questions

Steps are relative to the size of vectors and to (changed facts / facts of the entity)^.5, so that an entity with many
facts hardly moves for one more. docs/decisions/018-local-refit.md has the reasons and what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from harmonium.data.graph_changes import GraphChange
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Triples
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import BatchScorer
from harmonium.runtime.config import TrainConfig
from harmonium.runtime.device import pick_device
from harmonium.runtime.errors import HarmoniumError, out_of_memory_error
from harmonium.training.extended_model import extend_model
from harmonium.training.forgetting import Forgetting
from harmonium.training.losses import contrastive_loss, contrastive_scores
from harmonium.training.negatives import SIDES
from harmonium.training.regularisers import regularisation

STEPS = 50
PASSES, MIN_CHANGED = 6, 64  # how often each changed fact is in a batch; the least number of them in one
REPLAYED, OTHERS = 1, 4  # facts of moved entities, and any training facts, for each changed fact of a batch
CANDIDATES = 1024  # entities that compete with the truth, beside those of the batch
RATE = 0.1  # of a step, times the root mean square of the vectors; decays linearly to zero
NEW = 3.0  # factor of the steps of new entities and of moved relations, which have further to go
PULL = 0.1  # part of the way back to the start in steps in which added facts fit, for entities without removed facts
MOVED_RELATION = 0.5  # share of the facts of a relation that must have changed for its vector to move


@dataclass(frozen=True)
class Refitted:
    """A model after a local refit, and the ids of the entities and relations whose vectors moved, new ones included."""

    model: GradientGraph
    entities: Tensor
    relations: Tensor


def refit(
    model: GradientGraph, change: GraphChange, settings: TrainConfig, progress: Callable[[int], None] | None = None
) -> Refitted:
    """The model for the graph after a change; `progress` is called after each of the STEPS steps."""
    if not len(change.added) and not len(change.removed):
        none = torch.empty(0, dtype=torch.int64)
        return Refitted(extend_model(model, change), none, none)
    try:
        return LocalRefit(model, change, settings).solve(progress)
    except (MemoryError, RuntimeError) as error:
        raise out_of_memory_error(error, "update with fewer facts at a time") from error


class LocalRefit:
    """The vectors that move, and what their new values must fit. The rest of the model is frozen."""

    def __init__(self, model: GradientGraph, change: GraphChange, settings: TrainConfig) -> None:
        device = pick_device(settings.device)
        self.change, self.settings, self.device = change, settings, device
        self.generator = torch.Generator(device).manual_seed(settings.seed)
        self.model = extend_model(model, change).requires_grad_(False).move_to(device, settings.entity_storage)
        self.added, self.removed = change.added.to(device), change.removed.to(device)
        self.train = change.graph.train.to(device)
        self.n_entities, self.n_relations = change.graph.n_entities, change.graph.n_relations
        self.kept = self.train[: len(self.train) - len(self.added)]
        rows = torch.arange(len(self.kept), device=device)
        self.by_entity = CsrIndex.build(torch.cat([self.kept.head, self.kept.tail]), torch.cat([rows, rows]))
        self.changed = Triples.cat([self.added, self.removed])
        ends = torch.cat([self.changed.head, self.changed.tail])
        self.entities, n_changed = ends.unique(return_counts=True)
        n_kept = torch.cat([self.kept.head, self.kept.tail]).bincount(minlength=self.n_entities)[self.entities]
        self.position = torch.full((self.n_entities,), -1, device=device)  # of moved entities among the rows
        self.position[self.entities] = torch.arange(len(self.entities), device=device)
        self.relations = self._moved_relations()
        entity_table, relation_table = self.model.entity, self.model.relation
        self.rows = nn.Parameter(entity_table[self.entities.to(entity_table.device)].to(relation_table))
        self.model.relation.requires_grad_(bool(len(self.relations)))
        share = n_changed / (n_changed + n_kept)
        can_move = torch.zeros(len(relation_table), 1, device=device).index_fill_(0, self.relation_rows(), 1)
        forgets = torch.isin(self.entities, torch.cat([self.removed.head, self.removed.tail]))
        pull = PULL * (1 - share) * ~forgets
        step_sizes = share.sqrt() * torch.where(self.entities >= change.before.n_entities, NEW, 1.0)
        self.optimisers = [_RowAdam(self.rows, step_sizes[:, None], pull[:, None])]
        if len(self.relations):
            self.optimisers.append(_RowAdam(self.model.relation, NEW * can_move, torch.zeros_like(can_move)))

    def _moved_relations(self) -> Tensor:
        n_changed = self.changed.relation.bincount(minlength=self.n_relations)
        n_facts = n_changed + self.kept.relation.bincount(minlength=self.n_relations)
        return (n_changed > MOVED_RELATION * n_facts).nonzero()[:, 0]

    def relation_rows(self) -> Tensor:
        """Rows of the relation table that move: with reciprocal relations two for each."""
        rows = self.relations
        return torch.cat([rows, rows + self.n_relations]) if self.model.reciprocal else rows

    def solve(self, progress: Callable[[int], None] | None = None) -> Refitted:
        n_added, n_removed = len(self.added), len(self.removed)
        size = max(MIN_CHANGED, math.ceil(PASSES * (n_added + n_removed) / STEPS))
        forgetting = Forgetting(self) if n_removed else None
        level, fit = 0.0, math.inf  # the loss of other facts before any step; that of added facts, smoothed
        for step in range(STEPS):
            index = self._draw(n_added + n_removed, size)
            added, removed = self.added[index[index < n_added]], index[index >= n_added] - n_added
            ends = torch.cat([self.changed.head[index], self.changed.tail[index]])
            others = Triples.cat([self._replay(ends, REPLAYED * size), self._others(OTHERS * size)])
            drawn = self._draw(self.n_entities, min(CANDIDATES, self.n_entities))
            candidates = torch.cat([drawn, ends, others.head, others.tail]).unique()
            total, value = self._loss(others, candidates)
            level = level if step else value
            if len(added):
                loss, value = self._loss(added, candidates)
                fit = 0.7 * fit + 0.3 * value if step else value
                if fit > level:
                    weight = len(added) / len(others)
                    total = (total + weight * loss) / (1 + weight)
            if forgetting is not None and len(removed):
                total = total + forgetting.loss(removed)
                if not n_added and forgetting.is_done:
                    break
            if total.requires_grad:
                torch.autograd.backward(total)
                for optimiser in self.optimisers:
                    optimiser.step(RATE * (1 - step / STEPS), pulls=fit <= level)
            if progress:
                progress(1)
        return self._result()

    def _result(self) -> Refitted:
        """The model with the new rows, on the CPU."""
        model, rows = self.model.requires_grad_(False), self.rows.detach()
        if not (rows.isfinite().all() and model.relation.isfinite().all()):
            raise HarmoniumError("the update diverged: vectors are not finite; train again with the changed graph")
        entity = model.entity.data
        entity[self.entities.to(entity.device)] = rows.to(entity)
        return Refitted(model.to("cpu").requires_grad_(), self.entities.cpu(), self.relations.cpu())

    # Losses ----------------------------------------------------------------------------------------------------------

    def scorer(self, batch: Triples, candidates: Tensor | None) -> BatchScorer:
        """The scorer of a batch among given entities (m,), ascending, the batch's own among them; None: among all."""
        table = self.model.entity
        ids = torch.arange(self.n_entities, device=self.device) if candidates is None else candidates
        position, fixed = self.position[ids], table[ids.to(table.device)].to(self.rows)
        moved = (position >= 0).nonzero()[:, 0]
        rows = fixed.index_copy(0, moved, self.rows.index_select(0, position[moved]))
        if candidates is not None:
            head, tail = (torch.searchsorted(candidates, batch[slot]) for slot in SIDES)
            batch = replace(batch, head=head, tail=tail)
        return self.model.scorer(rows).for_batch(batch)

    def _loss(self, batch: Triples, candidates: Tensor) -> tuple[Tensor, float]:
        """What training minimises, with regularisers and without them; the truth competes with the candidates."""
        settings, scorer = self.settings, self.scorer(batch, candidates)
        if settings.loss in ("full", "sampled"):
            loss = scorer.entity_cross_entropy(settings.label_smoothing)
        else:
            competitors = torch.arange(len(candidates), device=self.device)[None]
            scores = contrastive_scores(scorer, dict.fromkeys(SIDES, competitors))
            loss = contrastive_loss(scores, settings, scorer.weights(len(SIDES)))
        total, penalty = loss, regularisation(scorer, settings)
        if penalty is not None:
            total = total + penalty
        if settings.relation_prediction:
            total = total + settings.relation_prediction * scorer.relation_cross_entropy()
        return total, loss.item()

    # Batches ---------------------------------------------------------------------------------------------------------

    def _draw(self, limit: int, count: int) -> Tensor:
        return torch.randint(limit, (count,), generator=self.generator, device=self.device)

    def sample(self, facts: Triples, count: int) -> Triples:
        """Distinct facts."""
        return facts[torch.randperm(len(facts), generator=self.generator, device=self.device)[:count]]

    def _others(self, count: int) -> Triples:
        return self.train[self._draw(len(self.train), count)]

    def _replay(self, entities: Tensor, count: int) -> Triples:
        """Facts of these entities, drawn one by one."""
        chosen = entities[self._draw(len(entities), count)]
        return self.kept[self.by_entity.draw(chosen, self.generator)]


class _RowAdam:
    """Adam with one second moment for each row, so that rows move along their gradient.

    Each row has a step size and, in a step that pulls, goes a part of the way back to where it started.
    """

    def __init__(
        self, rows: nn.Parameter, step_sizes: Tensor, pull: Tensor, betas: tuple[float, float] = (0.9, 0.99)
    ) -> None:
        self.rows, self.step_sizes, self.pull, self.betas, self.steps = rows, step_sizes, pull, betas, 0
        self.scale = rows.detach().square().mean().sqrt()
        self.start = rows.detach().clone()
        self.mean, self.square = torch.zeros_like(rows), torch.zeros_like(rows[:, :1])

    @torch.no_grad()
    def step(self, rate: float, pulls: bool) -> None:
        gradient, (first, second) = self.rows.grad, self.betas
        if gradient is None:
            return
        self.steps += 1
        self.mean.lerp_(gradient, 1 - first)
        self.square.lerp_(gradient.square().mean(1, keepdim=True), 1 - second)
        length = (self.square / (1 - second**self.steps)).sqrt().clamp(min=1e-12)
        direction = self.mean / (1 - first**self.steps) / length
        self.rows.sub_(rate * self.scale * self.step_sizes * direction)
        if pulls:
            self.rows.lerp_(self.start, self.pull)
        self.rows.grad = None
