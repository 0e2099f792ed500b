"""Losses and regularisers: what training minimises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium.errors import HarmoniumError
from harmonium.graph import Groups, Slot, Triples
from harmonium.model import Snapshot

SIDES = (Slot.HEAD, Slot.TAIL)
Contrastive = Callable[[Tensor, float], Tensor]  # of scores as `contrast` gives them and the margin: a mean over rows


def contrast(snapshot: Snapshot, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
    """(2b, 1 + n): the score of each true triple, then those of its corruptions; heads first, then tails.

    These are ids (b, n), or (g, n) where b / g triples that follow each other share theirs.
    """
    if len(negatives[Slot.HEAD]) == len(batch):
        return torch.cat(list(snapshot.score_sampled(batch, beside_truth(batch, negatives)).values()))
    true = snapshot.score_sampled(batch, {slot: batch[slot][:, None] for slot in SIDES})
    others = {slot: snapshot.score_shared(slot, batch, negatives[slot]) for slot in SIDES}
    return torch.cat([torch.cat([true[slot], others[slot]], dim=1) for slot in SIDES])


def contrastive_loss(
    snapshot: Snapshot,
    batch: Triples,
    negatives: Mapping[Slot, Tensor],
    loss: Contrastive,
    margin: float,
    shift: Tensor | None = None,
) -> Tensor:
    """One of `CONTRASTIVE` of `contrast` less a shift (2b, 1 + n), without all of it at once where that can be."""

    def of(scores: Tensor, which: slice) -> Tensor:
        return loss(scores if shift is None else scores - shift[which], margin)

    if len(negatives[Slot.HEAD]) == len(batch):
        return snapshot.sampled_loss(batch, beside_truth(batch, negatives), of)
    return of(contrast(snapshot, batch, negatives), slice(None))


def beside_truth(batch: Triples, negatives: Mapping[Slot, Tensor]) -> dict[Slot, Tensor]:
    """(b, 1 + n) for each side: the true filler, then its corruptions."""
    return {slot: torch.cat([batch[slot][:, None], negatives[slot]], dim=1) for slot in SIDES}


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


CONTRASTIVE: dict[str, Contrastive] = {  # by what train.loss calls them; all take contrast(...)
    "sampled": sampled_softmax,
    "linear-margin": linear_margin,
    "logistic-margin": logistic_margin,
    "logistic": logistic,
}


def draw_negatives(n_entities: int, batch: int, negatives: int, generator: torch.Generator) -> dict[Slot, Tensor]:
    """Uniform corruptions, drawn anew for each triple and side; one may by chance be true."""
    shape = (batch, negatives)
    return {slot: torch.randint(n_entities, shape, generator=generator, device=generator.device) for slot in SIDES}


def groups(batch: int, shared: int) -> int:
    """Into how many groups with the same corruptions a batch falls: `shared` triples each, fewer where some would rest."""
    return batch // math.gcd(batch, shared)


class Sampler:
    """Who corrupts the triples of a batch: anyone. `shared` triples that follow each other get the same."""

    def __init__(self, train: Triples, n_entities: int, shared: int = 1) -> None:
        self.n_entities, self.shared = n_entities, shared

    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        """(g, count) entities for each side, b / g triples sharing a row; in a short batch fewer share."""
        return draw_negatives(self.n_entities, groups(len(batch), self.shared), count, generator)

    def shift(self, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor | None:
        """What to take from `contrast` (2b, 1 + n), so that its softmax has the same optimum whoever is drawn.

        That is log(q n_entities) where q is the chance of being drawn: of a true filler and corruptions, drawn by q,
        each is the true one with odds p / q (Jean et al. 2015). None where it is nothing.
        """
        return None


class DegreeSampler(Sampler):
    """Entities by (1 + degree)^0.75, degree = facts of train they stand in (the power of Mikolov et al. 2013)."""

    def __init__(self, train: Triples, n_entities: int, shared: int = 1) -> None:
        super().__init__(train, n_entities, shared)
        degree = torch.cat([train.head, train.tail]).bincount(minlength=n_entities)
        weight = (1 + degree.double()).pow(0.75)
        self.below = weight.cumsum(0) / weight.sum()
        self.log_weight = (weight / weight.mean()).log().float()

    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        shape = (groups(len(batch), self.shared), count)
        drawn = {slot: _uniform(shape, generator) for slot in SIDES}
        return {slot: torch.searchsorted(self.below[:-1], some, right=True) for slot, some in drawn.items()}

    def shift(self, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
        sides = [torch.cat([batch[slot][:, None], spread(negatives[slot], len(batch))], dim=1) for slot in SIDES]
        return self.log_weight[torch.cat(sides)]


class TypedSampler(Sampler):
    """Half of them entities seen in that slot of the triple's relation in train, each alike, the others anyone.

    `shift` takes each to be drawn from both by a coin, which with many corruptions comes to the same.
    """

    def __init__(self, train: Triples, n_entities: int, shared: int = 1) -> None:
        super().__init__(train, n_entities, shared)
        if shared > 1:
            raise HarmoniumError("train.sampler=typed draws for the relation of each triple; leave train.shared at 1")
        self.seen = {slot: Groups.build(train.relation, train[slot]) for slot in SIDES}
        self.cells = {  # relation and filler as one number, rising
            slot: groups.keys.repeat_interleave(groups.offsets.diff()) * n_entities + groups.values
            for slot, groups in self.seen.items()
        }

    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        found = super().draw(batch, count, generator)
        for slot, groups in self.seen.items():
            place = torch.searchsorted(groups.keys, batch.relation)
            start, end = groups.offsets[place], groups.offsets[place + 1]
            step = _uniform((len(batch), (count + 1) // 2), generator) * (end - start)[:, None]
            found[slot][:, : step.shape[1]] = groups.values[start[:, None] + step.long()]
        return found

    def shift(self, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
        sides = []
        for slot, groups in self.seen.items():
            ids = torch.cat([batch[slot][:, None], negatives[slot]], dim=1)
            keys, cells = batch.relation[:, None] * self.n_entities + ids, self.cells[slot]
            is_seen = cells[torch.searchsorted(cells, keys).clamp_(max=len(cells) - 1)] == keys
            alike = groups.offsets.diff()[torch.searchsorted(groups.keys, batch.relation)][:, None]
            count = negatives[slot].shape[1]
            typed = (count + 1) // 2 / count
            sides.append((1 - typed + typed * self.n_entities / alike * is_seen).log())
        return torch.cat(sides)


SAMPLERS = {"uniform": Sampler, "degree": DegreeSampler, "typed": TypedSampler}  # by what train.sampler calls them


def _uniform(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)


def spread(ids: Tensor, batch: int) -> Tensor:
    """(batch, n): the row of ids (g, n) of each triple, where batch / g triples that follow each other share one."""
    return ids.repeat_interleave(batch // len(ids), dim=0)


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
        entities = torch.cat([snapshot.vectors(ids) for ids in (batch.head, batch.tail)])
        types = torch.cat([batch.relation, batch.relation + snapshot.n_relations])
        return F.cross_entropy(F.linear(entities, self.weight, self.bias), types)


def n3(snapshot: Snapshot, batch: Triples) -> Tensor:
    """The nuclear 3-norm of the batch: mean over triples of |head|_3^3 + |relation|_3^3 + |tail|_3^3 (Lacroix 2018).

    With reciprocal relations each triple is also its reversed self, so its two relation vectors count half each.
    """
    cubes = lambda rows: snapshot.composition.magnitude(rows).pow(3).sum()  # noqa: E731
    relations = [batch.relation, batch.relation + snapshot.n_relations] if snapshot.reciprocal else [batch.relation]
    total = sum(cubes(snapshot.vectors(ids)) for ids in (batch.head, batch.tail))
    total = total + sum(cubes(snapshot.gather(ids, snapshot.relations)) for ids in relations) / len(relations)
    return total / len(batch)
