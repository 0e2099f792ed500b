"""Entity tokens: the entity vector that would make its triplet compose to the token.

With one slot open x = T e + o, so the token mu(x) shifts the entity's vector by (T'T + eps)^-1 T'(mu - x): least squares
through the slot map, regularised towards the entity's own vector, as T is ill-conditioned where a relation's or an entity's
coordinates (DistMult) or spectrum (HolE) are small. `residual` and `condition` say how far to trust it; the neighbours
depend on eps, which is reported with every result.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.model.gradient_graph import GradientGraph

RIDGE = 1e-2  # eps, as a share of the largest eigenvalue of T'T


@dataclass(frozen=True)
class EntityTokens:
    """The token of the entity in one slot of each triple."""

    vectors: Tensor  # (n, entity_dim) float64
    residual: Tensor  # (n,): the share of mu - x that the entity token leaves uncomposed
    condition: Tensor  # (n,): condition number of T


@torch.no_grad()
def entity_tokens(model: GradientGraph, triples: Triples, slot: Slot, ridge: float = RIDGE) -> EntityTokens:
    """Solve T e + o = mu(x) for e near each entity's vector; builds an (n, entity_dim, dim) tensor."""
    harmony, scorer = deepcopy(model.harmony).double(), model.scorer()
    slot_map, entity = scorer.slot_map(slot, triples).double(), scorer.entities[triples[slot]].double()
    composed = slot_map.apply(entity)
    shift = (harmony.optimise(composed) - composed)[..., None]  # (n, dim, 1)
    transposed = slot_map.dense()  # T' (n, entity_dim, dim)
    gram = transposed @ transposed.mT
    eigenvalues = torch.linalg.eigvalsh(gram).clamp(min=1e-300)  # (n, entity_dim), ascending
    eps = torch.diag_embed((ridge * eigenvalues[:, -1:]).expand_as(eigenvalues))
    entity_shift = torch.linalg.solve(gram + eps, transposed @ shift)  # (n, entity_dim, 1)
    residual = (transposed.mT @ entity_shift - shift).squeeze(-1)
    length = torch.linalg.vector_norm(shift.squeeze(-1), dim=-1).clamp(min=1e-300)
    return EntityTokens(
        entity + entity_shift.squeeze(-1),
        torch.linalg.vector_norm(residual, dim=-1) / length,
        (eigenvalues[:, -1] / eigenvalues[:, 0]).sqrt(),
    )
