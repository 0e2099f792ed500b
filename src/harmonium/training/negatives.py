"""Negative sampling: which entities corrupt the triples of a batch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError

SIDES = (Slot.HEAD, Slot.TAIL)


def draw_negatives(n_entities: int, rows: int, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
    """(rows, count) uniform entities for each side; by chance some make a true triple."""
    shape = (rows, count)
    return {slot: torch.randint(n_entities, shape, generator=generator, device=generator.device) for slot in SIDES}


def count_groups(batch_size: int, shared: int) -> int:
    """Number of groups that share negatives: `shared` triples each, fewer where that does not divide the batch."""
    return batch_size // math.gcd(batch_size, shared)


def expand_groups(ids: Tensor, batch_size: int) -> Tensor:
    """(batch_size, n): the negatives (g, n) of each triple, where batch_size / g consecutive triples share a row."""
    return ids if len(ids) == batch_size else ids.repeat_interleave(batch_size // len(ids), dim=0)


def true_then_negatives(batch: Triples, negatives: Mapping[Slot, Tensor]) -> dict[Slot, Tensor]:
    """(b, 1 + n) for each side that has negatives: the true entity of each triple and its negatives."""
    return {
        slot: torch.cat([batch[slot][:, None], expand_groups(ids, len(batch))], 1) for slot, ids in negatives.items()
    }


class NegativeSampler(ABC):
    """Draws the negatives of a batch, the same for `shared` consecutive triples."""

    def __init__(self, train: Triples, n_entities: int, shared: int = 1) -> None:
        self.n_entities, self.shared = n_entities, shared

    @abstractmethod
    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        """(g, count) entities for each side, where b / g consecutive triples share a row."""

    def logq_correction(self, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor | None:
        """(2b, 1 + n): log(q n_entities), q the probability of drawing the true entity and each negative.

        Subtracted from the scores, it gives the sampled softmax the same optimum for every q (Jean et al. 2015).
        None for uniform sampling, where it is zero.
        """
        return None


class UniformSampler(NegativeSampler):
    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        return draw_negatives(self.n_entities, count_groups(len(batch), self.shared), count, generator)


class DegreeSampler(NegativeSampler):
    """q proportional to (1 + degree)^0.75, degree = number of training triples (the power of Mikolov et al. 2013)."""

    def __init__(self, train: Triples, n_entities: int, shared: int = 1) -> None:
        super().__init__(train, n_entities, shared)
        degree = torch.cat([train.head, train.tail]).bincount(minlength=n_entities)
        weight = (1 + degree.double()).pow(0.75)
        self.cumulative = weight.cumsum(0) / weight.sum()
        self.log_weight = (weight / weight.mean()).log().float()

    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        shape = (count_groups(len(batch), self.shared), count)
        uniform = {slot: _uniform(shape, generator) for slot in SIDES}
        return {slot: torch.searchsorted(self.cumulative[:-1], uniform[slot], right=True) for slot in SIDES}

    def logq_correction(self, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
        return self.log_weight[torch.cat(list(true_then_negatives(batch, negatives).values()))]


class TypedSampler(NegativeSampler):
    """Half of the negatives from the entities seen in that slot of the relation in train, half from all entities.

    The correction treats each negative as a draw from the even mixture of both.
    """

    def __init__(self, train: Triples, n_entities: int, shared: int = 1) -> None:
        super().__init__(train, n_entities, shared)
        if shared > 1:
            raise HarmoniumError("train.sampler=typed cannot share negatives; set train.negative_group_size=1")
        self.seen = {slot: CsrIndex.build(train.relation, train[slot]) for slot in SIDES}
        self.pairs = {  # sorted relation * n_entities + entity
            slot: index.keys.repeat_interleave(index.offsets.diff()) * n_entities + index.values
            for slot, index in self.seen.items()
        }

    def draw(self, batch: Triples, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
        negatives = draw_negatives(self.n_entities, len(batch), count, generator)
        for slot, index in self.seen.items():
            position = torch.searchsorted(index.keys, batch.relation)
            start, end = index.offsets[position], index.offsets[position + 1]
            offset = _uniform((len(batch), (count + 1) // 2), generator) * (end - start)[:, None]
            negatives[slot][:, : offset.shape[1]] = index.values[start[:, None] + offset.long()]
        return negatives

    def logq_correction(self, batch: Triples, negatives: Mapping[Slot, Tensor]) -> Tensor:
        sides, count = [], negatives[Slot.HEAD].shape[1]
        typed = (count + 1) // 2 / count
        for slot, ids in true_then_negatives(batch, negatives).items():
            index, pairs = self.seen[slot], self.pairs[slot]
            keys = batch.relation[:, None] * self.n_entities + ids
            is_seen = pairs[torch.searchsorted(pairs, keys).clamp_(max=len(pairs) - 1)] == keys
            n_seen = index.offsets.diff()[torch.searchsorted(index.keys, batch.relation)][:, None]
            sides.append((1 - typed + typed * self.n_entities / n_seen * is_seen).log())
        return torch.cat(sides)


SAMPLERS: dict[str, type[NegativeSampler]] = {  # by the values of train.sampler
    "uniform": UniformSampler,
    "degree": DegreeSampler,
    "typed": TypedSampler,
}


def _uniform(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
