"""Losses and regularisers: what training minimises."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.graph import Slot, Triples
from harmonium.model import Snapshot

SIDES = (Slot.HEAD, Slot.TAIL)


def sampled_softmax(snapshot: Snapshot, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
    """Log-softmax of the true triple against corrupted ones, heads and tails (the paper's loss). Negatives (b, n)."""
    losses = []
    for slot in SIDES:
        ids = torch.cat([batch[slot][:, None], negatives[slot]], dim=1)  # the truth comes first
        losses.append(F.cross_entropy(snapshot.score_sampled(slot, batch, ids), torch.zeros_like(batch.head)))
    return torch.stack(losses).mean()


def draw_negatives(n_entities: int, batch: int, negatives: int, generator: torch.Generator) -> dict[Slot, Tensor]:
    """Uniform corruptions, drawn anew for each triple and side; one may by chance be true."""
    shape = (batch, negatives)
    return {slot: torch.randint(n_entities, shape, generator=generator, device=generator.device) for slot in SIDES}


def full_softmax(snapshot: Snapshot, batch: Triples) -> Tensor:
    """Log-softmax of the true filler against all entities, heads and tails."""
    losses = [F.cross_entropy(snapshot.score_slot(slot, batch), batch[slot]) for slot in SIDES]
    return torch.stack(losses).mean()


def n3(snapshot: Snapshot, batch: Triples) -> Tensor:
    """The nuclear 3-norm of the batch: mean over triples of |head|_3^3 + |relation|_3^3 + |tail|_3^3 (Lacroix 2018).

    With reciprocal relations each triple is also its reversed self, so its two relation vectors count half each.
    """
    cubes = lambda ids, table: snapshot.composition.magnitude(F.embedding(ids, table)).pow(3).sum()  # noqa: E731
    relations = [batch.relation, batch.relation + snapshot.n_relations] if snapshot.reciprocal else [batch.relation]
    total = sum(cubes(ids, snapshot.entities) for ids in (batch.head, batch.tail))
    total = total + sum(cubes(ids, snapshot.relations) for ids in relations) / len(relations)
    return total / len(batch)
