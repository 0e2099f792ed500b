"""Semantic neighbourhoods: the triplets nearest to one, when one slot changes, by composed vector and by token.

The neighbourhood of Switzerland in (Switzerland, official language, French) is found among the triplets
(e, official language, French). Tokens differ by S times what composed vectors differ by, so the same entity has other
neighbours in each of its guises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Slot, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph


@dataclass(frozen=True)
class Neighbour:
    """A triplet near the one asked about: who fills the slot in it, how far, and whether it is a known fact."""

    name: str
    distance: float
    true: bool


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest triplets by composed vector and, for a Gradient Graph, by token."""

    triple: tuple[str, str, str]
    slot: Slot
    composed: list[Neighbour]
    token: list[Neighbour]

    def to_json(self) -> dict[str, Any]:
        sides = {"composed": self.composed, "token": self.token}
        return {
            "triple": self.triple,
            "slot": self.slot.value,
            **{side: [vars(neighbour) for neighbour in found] for side, found in sides.items()},
        }


@torch.no_grad()
def neighbours(
    model: GradientGraph, graph: Graph, triple: Triples, slot: Slot = Slot.HEAD, count: int = 5, typed: bool = True
) -> Neighbourhood:
    """The `count` nearest triplets to one triple when `slot` changes; `typed` keeps to entities seen in that slot."""
    if slot is Slot.RELATION:
        raise HarmoniumError("neighbourhoods are of entities: choose the slot head or tail")
    here, others = triple[slot], candidates(graph, triple, slot, typed)
    triplets = with_others(triple, slot, others)
    shift = model.compose(triplets) - model.compose(triple)  # (n, dim)
    truth = graph.answers(slot).contain(triplets)

    def nearest(difference: Tensor) -> list[Neighbour]:
        distance = difference.norm(dim=-1)
        distance[others == here] = torch.inf
        best = distance.topk(min(count, len(others) - 1), largest=False)
        return [
            Neighbour(graph.entities.name(int(others[i])), float(d), bool(truth[i]))
            for i, d in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    token = nearest(shift @ model.form.token_map()) if isinstance(model.form, Harmony) else []
    return Neighbourhood(graph.spell(triple)[0], slot, nearest(shift), token)


def candidates(graph: Graph, triple: Triples, slot: Slot, typed: bool = True) -> Tensor:
    """(n,): who may stand in the slot: the entities seen there with this relation, or all; the entity itself included."""
    if not typed:
        return torch.arange(graph.n_entities)
    return torch.cat([graph.fillers(slot).lookup(triple.relation)[1], triple[slot]]).unique()


def with_others(triple: Triples, slot: Slot, others: Tensor) -> Triples:
    """(n,): the triple with each other entity in the slot."""
    columns = {s: others if s is slot else triple[s].repeat(len(others)) for s in Slot}
    return Triples(columns[Slot.HEAD], columns[Slot.RELATION], columns[Slot.TAIL])
