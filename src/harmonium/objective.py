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
    ids = {slot: torch.cat([batch[slot][:, None], negatives[slot]], dim=1) for slot in SIDES}  # the truth comes first
    scores = torch.cat(list(snapshot.score_sampled(batch, ids).values()))
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64, device=scores.device))


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
    cubes = lambda ids, table: snapshot.composition.magnitude(snapshot.gather(ids, table)).pow(3).sum()  # noqa: E731
    relations = [batch.relation, batch.relation + snapshot.n_relations] if snapshot.reciprocal else [batch.relation]
    total = sum(cubes(ids, snapshot.entities) for ids in (batch.head, batch.tail))
    total = total + sum(cubes(ids, snapshot.relations) for ids in relations) / len(relations)
    return total / len(batch)
