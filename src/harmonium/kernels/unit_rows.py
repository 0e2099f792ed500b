"""Rows divided by their lengths, and the gradient."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from harmonium.kernels.triton_backend import has_triton

ROWS_PER_BLOCK = 2048  # on a CPU


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its length."""
    unit: Tensor = _UnitRows.apply(rows)  # type: ignore[no-untyped-call]
    return unit


class _UnitRows(torch.autograd.Function):
    """u = e / |e|, with the gradient (g - u (u.g)) / |e|. On a CPU by blocks, so that rows pass through the cache once."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        if _by_triton(rows):
            from harmonium.kernels import triton_rows

            unit, inverse_length = triton_rows.unit_rows(rows.contiguous())
        else:
            unit = torch.empty_like(rows)
            inverse_length = rows.new_empty(*rows.shape[:-1], 1)
            for block, unit_block, scale in _blocks(rows, unit, inverse_length):
                torch.linalg.vector_norm(block, dim=-1, keepdim=True, out=scale)
                scale.clamp_(min=1e-12).reciprocal_()
                torch.mul(block, scale, out=unit_block)
        ctx.save_for_backward(unit, inverse_length)
        return unit

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        unit, inverse_length = ctx.saved_tensors
        if _by_triton(g):
            from harmonium.kernels import triton_rows

            return triton_rows.unit_rows_gradient(g.contiguous(), unit, inverse_length)
        gradient = torch.empty_like(unit)
        for block, direction, scale, out in _blocks(g, unit, inverse_length, gradient):
            along = torch.linalg.vecdot(block, direction).unsqueeze(-1)
            torch.addcmul(block, direction, along, value=-1, out=out).mul_(scale)
        return gradient


def _by_triton(rows: Tensor) -> bool:
    return rows.is_cuda and rows.dim() == 2 and has_triton()


def _blocks(*tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Iterate over aligned blocks of rows of several tables: on a CPU as many as fit the cache, on a GPU all rows."""
    if tables[0].is_cuda or tables[0].dim() < 2 or len(tables[0]) <= ROWS_PER_BLOCK:
        return iter([tables])
    return zip(*(table.split(ROWS_PER_BLOCK) for table in tables), strict=True)
