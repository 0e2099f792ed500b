"""Semantic neighbourhoods: the triplets nearest to one, when one slot changes, by composed vector and by token.

The neighbourhood of Switzerland in (Switzerland, official language, French) is found among the triplets
(e, official language, French). Tokens differ by S times what composed vectors differ by, so the same entity has other
neighbours in each of its guises.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.evaluation import rank
from harmonium.graph import Answers, Graph, Slot, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph, Snapshot
from harmonium.rows import Tabular


@dataclass(frozen=True)
class Neighbour:
    """A triplet near the one asked about: who fills the slot in it, how far, whether it is a fact, and how it ranks."""

    id: str  # tells apart what has the same name
    name: str
    distance: float
    true: bool  # the triplet with this entity in the slot is a known fact
    rank: float  # the place of this entity among the answers for the slot, other facts left out


@dataclass(frozen=True)
class Neighbourhood(Tabular):
    """The nearest triplets by composed vector and, for a Gradient Graph, by token."""

    triple: tuple[str, str, str]
    slot: Slot
    composed: list[Neighbour]
    token: list[Neighbour]
    true: bool  # of the triple itself
    rank: float

    @property
    def columns(self) -> dict[str, list[Neighbour]]:
        """What to show side by side."""
        both = {"nearest composed": self.composed, "nearest token": self.token}
        return {name: found for name, found in both.items() if found}

    def records(self) -> list[dict[str, Any]]:
        return side_by_side(composed=self.composed, token=self.token)

    def to_json(self) -> dict[str, Any]:
        sides = {"composed": self.composed, "token": self.token}
        return {
            "triple": self.triple,
            "slot": self.slot.value,
            "true": self.true,
            "rank": self.rank,
            **{side: [vars(neighbour) for neighbour in found] for side, found in sides.items()},
        }


def side_by_side(**sides: list[Neighbour]) -> list[dict[str, Any]]:
    """Neighbours in several spaces as rows of one table."""
    return [
        {"space": space, "place": place, **vars(neighbour)}
        for space, found in sides.items()
        for place, neighbour in enumerate(found, start=1)
    ]


@dataclass(frozen=True)
class Guise:
    """An entity as one triple shows it: the entities that could stand in its place, and what is known of them."""

    model: GradientGraph
    graph: Graph
    triple: Triples  # one row
    slot: Slot = Slot.HEAD
    typed: bool = True  # only entities seen in that slot of the relation, in any split

    def __post_init__(self) -> None:
        if self.slot is Slot.RELATION:
            raise HarmoniumError("neighbourhoods are of entities: choose the slot head or tail")

    @cached_property
    def others(self) -> Tensor:
        """(n,): who may stand in the slot, the entity itself included."""
        if not self.typed:
            return torch.arange(self.graph.n_entities)
        seen = self.graph.fillers(self.slot).lookup(self.triple.relation)[1]
        return torch.cat([seen, self.triple[self.slot]]).unique()

    @cached_property
    def here(self) -> Tensor:
        """(n,) bool: which of the others is the entity itself."""
        return self.others == self.triple[self.slot]

    @cached_property
    def known(self) -> Answers:
        return self.graph.answers(self.slot)

    @cached_property
    def truth(self) -> Tensor:
        """(n,) bool: whether the triplet with each other entity is a fact."""
        return self.known.contain(self.triplets(self.others))

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.model.snapshot()

    @cached_property
    def composed(self) -> Tensor:
        """(n, dim): the triplets' vectors, as the question for this slot composes them."""
        return self.snapshot.slot_map(self.slot, self.triple).apply(self.snapshot.entities[self.others])

    @property
    def title(self) -> tuple[str, str, str]:
        return self.graph.spell(self.triple)[0]

    def triplets(self, others: Tensor) -> Triples:
        """(n,): the triple with each other entity in the slot."""
        columns = {s: others if s is self.slot else self.triple[s].repeat(len(others)) for s in Slot}
        return Triples(*columns.values())

    def ranks(self, others: Tensor) -> list[float]:
        """The filtered rank of each entity as an answer for the slot."""
        candidates = self.graph.fillers(self.slot) if self.typed else None
        return rank(self.snapshot, self.triplets(others), self.slot, self.known, candidates).values().tolist()

    def nearest(self, vectors: Tensor, centre: Tensor, count: int) -> list[Neighbour]:
        """The `count` others whose vectors (n, any) are nearest to a centre (any,), the entity itself left out."""
        distance = (vectors - centre).norm(dim=-1)
        distance[self.here] = torch.inf
        best = distance.topk(min(count, len(self.others) - 1), largest=False)
        if not len(best.indices):
            return []
        entities = self.others[best.indices]
        columns = (entities.tolist(), best.values.tolist(), self.truth[best.indices].tolist(), self.ranks(entities))
        names = self.graph.entities
        return [Neighbour(names.ids[entity], names.name(entity), *rest) for entity, *rest in zip(*columns, strict=True)]


@torch.no_grad()
def neighbours(
    model: GradientGraph, graph: Graph, triple: Triples, slot: Slot = Slot.HEAD, count: int = 5, typed: bool = True
) -> Neighbourhood:
    """The `count` nearest triplets to one triple when `slot` changes; `typed` keeps to entities seen in that slot."""
    guise = Guise(model, graph, triple, slot, typed)
    spaces = [guise.composed]
    if isinstance(model.form, Harmony):
        spaces.append(guise.composed @ model.form.token_map())
    found = [guise.nearest(vectors, vectors[guise.here], count) for vectors in spaces]
    itself = bool(guise.truth[guise.here]), guise.ranks(triple[slot])[0]
    return Neighbourhood(guise.title, slot, found[0], found[1] if len(found) > 1 else [], *itself)
