"""Losses and regularisers: what training minimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium.graph import Slot, Triples
from harmonium.model import Snapshot

SIDES = (Slot.HEAD, Slot.TAIL)


def contrast(snapshot: Snapshot, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
    """(2b, 1 + n): the score of each true triple, then those of its corruptions (b, n); heads first, then tails."""
    ids = {slot: torch.cat([batch[slot][:, None], negatives[slot]], dim=1) for slot in SIDES}
    return torch.cat(list(snapshot.score_sampled(batch, ids).values()))


def sampled_softmax(scores: Tensor, margin: float) -> Tensor:
    """Log-softmax of the true triple against the corrupted ones (the paper). No margin."""
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64, device=scores.device))


def linear_margin(scores: Tensor, margin: float) -> Tensor:
    """max(0, margin - true + corrupted), each pair: margin ranking (Yang et al. 2015, margin 1), the paper's HolE*."""
    return (margin - scores[:, :1] + scores[:, 1:]).relu().mean()


def logistic_margin(scores: Tensor, margin: float) -> Tensor:
    """The same of the scores' sigmoids: the pairwise loss of HolE (Nickel et al. 2016, margin 0.2)."""
    return linear_margin(scores.sigmoid(), margin)


def logistic(scores: Tensor, margin: float) -> Tensor:
    """log(1 + exp(-y score)), y = 1 if true, -1 if corrupted (Nickel et al. 2016), each half the loss. No margin."""
    return (F.softplus(-scores[:, :1]).mean() + F.softplus(scores[:, 1:]).mean()) / 2


CONTRASTIVE: dict[str, Callable[[Tensor, float], Tensor]] = {  # by what train.loss calls them; all take contrast(...)
    "sampled": sampled_softmax,
    "linear-margin": linear_margin,
    "logistic-margin": logistic_margin,
    "logistic": logistic,
}


def draw_negatives(n_entities: int, batch: int, negatives: int, generator: torch.Generator) -> dict[Slot, Tensor]:
    """Uniform corruptions, drawn anew for each triple and side; one may by chance be true."""
    shape = (batch, negatives)
    return {slot: torch.randint(n_entities, shape, generator=generator, device=generator.device) for slot in SIDES}


def full_softmax(snapshot: Snapshot, batch: Triples) -> Tensor:
    """Log-softmax of the true filler against all entities, heads and tails."""
    losses = [F.cross_entropy(snapshot.score_slot(slot, batch), batch[slot]) for slot in SIDES]
    return torch.stack(losses).mean()


def relation_softmax(snapshot: Snapshot, batch: Triples) -> Tensor:
    """Log-softmax of the true relation against all relations (Chen et al. 2021).

    With reciprocal relations the reversed triple asks for its second vector among the second vectors.
    """
    asked = [(snapshot, batch)]
    if snapshot.reciprocal:
        second = replace(snapshot, relations=snapshot.relations[snapshot.n_relations :])
        asked.append((second, Triples(batch.tail, batch.relation, batch.head)))
    losses = [F.cross_entropy(model.score_slot(Slot.RELATION, some), some.relation) for model, some in asked]
    return torch.stack(losses).mean()


class TypeHead(nn.Module):
    """An auxiliary loss: an entity's vector tells its types. Trained with the model, and no part of it.

    The authors' code has one, a softmax over types that come with the data, from the token of a triple's head. Here
    the types of an entity are the slots of relations it stands in, and each training triple is a sample of one for its
    head and one for its tail, so that any graph will do, and plain models too.
    """

    def __init__(self, entity_dim: int, n_relations: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * n_relations, entity_dim))  # heads of relations, then their tails
        self.bias = nn.Parameter(torch.zeros(2 * n_relations))

    def forward(self, snapshot: Snapshot, batch: Triples) -> Tensor:
        """Log-softmax of the type that each triple shows, over heads and tails."""
        entities = torch.cat([snapshot.gather(ids, snapshot.entities) for ids in (batch.head, batch.tail)])
        types = torch.cat([batch.relation, batch.relation + snapshot.n_relations])
        return F.cross_entropy(F.linear(entities, self.weight, self.bias), types)


def n3(snapshot: Snapshot, batch: Triples) -> Tensor:
    """The nuclear 3-norm of the batch: mean over triples of |head|_3^3 + |relation|_3^3 + |tail|_3^3 (Lacroix 2018).

    With reciprocal relations each triple is also its reversed self, so its two relation vectors count half each.
    """
    cubes = lambda ids, table: snapshot.composition.magnitude(snapshot.gather(ids, table)).pow(3).sum()  # noqa: E731
    relations = [batch.relation, batch.relation + snapshot.n_relations] if snapshot.reciprocal else [batch.relation]
    total = sum(cubes(ids, snapshot.entities) for ids in (batch.head, batch.tail))
    total = total + sum(cubes(ids, snapshot.relations) for ids in relations) / len(relations)
    return total / len(batch)
