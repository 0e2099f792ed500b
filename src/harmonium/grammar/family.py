"""Families of constraints: what every kind of evidence for a fact has to say.

The harmony of a candidate is a weighted sum of how strongly constraints support it, as in Harmonic Grammar. A family
provides constraints of one kind. It answers three questions for a block of queries of one relation: which candidates does
each constraint support and how strongly (`strengths`), what does it say in words about one candidate and on which facts
does that rest (`evidence`), and what of it has to be stored beside the facts (`to_tensors`). How much a constraint counts
is learned for all families together (`grammar/learn.py`).

A new family is one file: subclass `Family`, declare its words, write `over`, `strengths` and `evidence`, and add it to
`FAMILIES` in grammar/parameters.py; CONTRIBUTING.md has one as an example. `tests/grammar/` checks the laws that every
family obeys.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from harmonium.data.triples import Slot

if TYPE_CHECKING:
    from harmonium.grammar.known_facts import KnownFacts

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

UNCOUNTED = 0.5  # conviction of evidence that has no share of cases in which it is right


@dataclass(frozen=True)
class Evidence:
    """What one constraint says about one candidate, in words, and the facts on which that rests."""

    constraint: str  # its title, the same for all candidates
    text: str  # a sentence for people, such as "11 of 12 entities with 'born in: Lyon' have this value"
    strength: float  # before its weight
    facts: tuple[tuple[int, int, int], ...] = ()  # (head, relation, tail) ids of facts of the graph
    body: tuple[int, ...] = ()  # of a path rule


def readable(relation: str) -> str:
    """The name of a relation, or the last part of a path: release region for /film/film/release_region."""
    is_path = relation.startswith("/") or "://" in relation
    return (re.split(r"[/#]", relation.rstrip("/#"))[-1].replace("_", " ") or relation) if is_path else relation


def columns_of(candidates: Ids, n_entities: int) -> Ids:
    """(n_entities,): the column of each entity among the candidates; -1: none."""
    columns = np.full(n_entities, -1)
    columns[candidates] = np.arange(len(candidates))
    return columns


class Family(ABC):
    """Constraints of one kind over the facts of one graph."""

    name: ClassVar[str]  # as `evaluate --without` takes it
    column: ClassVar[str]  # in a tableau: one short word
    title: ClassVar[str]  # in a sentence: "decided by values in common"
    meaning: ClassVar[str]  # what it is, for people who have never heard of it
    constraints: ClassVar[tuple[str, ...]]  # a title for each

    @classmethod
    @abstractmethod
    def over(cls, known: KnownFacts) -> Self:
        """The family over the facts of a graph."""

    @abstractmethod
    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        """How strongly each constraint supports each entity in the open slot of the queries: (m, n_entities) for each.

        `given` (m,) are the known entities of queries of one relation. With `hidden` (m,) the fact made of each query and
        that answer is treated as absent, so that a known fact can be judged without itself. Strengths of a query do
        not depend on the other queries of the block.
        """

    def strengths_among(self, slot: Slot, relation: int, given: Ids, candidates: Ids) -> list[Array]:
        """The columns of some distinct candidates (c,) of `strengths`: (m, c) for each constraint, perhaps views of one row.

        Override it where these cost less than all columns: listing missing facts asks for a tenth of all entities.
        """
        return [strengths[:, candidates] for strengths in self.strengths(slot, relation, given)]

    @abstractmethod
    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        """What the constraints say about one candidate, one `Evidence` for each that supports it, in their order.

        `hidden`: an answer whose fact is treated as absent, as in `strengths`: a known fact is no evidence for itself.
        """

    def conviction(self, slot: Slot, relation: int, evidence: Evidence) -> float:
        """How often what the evidence says is right, 0 to 1; may count over the whole graph, which `evidence` does not."""
        return UNCOUNTED

    def told(self, slot: Slot, relation: int, evidence: Evidence) -> str:
        """The text of evidence as a reason by itself, with counts where there are any."""
        return evidence.text
