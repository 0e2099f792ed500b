"""Losses and regularisers: what training minimises."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.graph import Slot, Triples
from harmonium.model import GradientGraph

SIDES = (Slot.HEAD, Slot.TAIL)


def sampled_softmax(model: GradientGraph, batch: Triples, negatives: int, generator: torch.Generator) -> Tensor:
    """Log-softmax of the true triple against `negatives` corrupted ones, heads and tails (the paper's loss).

    Negatives are uniform, drawn anew for each triple and side, and may by chance be true.
    """
    total = batch.head.new_zeros((), dtype=model.entity.dtype)
    for slot in SIDES:
        shape = (len(batch), negatives)
        drawn = torch.randint(model.n_entities, shape, generator=generator, device=generator.device)
        ids = torch.cat([batch[slot][:, None], drawn], dim=1)  # (b, 1 + negatives): the truth comes first
        scores = model.compare_sampled(slot, batch, ids)
        total = total + F.cross_entropy(scores, torch.zeros_like(batch.head))
    return total / len(SIDES)


def full_softmax(model: GradientGraph, batch: Triples) -> Tensor:
    """Log-softmax of the true filler against all entities, heads and tails."""
    losses = [F.cross_entropy(model.compare_slot(slot, batch), batch[slot]) for slot in SIDES]
    return torch.stack(losses).mean()


def n3(model: GradientGraph, batch: Triples) -> Tensor:
    """The nuclear 3-norm of the batch: mean over triples of |head|_3^3 + |relation|_3^3 + |tail|_3^3 (Lacroix 2018).

    With reciprocal relations each triple is also its reversed self, so both relation vectors count.
    """
    relations = [batch.relation, batch.relation + model.n_relations] if model.reciprocal else [batch.relation]
    vectors = [model.entities(batch.head), model.entities(batch.tail)]
    vectors += [model.relations(ids) for ids in relations]
    return sum(model.composition.magnitude(v).pow(3).sum() for v in vectors) / len(batch)
