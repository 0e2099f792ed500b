"""Passes over the rows of a table by Triton kernels: unit rows and their gradient, scaled columns."""

from typing import Any

import torch
import triton
from torch import Tensor

from harmonium.kernels.triton_kernels import scaled_columns_kernel, unit_rows_gradient_kernel, unit_rows_kernel


def scaled_columns(matrix: Tensor, scales: Tensor) -> Tensor:
    """(g, m, n): matrix (m, n) with column j times scales[g, j], for each row of scales (g, n)."""
    out = scales.new_empty(len(scales), *matrix.shape)
    if len(scales):
        scaled_columns_kernel[(triton.cdiv(matrix.numel(), 4096), len(scales))](
            matrix.contiguous(), scales.contiguous(), out, matrix.numel(), matrix.shape[1], SIZE=4096
        )
    return out


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, d) divided by their lengths, and one over the lengths (n, 1)."""
    unit, inverse_length = torch.empty_like(rows), rows.new_empty(len(rows), 1)
    _by_rows(unit_rows_kernel, rows, unit, inverse_length)
    return unit, inverse_length


def unit_rows_gradient(g: Tensor, unit: Tensor, inverse_length: Tensor) -> Tensor:
    """(g - u (u.g)) / |e| for g (n, d)."""
    out = torch.empty_like(unit)
    _by_rows(unit_rows_gradient_kernel, g, unit, inverse_length, out)
    return out


def _by_rows(kernel: Any, *tables: Tensor) -> None:
    """One pass over the rows of contiguous tables, several rows to a program."""
    n, d = tables[0].shape
    size = triton.next_power_of_2(d)
    rows = max(1, 4096 // size)
    if n:
        kernel[(triton.cdiv(n, rows),)](*tables, n, d, ROWS=rows, SIZE=size, num_warps=8 if size > 4096 else 4)
