"""The grammar of a graph: one harmony of every candidate, from vectors and symbolic constraints.

    harmony(h, r, t) = w_v * score of the vectors  +  sum over constraints k of w_k * strength_k(h, r, t)

The weights belong to a relation and an open slot; `grammar/learn.py` learns them. The harmony is a log-probability up to a
constant: exp(harmony) over the sum of all candidates is the probability of a candidate if the query has one more answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.grammar.family import Array, Evidence, Family, Ids
from harmonium.grammar.further_answers import FurtherAnswers
from harmonium.model.exact_scores import Comparison, ExactScores, Scores
from harmonium.model.scoring import Scorer

ENTITY_SLOTS = (Slot.HEAD, Slot.TAIL)
OTHER_END = {Slot.HEAD: Slot.TAIL, Slot.TAIL: Slot.HEAD}
CELLS = 1 << 22  # of a block of queries by candidates
ROUNDING = 1e-12  # relative error of a float64 sum of strengths


@dataclass(frozen=True)
class Weights:
    """The weight of the vectors, then of each constraint of each family, by open slot and relation."""

    by_slot: Tensor  # (2, n_relations, 1 + constraints) float64: heads, then tails

    def of(self, slot: Slot, relation: int) -> Array:
        weights: Array = self.by_slot[ENTITY_SLOTS.index(slot), relation].numpy()
        return weights


@dataclass(frozen=True)
class Contribution:
    """What one constraint adds to the harmony of one candidate."""

    family: str
    evidence: Evidence
    weight: float

    @property
    def value(self) -> float:
        return self.weight * self.evidence.strength


@dataclass(frozen=True)
class Grammar(Scorer):
    """The weighted sum of a vector scorer and families of constraints. Relations are ranked by the vectors alone."""

    vectors: Scorer
    families: Sequence[Family]
    weights: Weights
    n_entities: int
    further: FurtherAnswers | None = None  # the candidate "no (further) answer"

    @property
    def works_by_relation(self) -> bool:
        return True

    def prepare(self) -> Grammar:
        return replace(self, vectors=self.vectors.prepare())

    def symbolic(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, n_entities) float64: the harmony without the vectors; or (n, c) of the candidates (c,) alone."""
        columns = None if candidates is None else candidates.cpu().numpy()
        given = queries[OTHER_END[slot]].cpu().numpy()
        relations = queries.relation.cpu().numpy()
        distinct = np.unique(relations).tolist()
        if len(distinct) == 1:
            return torch.from_numpy(self.symbolic_of(slot, distinct[0], given, candidates=columns))
        total = np.zeros((len(queries), self.n_entities if columns is None else len(columns)))
        for relation in distinct:
            rows = np.flatnonzero(relations == relation)
            total[rows] = self.symbolic_of(slot, relation, given[rows], candidates=columns)
        return torch.from_numpy(total)

    def symbolic_of(
        self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None, candidates: Ids | None = None
    ) -> Array:
        """(m, n_entities or c): the same for queries of one relation; blocks bound the memory.

        Facts may be hidden where all entities are candidates.
        """
        total = np.zeros((len(given), self.n_entities if candidates is None else len(candidates)))
        size = max(1, CELLS // self.n_entities)
        for start in range(0, len(given), size):
            rows = slice(start, start + size)
            for family, weights in self.weighted_families(slot, relation):
                if not weights.any():
                    continue
                if candidates is None:
                    strengths = family.strengths(slot, relation, given[rows], None if hidden is None else hidden[rows])
                else:
                    strengths = family.strengths_among(slot, relation, given[rows], candidates)
                for weight, strength in zip(weights, strengths, strict=True):
                    if weight:
                        total[rows] += weight * strength
        return total

    def vector_weights(self, slot: Slot, queries: Triples) -> Tensor:
        """(n,) float64."""
        by_relation = self.weights.by_slot[ENTITY_SLOTS.index(slot), :, 0].to(queries.relation.device)
        return by_relation[queries.relation]

    @property
    def device(self) -> torch.device:
        return self.vectors.device

    def n_candidates(self, slot: Slot) -> int:
        return self.vectors.n_candidates(slot)

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        vectors = self.vectors.score_slot(slot, queries, candidates)
        if slot is Slot.RELATION:
            return vectors
        weight = self.vector_weights(slot, queries).to(vectors.dtype)[:, None]
        symbolic = self.symbolic(slot, queries, candidates)
        return weight * vectors + symbolic.to(vectors.device, vectors.dtype)

    def score_blocks(self, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor]]:
        yield 0, self.score_slot(slot, queries)

    def exact_scores(self, slot: Slot, queries: Triples) -> ExactScores | None:
        exact = self.vectors.exact_scores(slot, queries)
        if slot is Slot.RELATION or exact is None:
            return exact
        symbolic = self.symbolic(slot, queries)
        return ExactHarmony(exact, self.vector_weights(slot, queries).cpu(), symbolic, queries[slot].cpu())

    def compare_blocks(self, slot: Slot, queries: Triples) -> Iterator[Comparison]:
        exact = self.exact_scores(slot, queries)
        if not isinstance(exact, ExactHarmony):
            yield from super().compare_blocks(slot, queries)
            return
        weight = exact.weight.to(torch.float32)[:, None]
        vectors = self.vectors.score_slot(slot, queries)
        scores = weight.to(vectors.device) * vectors + exact.symbolic.to(vectors.device, vectors.dtype)
        yield Comparison.within_error(0, scores, exact)

    def contributions(
        self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None
    ) -> list[Contribution]:
        """What every constraint of the families adds to the harmony of one candidate; zero contributions are left out.

        `hidden`: an answer whose fact is treated as absent, so that a known fact does not speak for itself.
        """
        numbers = range(len(self.families))
        return [part for n in numbers for part in self.contributions_of(n, slot, relation, given, answer, hidden)]

    def contributions_of(
        self, number: int, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None
    ) -> list[Contribution]:
        """The same for one family, by its number."""
        family, weights = list(self.weighted_families(slot, relation))[number]
        if not weights.any():
            return []
        of_constraint = dict(zip(family.constraints, weights.tolist(), strict=True))
        contributions = []
        for evidence in family.evidence(slot, relation, given, answer, hidden):
            weight = of_constraint.get(evidence.constraint, float(weights[0]))  # a path rule has that of all paths
            if weight * evidence.strength:
                contributions.append(Contribution(family.name, evidence, weight))
        return contributions

    def weighted_families(self, slot: Slot, relation: int) -> Iterator[tuple[Family, Array]]:
        """Each family with the weights of its constraints; all zero: it is idle here and costs no time."""
        weights, first = self.weights.of(slot, relation)[1:], 0
        for family in self.families:
            yield family, weights[first : first + len(family.constraints)]
            first += len(family.constraints)


