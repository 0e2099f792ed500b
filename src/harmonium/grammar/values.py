"""Paths with constants: entities with an attribute ("born in: Lyon") tend to have an answer ("nationality: French").

For every attribute a of the known entity and every candidate t, the confidence is the share of the entities with a that
have t, among those that have any answer, shrunk to how usual t is:

    confidence(a, t) = (n(a, t) + k p(t)) / (n(a) + k)

Two constraints sum up the attributes of an entity: the highest confidence, and the sum of the logarithms of
confidence / p(t) where that is above 0, by the root of the number of attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.attributes import CACHED_RELATIONS, Attributes
from harmonium.grammar.family import Array, Evidence, Family, Ids, columns_of, readable
from harmonium.grammar.known_facts import KnownFacts

PRIOR = 2.0  # k: entities that are assumed to have usual answers
MOST = 0.999  # confidence
JOINED = 1 << 22  # pairs of an attribute and an answer that are worked on at once


class Values(Family):
    name = "values"
    column = "values"
    title = "values in common"
    meaning = "what entities with the same facts have as an answer"
    constraints = ("best value", "values together")

    @classmethod
    def over(cls, known: KnownFacts) -> Values:
        return cls(known.attributes, known.graph.entities, known.graph.relations)

    def __init__(self, attributes: Attributes, entities: Vocabulary, relations: Vocabulary) -> None:
        self.attributes, self.entities, self.relations = attributes, entities, relations
        self._statistics = lru_cache(CACHED_RELATIONS)(self._count)

    def _count(self, slot: Slot, relation: int) -> tuple[sp.csr_matrix, Array, Array, Array]:
        """n(a, t); n(a); p(t); and how many answers each entity has."""
        answers = self.attributes.answers(slot, relation)
        n_answers = np.diff(answers.indptr).astype(np.float64)
        has_answer = (n_answers > 0).astype(np.float64)
        usual = np.asarray(answers.sum(0)).ravel() / max(1.0, has_answer.sum())
        together = (self.attributes.transposed @ answers).tocsr()
        return together, self.attributes.transposed @ has_answer, usual, n_answers

    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        return self._strengths(slot, relation, given, np.arange(self.attributes.n_entities), hidden)

    def strengths_among(self, slot: Slot, relation: int, given: Ids, candidates: Ids) -> list[Array]:
        return self._strengths(slot, relation, given, candidates)

    def _strengths(
        self, slot: Slot, relation: int, given: Ids, candidates: Ids, hidden: Ids | None = None
    ) -> list[Array]:
        shape, columns = (len(given), len(candidates)), columns_of(candidates, self.attributes.n_entities)
        highest, together = (np.zeros(len(given) * len(candidates)) for _ in self.constraints)
        n_attributes = np.zeros(len(given))
        for first, row, entity, confidence, usual in self._joined(slot, relation, given, hidden, n_attributes):
            column = columns[entity]
            asked = column >= 0
            row, column, confidence, usual = row[asked], column[asked], confidence[asked], usual[asked]
            start, stop = first * shape[1], (first + int(row.max(initial=-1)) + 1) * shape[1]  # the rows of this block
            cell = row * shape[1] + column
            np.maximum.at(highest, start + cell, confidence)
            support = np.log(confidence / usual).clip(min=0)
            together[start:stop] += np.bincount(cell, support, stop - start)
        scale = np.sqrt(np.maximum(1.0, n_attributes))[:, None]
        return [highest.reshape(shape), together.reshape(shape) / scale]

    def _joined(
        self, slot: Slot, relation: int, given: Ids, hidden: Ids | None, n_attributes: Array
    ) -> Iterator[tuple[int, Ids, Ids, Array, Array]]:
        """Blocks of (first query, query, candidate, confidence, p(candidate)), one entry per attribute of the query."""
        together, with_answer, usual, n_answers = self._statistics(slot, relation)
        matrix, sizes = self.attributes.matrix, np.diff(together.indptr)
        own = None if hidden is None else self.attributes.column_of(slot, relation, hidden)
        step = self._step(slot, relation)
        attributes = matrix[given]
        cost = np.add.reduceat(np.append(sizes[attributes.indices], 0), attributes.indptr[:-1])
        cost[np.diff(attributes.indptr) == 0] = 0
        start = 0
        while start < len(given):
            stop = start + max(1, int(np.searchsorted(np.cumsum(cost[start:]), JOINED)))
            block = attributes[start:stop]
            row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
            attribute = block.indices
            if own is not None:
                alone = n_answers[given[start:stop]] <= 1  # without the hidden fact these have no answer
                kept = (attribute != own[start + row]) & ~((attribute == step) & alone[row])
                row, attribute = row[kept], attribute[kept]
            n_attributes[start:stop] = np.bincount(row, minlength=block.shape[0])
            counts = together[attribute]
            repeats = np.diff(counts.indptr)
            query, column = np.repeat(row, repeats), counts.indices.astype(np.int64)
            count, total = counts.data.copy(), np.repeat(with_answer[attribute], repeats)
            share = usual[column]
            if hidden is not None:
                answer = hidden[start:stop]
                count[column == answer[query]] -= 1
                total = total - alone[query]
            confidence = np.minimum((count + PRIOR * share) / (total + PRIOR), MOST)
            yield start, query, column, confidence, np.maximum(share, 1e-9)
            start = stop

    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        together, with_answer, usual, n_answers = self._statistics(slot, relation)
        attributes, hiding, alone = self.attributes.matrix[[given]].indices, None, False
        if hidden is not None:  # as in `_joined`
            hiding = np.array([hidden])
            alone = n_answers[given] <= 1
            own = int(self.attributes.column_of(slot, relation, hiding)[0])
            attributes = attributes[(attributes != own) & ~((attributes == self._step(slot, relation)) & alone)]
        column = together[attributes][:, [answer]].toarray().ravel() - (hidden == answer)
        having = with_answer[attributes] - alone
        confidence = (column + PRIOR * usual[answer]) / (having + PRIOR)
        supporting = np.where(column > 0, confidence, 0)
        strengths = [float(s[0, answer]) for s in self.strengths(slot, relation, np.array([given]), hiding)]
        if not any(strengths):
            return []
        best = int(supporting.argmax())
        attribute = int(attributes[best])
        fact = self.attributes.fact_of(given, attribute)
        text = (
            f"{int(column[best]):,} of {int(having[best]):,} entities with {self._name(attribute)} "
            f"{'have this value' if slot is Slot.TAIL else 'have this head'}"
        )
        facts = () if fact is None else (fact,)
        first = Evidence(self.constraints[0], text, strengths[0], facts)
        n_supporting = int((supporting > 0).sum())
        text = f"{n_supporting:,} attributes of {self.entities.name(given)} go with it"
        return [first, Evidence(self.constraints[1], text, strengths[1])]

    def conviction(self, slot: Slot, relation: int, evidence: Evidence) -> float:
        return min(1.0, evidence.strength) if evidence.constraint == self.constraints[0] else 0.0

    def _step(self, slot: Slot, relation: int) -> int:
        """The attribute "has any answer"."""
        return len(self.attributes.codes) + relation + (0 if slot is Slot.TAIL else self.attributes.n_relations)

    def _name(self, column: int) -> str:
        step, value = self.attributes.meaning(column)
        relation = readable(self.relations.name(step % self.attributes.n_relations))
        if value is None:
            return f"any '{relation}'" if step < self.attributes.n_relations else f"any '{relation}' towards them"
        name = self.entities.name(value)
        return f"'{relation}: {name}'" if step < self.attributes.n_relations else f"'{name} - {relation}' towards them"
