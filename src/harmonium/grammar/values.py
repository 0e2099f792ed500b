"""Paths with constants: entities with an attribute ("born in: Lyon") tend to have an answer ("nationality: French").

Two constraints sum up the confidences (confidence.py) of the attributes of an entity: the highest one, and the sum of the
logarithms of confidence / p(t) where that is above 0, by the root of the number of attributes.
"""

from __future__ import annotations

import numpy as np

from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.attributes import Attributes
from harmonium.grammar.confidence import Confidences
from harmonium.grammar.family import Array, Evidence, Family, Ids, columns_of, readable
from harmonium.grammar.known_facts import KnownFacts


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
        self.confidences = Confidences(attributes.matrix, attributes)

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
        own = None if hidden is None else self.attributes.column_of(slot, relation, hidden)
        for every in self.confidences.blocks(slot, relation, given, hidden, own, self._step(slot, relation)):
            block = every.among(columns)
            start, stop = (row * shape[1] for row in (block.first, block.first + len(block.n_traits)))
            cell = block.query * shape[1] + block.answer
            np.maximum.at(highest, start + cell, block.confidence)
            support = np.log(block.confidence / block.usual).clip(min=0)
            together[start:stop] += np.bincount(cell, support, stop - start)
            n_attributes[block.first : block.first + len(block.n_traits)] = block.n_traits
        scale = np.sqrt(np.maximum(1.0, n_attributes))[:, None]
        return [highest.reshape(shape), together.reshape(shape) / scale]

    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        hiding, own = None, -1
        if hidden is not None:
            hiding = np.array([hidden])
            own = int(self.attributes.column_of(slot, relation, hiding)[0])
        strengths = [float(s[0, answer]) for s in self.strengths(slot, relation, np.array([given]), hiding)]
        if not any(strengths):
            return []
        shares = self.confidences.shares(slot, relation, given, answer, hidden, own, self._step(slot, relation))
        best = shares[0]
        fact = self.attributes.fact_of(given, best.trait)
        having = "have this value" if slot is Slot.TAIL else "have this head"
        text = f"{best.count:,} of {best.of:,} entities with {self._name(best.trait)} {having}"
        together = f"{len(shares):,} attributes of {self.entities.name(given)} go with it"
        return [
            Evidence(self.constraints[0], text, strengths[0], () if fact is None else (fact,)),
            Evidence(self.constraints[1], together, strengths[1]),
        ]

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
