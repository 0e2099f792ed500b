"""Tables kept in bfloat16 and computed in float32.

A training step is often smaller than the gap between two bfloat16 numbers, and rounding to nearest would lose it each
time. Stochastic rounding rounds up with a probability proportional to the distance from the lower number, so it is unbiased.
"""

import torch
from torch import Tensor


def compute_dtype(table: Tensor) -> torch.dtype:
    """The dtype of computations with rows of a table, and of their optimiser state: float32 for bfloat16."""
    return torch.float32 if table.dtype == torch.bfloat16 else table.dtype


def stochastic_round(values: Tensor, generator: torch.Generator) -> Tensor:
    """float32 to bfloat16, which is its upper half: a random number is added to the lower half, which is then truncated."""
    noise = torch.randint(1 << 16, values.shape, generator=generator, dtype=torch.int32, device=values.device)
    rounded = noise.add_(values.view(torch.int32)).bitwise_and_(-1 << 16).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).bfloat16()


def add_to_rows(table: Tensor, rows: Tensor, change: Tensor, noise: torch.Generator | None = None) -> None:
    """table[rows] += change, rows (m,) distinct, change (m, dim); a bfloat16 table is rounded stochastically by `noise`."""
    if table.dtype == change.dtype:
        table.index_add_(0, rows, change)
        return
    values = table.index_select(0, rows).to(change.dtype).add_(change)
    table.index_copy_(0, rows, values.to(table.dtype) if noise is None else stochastic_round(values, noise))
