"""Neighbours: entities that share rare attributes with the known entity have this answer.

    strength = log(1 + 10 * sum over entities e with the answer of cosine(given, e)^2)

where an entity is the vector of its attributes, each weighted by its inverse document frequency. This is what a Jaccard
index of neighbours sees, with rare neighbours counting more.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.attributes import Attributes, dense
from harmonium.grammar.family import Array, Evidence, Family, Ids
from harmonium.grammar.known_facts import KnownFacts

SHARP = 2  # exponent of a cosine: near entities count more than many far ones
SCALE = 10.0
COMMON = 1000, 0.05  # attributes of more entities than this, and than this share of all, are left out
NAMED = 3  # entities in a sentence


class Neighbours(Family):
    name = "neighbours"
    column = "similar"
    title = "similar entities"
    meaning = "what entities that share rare facts have as an answer"
    constraints = ("similar entities",)

    @classmethod
    def over(cls, known: KnownFacts) -> Neighbours:
        return cls(known.attributes, known.graph.entities)

    def __init__(self, attributes: Attributes, entities: Vocabulary) -> None:
        self.attributes, self.entities = attributes, entities
        values, n = attributes.values, attributes.n_entities
        frequency = np.asarray(values.sum(0)).ravel()
        rarity = np.log(n / np.maximum(frequency, 1)) * (frequency <= max(COMMON[0], COMMON[1] * n))
        weighted = (values @ sp.diags(rarity)).tocsr()
        self.rarity = rarity
        self.norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
        self.unit = (sp.diags(1 / np.maximum(self.norms, 1e-12)) @ weighted).tocsr()
        self.transposed = self.unit.T.tocsr()

    def similarities(self, given: Ids) -> sp.csr_matrix:
        """(m, n_entities): cosines, without those of entities with themselves."""
        cosines = (self.unit[given] @ self.transposed).tocsr()
        row = np.repeat(np.arange(len(given)), np.diff(cosines.indptr))
        cosines.data[cosines.indices == given[row]] = 0.0
        return cosines

    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        cosines = self.similarities(given) if hidden is None else self._without(slot, relation, given, hidden)
        cosines.data **= SHARP
        votes = dense(cosines @ self.attributes.answers(slot, relation))
        return [np.log1p(SCALE * votes)]

    def strengths_among(self, slot: Slot, relation: int, given: Ids, candidates: Ids) -> list[Array]:
        answers = self.attributes.answers(slot, relation)
        having = np.flatnonzero(np.diff(answers.indptr))  # only their cosines count
        cosines = (self.unit[given] @ self.unit[having].T).tocsr()
        row = np.repeat(np.arange(len(given)), np.diff(cosines.indptr))
        cosines.data[having[cosines.indices] == given[row]] = 0.0
        cosines.data **= SHARP
        votes = dense(cosines @ answers[having][:, candidates])
        return [np.log1p(SCALE * votes)]

    def _without(self, slot: Slot, relation: int, given: Ids, hidden: Ids) -> sp.csr_matrix:
        """Cosines of the known entities without the attribute that the hidden fact gives them."""
        own = self.attributes.column_of(slot, relation, hidden)
        rows = self.unit[given].tolil(copy=True) if (own >= 0).any() else self.unit[given]
        if (own >= 0).any():
            has = np.flatnonzero(own >= 0)
            weight = np.asarray(self.unit[given[has], own[has]]).ravel()
            rows = self.unit[given] - sp.csr_matrix((weight, (has, own[has])), shape=rows.shape)
            length = np.sqrt(np.maximum(1 - np.bincount(has, weight**2, len(given)), 1e-12))
            rows = sp.diags(1 / length) @ rows
        cosines = (rows @ self.transposed).tocsr()
        row = np.repeat(np.arange(len(given)), np.diff(cosines.indptr))
        cosines.data[cosines.indices == given[row]] = 0.0
        return cosines

    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        queries, hiding = np.array([given]), None if hidden is None else np.array([hidden])
        alike = self.similarities(queries) if hiding is None else self._without(slot, relation, queries, hiding)
        cosines = alike.toarray().ravel()
        having = self.attributes.answers(slot, relation)[:, [answer]].toarray().ravel() * cosines
        best = [int(entity) for entity in (-having).argsort(kind="stable")[:NAMED] if having[entity] > 0]
        if not best:
            return []
        names = ", ".join(self.entities.name(entity) for entity in best)
        strength = float(self.strengths(slot, relation, queries, hiding)[0][0, answer])
        ends = [(entity, answer) if slot is Slot.TAIL else (answer, entity) for entity in best]
        facts = tuple((head, relation, tail) for head, tail in ends)
        n_having, name = int((having > 0).sum()), self.entities.name(given)
        like = f"{n_having:,} entities that share" if n_having != 1 else "an entity that shares"
        text = f"{like} facts with {name} {'have' if n_having != 1 else 'has'} it: {names}"
        if n_having > len(best):
            text = f"{like} facts with {name} have it, such as {names}"
        return [Evidence(self.constraints[0], text, strength, facts)]
