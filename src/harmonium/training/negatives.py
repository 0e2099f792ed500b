"""Negative sampling: which entities corrupt the triples of a batch."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples

SIDES = (Slot.HEAD, Slot.TAIL)


def draw_negatives(n_entities: int, rows: int, count: int, generator: torch.Generator) -> dict[Slot, Tensor]:
    """(rows, count) uniform entities for each side; some may by chance form a true triple."""
    shape = (rows, count)
    return {slot: torch.randint(n_entities, shape, generator=generator, device=generator.device) for slot in SIDES}


def count_groups(batch_size: int, shared: int) -> int:
    """Number of groups that share negatives: `shared` triples each, fewer if that does not divide the batch size."""
    return batch_size // math.gcd(batch_size, shared)


def expand_groups(ids: Tensor, batch_size: int) -> Tensor:
    """(batch_size, n): the negatives (g, n) of each triple, where batch_size / g consecutive triples share a row."""
    return ids if len(ids) == batch_size else ids.repeat_interleave(batch_size // len(ids), dim=0)


def true_then_negatives(batch: Triples, negatives: Mapping[Slot, Tensor]) -> dict[Slot, Tensor]:
    """(b, 1 + n) for each side that has negatives: the true entity of each triple and its negatives."""
    return {
        slot: torch.cat([batch[slot][:, None], expand_groups(ids, len(batch))], 1) for slot, ids in negatives.items()
    }
