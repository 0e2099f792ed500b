"""Facts that do not go together with what is known of their entities: cities of West Bengal are in India, Rajshahi is not.

All heads of a tail usually agree in some other relation of which each has one value: of the cities of a state, the country.
Where a relation `r` has such a companion `s` (two heads of one tail have the same value in at least AGREEMENT of the cases),
a candidate (h, r, t) is in conflict if h has another value of `s` than all known heads of t. The same holds for the tails of
one head. How improbable that makes a fact is learned with the other features of candidates (calibration).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.triples import Slot, Triples

AGREEMENT = 0.9  # of two facts that share an end, in a companion relation
MIN_FACTS = 20  # by which agreement is measured
KEPT = 128  # relations and slots whose companions are kept
OTHER = {Slot.HEAD: Slot.TAIL, Slot.TAIL: Slot.HEAD}
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Companion:
    """A relation in which facts that share an end agree: (group, value) pairs of those ends and how often each occurs."""

    relation: int
    agreement: float
    groups: Ids  # ascending: entities that are shared
    totals: Ids  # facts of each group whose other end has a value
    pairs: Ids  # ascending: group * n_entities + value
    counts: Ids  # facts of each pair


@dataclass(frozen=True)
class Conflict:
    """Why a fact does not go together with known ones."""

    entity: int  # whose value is another one
    group: int  # the other end of the fact
    relation: int  # in which those that share this end agree
    value: int  # of the entity
    usual: int  # of the others


class Conflicts:
    """Companions of the relations of some facts, found when they are first asked for."""

    def __init__(self, facts: Triples, traits: RelationTraits, n_entities: int) -> None:
        facts = facts.positive()
        self.n_entities = n_entities
        self.facts = {slot: facts[slot].numpy() for slot in Slot}
        self.one_answer = traits.functional.nonzero()[:, 0].tolist()
        self.companions = lru_cache(KEPT)(self._find)

    def strengths(self, relation: int, facts: Triples, is_known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(n,): 0 without a conflict; otherwise the nearer to 1, the more known facts agree on another value.

        Facts that are known (n,) do not count for themselves.
        """
        best = np.zeros(len(facts))
        for slot in OTHER:
            for companion in self.companions(slot, relation):
                np.maximum(best, self._strengths(companion, slot, facts, is_known), out=best)
        return best

    def told(self, relation: int, fact: Triples, is_known: bool) -> Conflict | None:
        """The strongest conflict of one fact; None without any."""
        strongest: tuple[float, Slot, Companion] | None = None
        for slot in OTHER:
            for companion in self.companions(slot, relation):
                strength = float(self._strengths(companion, slot, fact, np.array([is_known]))[0])
                if strength > 0 and (strongest is None or strength > strongest[0]):
                    strongest = strength, slot, companion
        if strongest is None:
            return None
        _, slot, companion = strongest
        entity, group = int(fact[slot]), int(fact[OTHER[slot]])
        value, first = self._values(companion.relation)[entity], group * self.n_entities
        of_group = slice(*np.searchsorted(companion.pairs, [first, first + self.n_entities]))
        usual = companion.pairs[of_group][companion.counts[of_group].argmax()] - first
        return Conflict(entity, group, companion.relation, int(value), int(usual))

    def _strengths(
        self, companion: Companion, slot: Slot, facts: Triples, is_known: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        value = self._values(companion.relation)[facts[slot].numpy()]
        group = facts[OTHER[slot]].numpy()
        place = np.searchsorted(companion.groups, group).clip(max=len(companion.groups) - 1)
        total = np.maximum(np.where(companion.groups[place] == group, companion.totals[place], 0) - is_known, 0)
        pair = group * self.n_entities + value
        place = np.searchsorted(companion.pairs, pair).clip(max=len(companion.pairs) - 1)
        agrees = np.where(companion.pairs[place] == pair, companion.counts[place], 0) > is_known
        return np.where((value >= 0) & (total > 0) & ~agrees, companion.agreement * total / (total + 1), 0.0)

    def _values(self, relation: int) -> Ids:
        """(n_entities,): the value of each entity in a relation with one answer; -1: none."""
        rows = self.facts[Slot.RELATION] == relation
        values = np.full(self.n_entities, -1)
        values[self.facts[Slot.HEAD][rows]] = self.facts[Slot.TAIL][rows]
        return values

    def _find(self, slot: Slot, relation: int) -> list[Companion]:
        """The relations in which the entities in `slot` agree, where they share what is in the other one."""
        rows = self.facts[Slot.RELATION] == relation
        entity, shared = self.facts[slot][rows], self.facts[OTHER[slot]][rows]
        found = []
        for other in self.one_answer:
            value = self._values(other)[entity]
            has = value >= 0
            if other == relation or int(has.sum()) < MIN_FACTS:
                continue
            groups, group, totals = np.unique(shared[has], return_inverse=True, return_counts=True)
            pairs, pair, counts = np.unique(
                shared[has] * self.n_entities + value[has], return_inverse=True, return_counts=True
            )
            several = totals[group] > 1
            if int(several.sum()) < MIN_FACTS or len(np.unique(value[has])) < 2:
                continue
            agreement = float(((counts[pair] - 1) / np.maximum(totals[group] - 1, 1))[several].mean())
            if agreement >= AGREEMENT:
                found.append(Companion(other, agreement, groups, totals, pairs, counts))
        return found
