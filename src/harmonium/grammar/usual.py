"""How usual an answer is in its slot, and how well an entity's other roles fit there."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from harmonium.data.entity_types import EntityTypes
from harmonium.data.triples import Slot
from harmonium.grammar.attributes import CACHED_RELATIONS, Attributes
from harmonium.grammar.family import Array, Evidence, Family, Ids
from harmonium.grammar.known_facts import KnownFacts

LIMIT = 7.0  # log-odds of roles beyond which no more is said


class Usual(Family):
    name = "usual"
    column = "usual"
    title = "how usual the answer is"
    meaning = (
        "how well its other facts fit that role, and a correction: other columns may favour usual answers too much"
    )
    constraints = ("usual value", "fills this slot", "fitting roles")

    @classmethod
    def over(cls, known: KnownFacts) -> Usual:
        return cls(known.attributes, known.types)

    def __init__(self, attributes: Attributes, types: EntityTypes) -> None:
        self.attributes, self.types = attributes, types
        self._slot = lru_cache(2 * CACHED_RELATIONS)(self._describe)

    def _describe(self, slot: Slot, relation: int) -> tuple[Array, Array]:
        """How many queries have each entity as an answer, and the log-odds of its roles."""
        frequency = np.asarray(self.attributes.answers(slot, relation).sum(0)).ravel()
        roles = self.types.of_slot(slot, relation, typed=False).log_odds.clamp(-LIMIT, LIMIT).numpy()
        return frequency, roles

    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        frequency, roles = self._slot(slot, relation)
        counts = np.repeat(frequency[None], len(given), axis=0)
        if hidden is not None:
            counts[np.arange(len(given)), hidden] -= np.asarray(
                self.attributes.answers(slot, relation)[given.copy(), hidden.copy()]
            ).ravel()
        return [np.log1p(counts), (counts > 0).astype(np.float64), np.repeat(roles[None], len(given), axis=0)]

    def strengths_among(self, slot: Slot, relation: int, given: Ids, candidates: Ids) -> list[Array]:
        frequency, roles = (column[candidates] for column in self._slot(slot, relation))
        columns = np.log1p(frequency), (frequency > 0).astype(np.float64), roles
        return [np.broadcast_to(column, (len(given), len(candidates))) for column in columns]

    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        frequency, roles = self._slot(slot, relation)
        n_answers = np.diff(self.attributes.answers(slot, relation).indptr)
        count, n_queries = int(frequency[answer]), int((n_answers > 0).sum())
        if hidden is not None and self.attributes.answers(slot, relation)[given, hidden]:
            count, n_queries = count - int(hidden == answer), n_queries - int(n_answers[given] == 1)
        text = f"{count:,} of {n_queries:,} have it" if count else "nothing has it so far"
        fit = "its other facts fit" if roles[answer] > 0 else "its other facts do not fit"
        return [
            Evidence(self.constraints[0], text, float(np.log1p(count))),
            Evidence(self.constraints[1], text, float(count > 0)),
            Evidence(self.constraints[2], fit, float(roles[answer])),
        ]
