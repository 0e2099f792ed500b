"""Influence: what removing or adding training facts does to the rank of a triple, estimated without training again.

Removing facts takes their losses out of the sum that training minimised. The vectors of the triple's head and tail are
refitted to the facts that remain, by a few Newton steps; all other vectors stay as they are. In one vector v the score of
a triple is linear, or nearly so with a W, so everything that v is part of is a regression on s(v0) + (v - v0).ds/dv, with
gradients at the trained vector v0 that are computed once:

    queries in which v is given      softmax regression: the truth against its strongest competitors
    queries of which v is the answer logistic regression: v against all others
    queries of other facts           logistic regression: v must not be the answer; a sample of facts of the same relations
    regularisers, few epochs         a ridge |v|^2 of the weight for which v0 is stationary along itself

`benchmarks/bench_explain.py` compares the estimate with training again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from numpy import broadcast_shapes  # torch.broadcast_shapes imports sympy, half a second
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex, KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.kernels import dispatch
from harmonium.model.composition import SlotMap
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import EmbeddingScorer

STRONGEST, SAMPLED = 16, 16  # competitors of a truth: the most probable entities, and a seeded sample of all others
OTHER_FACTS = 64  # a seeded sample of the facts of an entity that are not to be removed
RIVAL_FACTS = 16  # a seeded sample, for each relation and slot of an entity, of facts without it
NEWTON_STEPS = 8  # Newton steps
DAMPING = 0.01  # added to the curvature, as a share of its mean
MAX_SCORES_HELD = 1 << 23  # held at once

ENDS = (Slot.HEAD, Slot.TAIL)
Part = tuple[Tensor, Tensor, Tensor]  # rows of facts or weights (n,), scores or log-odds (n, c), gradients (n, c, dim)


@dataclass(frozen=True)
class Influence:
    """Of the training facts of a graph on the answers of a model."""

    model: GradientGraph
    graph: Graph
    seed: int = 0

    @cached_property
    def scorer(self) -> EmbeddingScorer:
        with torch.no_grad():
            return self.model.prepare()

    @cached_property
    def known_tails(self) -> KnownAnswers:
        return self.graph.known_answers(Slot.TAIL)

    @cached_property
    def by_entity(self) -> CsrIndex:
        """entity -> training facts."""
        train = self.graph.train
        rows = torch.arange(len(train))
        return CsrIndex.build(torch.cat([train.head, train.tail]), torch.cat([rows, rows]))

    @cached_property
    def by_relation(self) -> CsrIndex:
        """relation -> training facts."""
        return CsrIndex.build(self.graph.train.relation, torch.arange(len(self.graph.train)))

    @cached_property
    def sampled(self) -> Tensor:
        """(m,): entities that compete with every truth."""
        return self.sample(self.graph.n_entities, SAMPLED)

    def sample(self, count: int, limit: int) -> Tensor:
        return torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))[:limit]

    def facts_of(self, *entities: int) -> Triples:
        """Training facts of any of the entities, in the order of training."""
        rows: Tensor = self.by_entity.lookup(torch.tensor(entities))[1].unique()
        return self.graph.train[rows]

    def of_removing(self, facts: Triples, triple: Triples) -> Tensor:
        """(n,): the change of the score of a triple (one row, as an answer for the tail) as each fact alone is removed."""
        return Removal(self, facts, triple).effects()

    def queries(self, facts: Triples) -> dict[Slot, tuple[Slot, Triples]]:
        """For heads and for tails: the open slot and the queries; a reciprocal model asks for heads by the reversed fact."""
        if not self.model.reciprocal:
            return {slot: (slot, facts) for slot in ENDS}
        reversed_facts = Triples(facts.tail, facts.relation + self.model.n_relations, facts.head)
        return {Slot.HEAD: (Slot.TAIL, reversed_facts), Slot.TAIL: (Slot.TAIL, facts)}

    def score_gradients(self, ids: Mapping[Slot, Tensor], entity: int) -> Tensor:
        """(b, m, dim): gradients in an entity's vector of the scores of triples, ids (b, m) or (b, 1) in each slot."""
        shape, entities = broadcast_shapes(*(column.shape for column in ids.values())), self.scorer.entities
        relation, rows = self.scorer.relations[ids[Slot.RELATION]], {slot: entities[ids[slot]] for slot in ENDS}
        varied = [slot for slot in ENDS if (ids[slot] == entity).any()]
        if not varied:
            return entities.new_zeros(*shape, entities.shape[1])
        with torch.enable_grad():
            for slot in varied:
                rows[slot] = rows[slot].expand(*shape, -1).clone().requires_grad_()
            composed = self.scorer.composition.compose(rows[Slot.HEAD], relation, rows[Slot.TAIL])
            gradients = torch.autograd.grad(self.scorer.form(composed).sum(), [rows[slot] for slot in varied])
        masked = [g * (ids[slot] == entity)[..., None] for g, slot in zip(gradients, varied, strict=True)]
        return torch.stack(masked).sum(0) if len(masked) > 1 else masked[0]

    def scores(self, triple: Triples, head: Tensor, tail: Tensor) -> Tensor:
        """(m,): of one triple with other vectors (m, dim) for its head and tail."""
        return self.scorer.form(self.scorer.composition.compose(head, self.scorer.relations[triple.relation], tail))

    def margins(self, triple: Triples, head: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """(m,) each: the same above the score of the best other tail that is not known, and the rank."""
        relation = self.scorer.relations[triple.relation].expand(len(head), -1)
        slot_map = SlotMap(self.scorer.composition, Slot.TAIL, head, relation, head.shape[1])
        others = dispatch.all_scores(self.scorer.form, slot_map, self.scorer.entities)
        others[:, torch.cat([self.known_tails.of(triple)[1], triple.tail])] = -torch.inf
        scores = self.scores(triple, head, tail)
        return scores - others.amax(1), 1 + (others > scores[:, None]).sum(1)


class Removal:
    """A triple as sets of given training facts are removed. Sets are (m, n) bool, n the number of facts."""

    def __init__(self, influence: Influence, facts: Triples, triple: Triples) -> None:
        self.influence, self.n_facts, self.triple = influence, len(facts), triple
        refits = {entity: Refit(influence, facts, entity) for entity in {int(triple[slot]) for slot in ENDS}}
        self.head, self.tail = (refits[int(triple[slot])] for slot in ENDS)

    @torch.no_grad()
    def scores(self, sets: Tensor) -> Tensor:
        """(m,)."""
        return self.influence.scores(self.triple, self.head.changed(sets), self.tail.changed(sets))

    def effects(self) -> Tensor:
        """(n,): the change of the score without each fact alone."""
        scores = self.scores(torch.cat([torch.zeros(1, self.n_facts), torch.eye(self.n_facts)]).bool())
        return scores[1:] - scores[0]

    @torch.no_grad()
    def margins(self, sets: Tensor) -> tuple[Tensor, Tensor]:
        """(m,) each: the score of the triple above that of the best other tail that is not known, and its rank."""
        return self.influence.margins(self.triple, self.head.changed(sets), self.tail.changed(sets))


class Refit:
    """An entity's vector refitted to its training facts, with sets of given facts removed from them or added to them."""

    def __init__(self, influence: Influence, facts: Triples, entity: int, adding: bool = False) -> None:
        self.value, self.normalise, self.adding = influence.scorer.entities[entity], influence.model.normalise, adding
        self.rows = ((facts.head == entity) | (facts.tail == entity)).nonzero()[:, 0]  # of the given facts
        all_facts, given = influence.facts_of(entity), facts[self.rows]
        others = all_facts[~_is_among(all_facts, given)]
        sample = others[influence.sample(len(others), OTHER_FACTS)]
        weight = len(others) / max(1, len(sample))
        self.weights = torch.cat([torch.full((len(given),), float(not adding)), torch.full((len(sample),), weight)])
        self.losses, self.n_facts = Losses(influence, Triples.cat([given, sample]), entity), len(all_facts)
        self.gradient = self.losses.gradients(torch.zeros_like(self.value)[None], self.weights[None])[0]
        self.ridge = (-self.gradient @ self.value / self.value.square().sum().clamp(min=1e-12)).clamp(min=0)
        curvature = self.losses.curvature(self.weights.clamp(min=1))  # that of all facts that may count
        diagonal = self.ridge + DAMPING * curvature.trace() / len(curvature) + 1e-6
        self.factor = torch.linalg.cholesky(curvature + diagonal * torch.eye(len(curvature)))

    def changed(self, sets: Tensor) -> Tensor:
        """(m, dim): the vector after each set of facts (m, n) was removed or added."""
        vectors, concerned = self.value.repeat(len(sets), 1), sets[:, self.rows].any(1)
        if concerned.any():
            vectors[concerned] = self._changed(sets[concerned][:, self.rows])
        return vectors

    def _changed(self, sets: Tensor) -> Tensor:
        """(m, dim), for sets (m, k) of the facts with this entity."""
        weights, counts = self.weights.repeat(len(sets), 1), sets.sum(1)
        weights[:, : len(self.rows)] = (sets if self.adding else ~sets).to(weights)
        # The ridge, and what training left over, go with the number of facts; without facts v still goes to zero.
        n_facts = (self.n_facts + counts if self.adding else self.n_facts - counts).clamp(min=1)
        share = (n_facts / max(1, self.n_facts))[:, None]
        shift = trial = step = self.value.new_zeros(len(sets), len(self.value))
        rate, energy = self.value.new_ones(len(sets), 1), self.value.new_full((len(sets), 1), torch.inf)
        for _ in range(NEWTON_STEPS):  # a step that makes the gradient larger is taken back and halved
            gradient = self.losses.gradients(trial, weights) + share * (self.ridge * trial - self.gradient)
            next_step = torch.cholesky_solve(gradient.T, self.factor).T
            next_energy = (gradient * next_step).sum(1, keepdim=True)
            better = next_energy < energy
            shift, step = torch.where(better, trial, shift), torch.where(better, next_step, step)
            rate, energy = torch.where(better, rate, rate / 2), torch.where(better, next_energy, energy)
            trial = shift - rate * step
        moved = self.value + shift
        return moved / moved.norm(dim=1, keepdim=True).clamp(min=1e-12) * self.value.norm() if self.normalise else moved


class Losses:
    """The losses that depend on one entity's vector v, as functions of its shift from the trained vector."""

    def __init__(self, influence: Influence, facts: Triples, entity: int) -> None:
        given: list[Part] = []
        answer: list[Part] = []
        for rows in torch.arange(len(facts)).split(max(1, MAX_SCORES_HELD // influence.graph.n_entities)):
            for slot, queries in influence.queries(facts[rows]).values() if len(rows) else ():
                scores, is_given = influence.scorer.score_slot(slot, queries), queries[_other(slot)] == entity
                for mask, parts, compete in ((is_given, given, _competitors), (~is_given, answer, _log_odds)):
                    if mask.any():
                        ids, values = compete(influence, queries[mask][slot][:, None], scores[mask])
                        parts.append((rows[mask], values, _gradients(influence, slot, queries[mask], ids, entity)))
        rivals: list[Part] = []
        for weight, slot, queries in _rivals(influence, facts, entity):
            scores, ids = influence.scorer.score_slot(slot, queries), torch.full((len(queries), 1), entity)
            log_odds, slopes = _log_odds(influence, ids, scores)[1], _gradients(influence, slot, queries, ids, entity)
            rivals.append((torch.full((len(queries),), weight), log_odds, slopes))
        self.given_rows, self.scores, self.slopes = _cat(given, influence)
        self.answer_rows, self.log_odds, self.answer_slopes = _cat(answer, influence)
        self.rival_weights, self.rival_log_odds, self.rival_slopes = _cat(rivals, influence)

    def gradients(self, shift: Tensor, weights: Tensor) -> Tensor:
        """(m, dim): of the weighted sums, weights (m, number of facts), at each shift (m, dim)."""
        m, (n, c, _) = len(shift), self.slopes.shape
        slopes = self.slopes.flatten(0, 1)  # (n c, dim)
        probability = (self.scores + (shift @ slopes.T).view(m, n, c)).softmax(-1)
        residual = probability - (torch.arange(c) == 0).to(probability)  # the truth comes first
        total = (weights[:, self.given_rows, None] * residual).view(m, n * c) @ slopes
        answers, rivals = self.answer_slopes[:, 0], self.rival_slopes[:, 0]
        probability = (self.log_odds[:, 0] + shift @ answers.T).sigmoid()
        total = total + (weights[:, self.answer_rows] * (probability - 1)) @ answers
        probability = (self.rival_log_odds[:, 0] + shift @ rivals.T).sigmoid()
        return total + (self.rival_weights * probability) @ rivals

    def curvature(self, weights: Tensor) -> Tensor:
        """(dim, dim): without a shift, of the sum with weights (number of facts,)."""
        probability = self.scores.softmax(-1)[..., None]  # (n, c, 1)
        centred = self.slopes - (probability * self.slopes).sum(1, keepdim=True)
        roots = [((weights[self.given_rows, None, None] * probability).sqrt() * centred).flatten(0, 1)]
        for row_weights, log_odds, slopes in (
            (weights[self.answer_rows], self.log_odds, self.answer_slopes),
            (self.rival_weights, self.rival_log_odds, self.rival_slopes),
        ):
            odds = log_odds.sigmoid()
            roots.append((row_weights[:, None] * odds * (1 - odds)).sqrt() * slopes[:, 0])
        stacked = torch.cat(roots)
        return stacked.T @ stacked


def _other(slot: Slot) -> Slot:
    return Slot.HEAD if slot is Slot.TAIL else Slot.TAIL


def _gradients(influence: Influence, slot: Slot, queries: Triples, ids: Tensor, entity: int) -> Tensor:
    """(n, c, dim): of the scores of candidates ids (n, c) for the open slot."""
    return influence.score_gradients({s: ids if s is slot else queries[s][:, None] for s in Slot}, entity)


def _log_odds(influence: Influence, ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """(n, 1) each: the candidates ids, and their log-odds against all others."""
    return ids, scores.gather(1, ids) - scores.scatter(1, ids, -torch.inf).logsumexp(1, keepdim=True)


def _competitors(influence: Influence, truth: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """(n, c) each: the truth (n, 1) and its competitors, and their scores.

    A sampled competitor stands for many that are not listed: the logarithm of their number is added to its score.
    """
    others = scores.scatter(1, truth, -torch.inf)
    top = others.topk(min(STRONGEST, scores.shape[1] - 1), dim=1)
    rest = others.scatter(1, top.indices, -torch.inf)[:, influence.sampled]
    n_rest, n_sampled = scores.shape[1] - 1 - top.indices.shape[1], (rest > -torch.inf).sum(1, keepdim=True)
    rest = rest + (n_rest / n_sampled.clamp(min=1)).clamp(min=1).log()
    ids = torch.cat([truth, top.indices, influence.sampled.expand(len(truth), -1)], dim=1)
    return ids, torch.cat([scores.gather(1, truth), top.values, rest], dim=1)


def _rivals(influence: Influence, facts: Triples, entity: int) -> Iterator[tuple[float, Slot, Triples]]:
    """For each relation and slot in which the entity stands: a weight, and queries of which it is not the answer."""
    train = influence.graph.train
    for slot in ENDS:
        for relation in facts.relation[facts[slot] == entity].unique():
            others = train[influence.by_relation.lookup(relation[None])[1]]
            others = others[others[slot] != entity]
            if len(others):
                sample = others[influence.sample(len(others), RIVAL_FACTS)]
                yield len(others) / len(sample), *influence.queries(sample)[slot]


def _cat(parts: list[Part], influence: Influence) -> Part:
    if not parts:
        entities = influence.scorer.entities
        return torch.zeros(0, dtype=torch.int64), entities.new_zeros(0, 1), entities.new_zeros(0, 1, entities.shape[1])
    first, second, third = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return first, second, third


def _is_among(facts: Triples, others: Triples) -> Tensor:
    """(n,) bool: which facts are among the others."""
    if not len(others):
        return torch.zeros(len(facts), dtype=torch.bool)
    return (facts.to_rows()[:, None] == others.to_rows()[None]).all(-1).any(1)
