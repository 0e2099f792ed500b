"""How often entities with a trait have an answer: "of 12 entities with 'born in: Lyon' 11 have 'nationality: French'".

For every trait a of the known entity and every candidate t, the confidence is the share of the entities with a that have t,
among those that have any answer, shrunk to how usual t is:

    confidence(a, t) = (n(a, t) + k p(t)) / (n(a) + k)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from harmonium.data.triples import Slot
from harmonium.grammar.attributes import CACHED_RELATIONS, Attributes
from harmonium.grammar.family import Array, Ids, columns_of

PRIOR = 2.0  # k: entities that are assumed to have usual answers
MOST = 0.999  # confidence
JOINED = 1 << 22  # pairs of a trait and an answer that are worked on at once


@dataclass(frozen=True)
class Block:
    """Pairs of a trait of a query and an answer that some entity with the trait has, for consecutive queries."""

    first: int  # the number of the first query
    n_traits: Ids  # (queries,)
    query: Ids  # (pairs,) from `first` on
    answer: Ids  # (pairs,)
    confidence: Array  # (pairs,)
    usual: Array  # (pairs,): p(t)

    def among(self, columns: Ids) -> Block:
        """The pairs with some answers, which are numbered by `columns` (n_entities,); -1 leaves an answer out."""
        answer = columns[self.answer]
        kept = answer >= 0
        return Block(self.first, self.n_traits, self.query[kept], answer[kept], self.confidence[kept], self.usual[kept])


@dataclass(frozen=True)
class Share:
    """How many entities with a trait have an answer, as far as a query may know."""

    trait: int
    count: int
    of: int  # entities with the trait that have any answer
    confidence: float


class Confidences:
    """Traits are the columns of a sparse matrix of zeros and ones, (n_entities, traits)."""

    def __init__(self, matrix: sp.csr_matrix, attributes: Attributes) -> None:
        self.matrix, self.transposed = matrix, matrix.T.tocsr()
        self.attributes = attributes
        self._statistics = lru_cache(CACHED_RELATIONS)(self._count)

    def _count(self, slot: Slot, relation: int) -> tuple[sp.csr_matrix, Array, Array, Array]:
        """n(a, t); n(a); p(t); and how many answers each entity has."""
        answers = self.attributes.answers(slot, relation)
        n_answers = np.diff(answers.indptr).astype(np.float64)
        has_answer = (n_answers > 0).astype(np.float64)
        usual = np.asarray(answers.sum(0)).ravel() / max(1.0, has_answer.sum())
        together = (self.transposed @ answers).tocsr()
        return together, self.transposed @ has_answer, usual, n_answers

    def blocks(
        self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None, own: Ids | None = None, step: int = -1
    ) -> Iterator[Block]:
        """The pairs of all queries, not too many at once.

        With hidden facts, the trait `own` (m,) of each query does not count, nor `step` where no other answer is known.
        """
        together, with_answer, usual, n_answers = self._statistics(slot, relation)
        traits, sizes = self.matrix[given], np.diff(together.indptr)
        cost = np.add.reduceat(np.append(sizes[traits.indices], 0), traits.indptr[:-1])
        cost[np.diff(traits.indptr) == 0] = 0
        start = 0
        while start < len(given):
            stop = start + max(1, int(np.searchsorted(np.cumsum(cost[start:]), JOINED)))
            block = traits[start:stop]
            row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
            trait = block.indices
            alone = np.zeros(block.shape[0], dtype=bool)
            if hidden is not None:
                alone = n_answers[given[start:stop]] <= 1  # without the hidden fact these have no answer
                kept = ~((trait == step) & alone[row])
                if own is not None:
                    kept &= trait != own[start + row]
                row, trait = row[kept], trait[kept]
            counts = together[trait]
            repeats = np.diff(counts.indptr)
            query, answer = np.repeat(row, repeats), counts.indices.astype(np.int64)
            count, total = counts.data.copy(), np.repeat(with_answer[trait], repeats)
            if hidden is not None:
                count[answer == hidden[start:stop][query]] -= 1
                total = total - alone[query]
                left = count > 0
                query, answer, count, total = query[left], answer[left], count[left], total[left]
            share = usual[answer]
            confidence = np.minimum((count + PRIOR * share) / (total + PRIOR), MOST)
            n_traits = np.bincount(row, minlength=block.shape[0]).astype(np.int64)
            yield Block(start, n_traits, query, answer, confidence, np.maximum(share, 1e-9))
            start = stop

    def highest(self, slot: Slot, relation: int, given: Ids, candidates: Ids, hidden: Ids | None = None) -> Array:
        """(m, candidates): the highest confidence of all traits in each candidate, 0 without any."""
        n, columns = len(candidates), columns_of(candidates, self.attributes.n_entities)
        highest = np.zeros(len(given) * n)
        for every in self.blocks(slot, relation, given, hidden):
            block = every.among(columns)
            np.maximum.at(highest, (block.first + block.query) * n + block.answer, block.confidence)
        return highest.reshape(len(given), n)

    def shares(
        self,
        slot: Slot,
        relation: int,
        given: int,
        answer: int,
        hidden: int | None = None,
        own: int = -1,
        step: int = -1,
    ) -> list[Share]:
        """The traits of an entity that speak for one candidate, the highest confidence first."""
        together, with_answer, usual, n_answers = self._statistics(slot, relation)
        traits, alone = self.matrix[[given]].indices, hidden is not None and n_answers[given] <= 1
        if hidden is not None:
            traits = traits[(traits != own) & ~((traits == step) & alone)]
        count = together[traits][:, [answer]].toarray().ravel() - (hidden == answer)
        total = with_answer[traits] - alone
        confidence = np.minimum((count + PRIOR * usual[answer]) / (total + PRIOR), MOST)
        order = [number for number in (-confidence).argsort(kind="stable") if count[number] > 0]
        return [Share(int(traits[k]), int(count[k]), int(total[k]), float(confidence[k])) for k in order]