@dataclass(frozen=True)
class ExactHarmony(ExactScores):
    """Harmonies in float64: exact scores of the vectors, weighted, and the sum of the constraints."""

    vectors: ExactScores
    weight: Tensor  # (n,)
    symbolic: Tensor  # (n, n_entities) float64
    truth: Tensor  # (n,)

    def of(self, row: Tensor, candidate: Tensor) -> Scores:
        return self._add(*self.vectors.of(row, candidate), row.cpu(), candidate.cpu())

    @cached_property
    def of_truth(self) -> Scores:
        return self._add(*self.vectors.of_truth, torch.arange(len(self.truth)), self.truth)

    @cached_property
    def error_of_faster_scores(self) -> Tensor:
        errors = self.vectors.error_of_faster_scores
        rounding = torch.finfo(torch.float32).eps * self._largest.to(errors.device)
        return 2 * (self.weight.abs().to(errors.device) * errors + 2 * rounding)

    def _add(self, scores: Tensor, errors: Tensor, row: Tensor, candidate: Tensor) -> Scores:
        device, weight = scores.device, self.weight[row]
        symbolic = self.symbolic[row, candidate]
        total = weight.to(device) * scores + symbolic.to(device)
        return total, 2 * weight.abs().to(device) * errors + ROUNDING * self._largest[row].to(device)

    @cached_property
    def _largest(self) -> Tensor:
        """(n,): the largest sum of constraints of each query: terms that cancel in one sum are about as large."""
        return self.symbolic.abs().amax(1)
