"""Numbers kept in 16 bits (bfloat16) and computed in 32.

A step of training is often smaller than the distance between two such numbers, and rounded to the nearest it would be
lost each time. Rounded at random, up as often as the value is near to it, numbers are right on average.
"""

from __future__ import annotations

import torch
from torch import Tensor


def computed_in(table: Tensor) -> torch.dtype:
    """In what the rows of a table, and what optimisers remember of them, are computed."""
    return torch.float32 if table.dtype == torch.bfloat16 else table.dtype


def round_at_random(values: Tensor, generator: torch.Generator) -> Tensor:
    """float32 to bfloat16, which is its upper half: the lower one decides the odds of the next number up."""
    noise = torch.randint(1 << 16, values.shape, generator=generator, dtype=torch.int32, device=values.device)
    rounded = noise.add_(values.view(torch.int32)).bitwise_and_(-1 << 16).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).bfloat16()


def add_to_rows(table: Tensor, rows: Tensor, change: Tensor, noise: torch.Generator | None = None) -> None:
    """table[rows] += change, rows (m,) distinct, change (m, dim); a table in 16 bits is rounded, at random with noise."""
    if table.dtype == change.dtype:
        table.index_add_(0, rows, change)
        return
    moved = table.index_select(0, rows).to(change.dtype).add_(change)
    table.index_copy_(0, rows, moved.to(table.dtype) if noise is None else round_at_random(moved, noise))
