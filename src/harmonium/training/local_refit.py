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
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from harmonium.data.graph_changes import GraphChange
from harmonium.data.index import CsrIndex, is_member
from harmonium.data.triples import Triples
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import BatchScorer
from harmonium.runtime.config import TrainConfig
from harmonium.runtime.device import pick_device
from harmonium.runtime.errors import HarmoniumError, out_of_memory_error
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
REFERENCE = 2048  # facts that show how log-odds of training facts and of validation facts are distributed
MIN_VALID = 50
FORGETTING = 0.1  # weight of the loss of removed facts
FORGOTTEN = 0.05  # mean of log-odds above their targets at which no further step is needed
MAX_SCORES = 1 << 25  # held at once for removed facts


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


class Forgetting:
    """Removed facts, and the log-odds that each of them would have if it had never been shown."""

    def __init__(self, refit: LocalRefit) -> None:
        self.refit = refit
        self.known = {slot: refit.change.graph.known_answers(slot).to(refit.device) for slot in SIDES}
        self.batch_size = max(1, MAX_SCORES // refit.n_entities)
        self.is_done = False
        with torch.no_grad():
            self.targets = self._targets()

    def _targets(self) -> Tensor:
        """(2, n): the place among validation facts that each removed fact has among training facts.

        Facts whose entities another training fact links are easier to guess, and compared with each other. Often there
        are none among validation facts, as splits avoid them: then half of the way to the others is taken.
        """
        refit, now = self.refit, self._log_odds_of(self.refit.removed)
        valid = refit.change.graph.valid.to(refit.device)
        if len(valid) < MIN_VALID or not len(refit.kept):
            return now.minimum(torch.full_like(now, -math.log(refit.n_entities)))
        pairs, counts = self._pairs(refit.kept).unique(return_counts=True)
        targets, valid_linked = now.clone(), is_member(self._pairs(valid), pairs)
        for linked in (False, True):
            chosen = is_member(self._pairs(refit.removed), pairs) == linked
            shown, unseen = (
                refit.kept[is_member(self._pairs(refit.kept), pairs[counts > 1]) == linked],
                valid[valid_linked == linked],
            )
            has_like = len(unseen) >= MIN_VALID and len(shown) >= MIN_VALID
            samples = (shown, unseen) if has_like else (refit.kept, valid)
            before, after = (self._log_odds_of(refit.sample(facts, REFERENCE)).sort(1).values for facts in samples)
            target = transport(now[:, chosen], before, after)
            targets[:, chosen] = target if has_like or not linked else (now[:, chosen] + target) / 2
        return now.minimum(targets)

    def _pairs(self, facts: Triples) -> Tensor:
        """(n,): the two entities of each fact, in either order, as one number."""
        return facts.head.minimum(facts.tail) * self.refit.n_entities + facts.head.maximum(facts.tail)

    def loss(self, index: Tensor) -> Tensor:
        """The mean square by which the log-odds of removed facts, at these positions, are above their targets."""
        index = index[: self.batch_size]
        excess = (self._log_odds(self.refit.removed[index]) - self.targets[:, index]).relu()
        self.is_done = excess.mean().item() <= FORGOTTEN
        return FORGETTING * excess.square().mean()

    def _log_odds_of(self, facts: Triples) -> Tensor:
        return torch.cat([self._log_odds(part) for part in facts.chunks(self.batch_size)], dim=1)

    def _log_odds(self, facts: Triples) -> Tensor:
        """(2, n): of the head and of the tail of each fact against all entities that are not known answers."""
        scorer, rows = self.refit.scorer(facts, None), []
        for slot in SIDES:
            scores = scorer.score_slot(slot)
            excluded = torch.zeros_like(scores, dtype=torch.bool)
            excluded[self.known[slot].of(facts)] = True
            truth = facts[slot][:, None]
            others = scores.masked_fill(excluded.scatter(1, truth, True), -torch.inf)
            rows.append(scores.gather(1, truth)[:, 0] - others.logsumexp(1))
        return torch.stack(rows).clamp(min=-100, max=100)


def transport(values: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Values (k, n) at the same quantile of another distribution; both are ascending samples (k, m) and (k, l)."""
    quantile = torch.searchsorted(source, values.contiguous()).double() / source.shape[1]
    return target.gather(1, (quantile * (target.shape[1] - 1)).round().long())


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


# New rows ------------------------------------------------------------------------------------------------------------


def extend_model(model: GradientGraph, change: GraphChange) -> GradientGraph:
    """A copy of the model with rows for new entities and relations, where a refit starts."""
    graph, n_relations = change.graph, change.before.n_relations
    larger = deepcopy(model)
    larger.n_entities, larger.local_rows, larger.n_relations = (
        graph.n_entities,
        slice(0, graph.n_entities),
        graph.n_relations,
    )
    with torch.no_grad():
        entity, relation = model.entity.detach().clone(), model.relation.detach().clone()
        if graph.n_entities > len(entity):
            entity = torch.cat([entity, start_entities(model, change).to(entity)])
        if graph.n_relations > n_relations:
            new = start_relations(model, change, entity)
            halves = zip(
                relation.split(n_relations), new.split(len(new) // (2 if model.reciprocal else 1)), strict=True
            )
            relation = torch.cat([part for half in halves for part in half])
    larger.entity, larger.relation = nn.Parameter(entity), nn.Parameter(relation)
    return larger


def start_entities(model: GradientGraph, change: GraphChange) -> Tensor:
    """(k, dim): for each new entity the mean of the known ones that fill the same slots, at their usual length."""
    first, train, vectors = change.before.n_entities, change.graph.train, model.entities().detach()
    total = vectors.new_zeros(change.graph.n_entities - first, vectors.shape[1])
    for slot in SIDES:
        known = train[train[slot] < first]
        by_relation = vectors.new_zeros(change.graph.n_relations, vectors.shape[1])
        by_relation.index_add_(0, known.relation, vectors[known[slot]])
        by_relation /= known.relation.bincount(minlength=len(by_relation)).clamp(min=1)[:, None]
        new = change.added[change.added[slot] >= first]
        total.index_add_(0, new[slot] - first, by_relation[new.relation])
    return _at_usual_length(total, vectors)


def start_relations(model: GradientGraph, change: GraphChange, entity: Tensor) -> Tensor:
    """(k, dim), or (2k, dim) with reciprocal relations: the direction in which the scores of their facts grow."""
    first, facts = change.before.n_relations, change.added
    count, facts = change.graph.n_relations - first, facts[facts.relation >= first]
    head, tail, relation = facts.head, facts.tail, facts.relation - first
    if model.reciprocal:
        head, tail, relation = torch.cat([head, tail]), torch.cat([tail, head]), torch.cat([relation, relation + count])
    rows = model.relation.new_zeros(count * (2 if model.reciprocal else 1), model.relation.shape[1]).requires_grad_()
    vectors, form = entity.to(model.relation), deepcopy(model.form).requires_grad_(False).fold()
    with torch.enable_grad():
        scores = form(model.composition.compose(vectors[head], rows[relation], vectors[tail]))
        (gradient,) = torch.autograd.grad(scores.sum(), rows)
    return _at_usual_length(gradient, model.relations().detach())


def _at_usual_length(directions: Tensor, vectors: Tensor) -> Tensor:
    """Directions with the mean length of vectors; the mean vector where there is no direction."""
    length: Tensor = torch.linalg.vector_norm(directions, dim=-1, keepdim=True)
    directions = torch.where(length > 1e-12, directions / length.clamp(min=1e-12), vectors.mean(0))
    usual: Tensor = torch.linalg.vector_norm(vectors, dim=-1).mean()
    return directions * usual
