"""Entity tokens: what an entity's vector would have to be for its triplet to compose to the token.

With one slot open x = T e + o, so the token mu(x) pulls the entity's vector along (T'T + eps)^-1 T'(mu - x): least
squares through the slot map, regularised towards the entity's own vector, as T is ill-conditioned where a relation's
or an entity's coordinates (DistMult) or spectrum (HolE) are small. `residual` and `condition` tell how far to trust it;
who is near depends on eps, so it is shown with every result.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.neighbours import Guise, Neighbour, side_by_side
from harmonium.graph import Graph, Slot, Triples
from harmonium.model import GradientGraph
from harmonium.rows import Tabular

RIDGE = 1e-2  # eps, as a share of the largest eigenvalue of T'T: what is seen ten times less is held back


@dataclass(frozen=True)
class EntityTokens:
    """The token of the entity in one slot of each triple."""

    vectors: Tensor  # (n, entity_dim) float64
    residual: Tensor  # (n,): the share of mu - x that no entity vector so near can bring about
    condition: Tensor  # (n,): of T


@dataclass(frozen=True)
class EntityNeighbourhood(Tabular):
    """The entities nearest to one, and to its token in a triple."""

    triple: tuple[str, str, str]
    slot: Slot
    entity: list[Neighbour]
    token: list[Neighbour]
    residual: float
    condition: float
    ridge: float

    @property
    def columns(self) -> dict[str, list[Neighbour]]:
        return {"nearest to the entity": self.entity, "nearest to its token": self.token}

    def records(self) -> list[dict[str, Any]]:
        return side_by_side(entity=self.entity, token=self.token)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"slot": self.slot.value}


@torch.no_grad()
def entity_tokens(model: GradientGraph, triples: Triples, slot: Slot, ridge: float = RIDGE) -> EntityTokens:
    """Solve T e + o = mu(x) for e near each entity's own vector; an (n, entity_dim, dim) tensor is built."""
    harmony, snapshot = deepcopy(model.harmony).double(), model.snapshot()
    slot_map, own = snapshot.slot_map(slot, triples).double(), snapshot.entities[triples[slot]].double()
    composed = slot_map.apply(own)
    shift = (harmony.optimise(composed) - composed)[..., None]  # (n, dim, 1)
    transposed = slot_map.dense()  # T' (n, entity_dim, dim)
    gram = transposed @ transposed.mT
    values = torch.linalg.eigvalsh(gram).clamp(min=1e-300)  # (n, entity_dim), rising
    eps = torch.diag_embed((ridge * values[:, -1:]).expand_as(values))
    move = torch.linalg.solve(gram + eps, transposed @ shift)  # (n, entity_dim, 1)
    left = (transposed.mT @ move - shift).norm(dim=(1, 2)) / shift.norm(dim=(1, 2)).clamp(min=1e-300)
    return EntityTokens(own + move.squeeze(-1), left, (values[:, -1] / values[:, 0]).sqrt())


@torch.no_grad()
def entity_neighbours(
    model: GradientGraph,
    graph: Graph,
    triple: Triples,
    slot: Slot = Slot.HEAD,
    count: int = 5,
    typed: bool = True,
    ridge: float = RIDGE,
) -> EntityNeighbourhood:
    """The `count` entity vectors nearest to an entity's own and to its token in this triple."""
    guise = Guise(model, graph, triple, slot, typed)
    token = entity_tokens(model, triple, slot, ridge)
    vectors = guise.snapshot.entities[guise.others].double()
    found = [guise.nearest(vectors, centre, count) for centre in (vectors[guise.here], token.vectors)]
    return EntityNeighbourhood(guise.title, slot, *found, token.residual.item(), token.condition.item(), ridge)
