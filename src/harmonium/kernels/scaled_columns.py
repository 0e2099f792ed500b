"""Several copies of a matrix with scaled columns, and the gradients; one pass each on a GPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from harmonium.kernels.triton_backend import has_triton


def scaled_columns(matrix: Tensor, scales: Tensor) -> Tensor:
    """(g, m, n): matrix (m, n) with column j times scales[g, j], for each row of scales (g, n)."""
    if matrix.is_cuda and matrix.dtype == torch.float32 and has_triton():
        scaled: Tensor = _ScaledColumns.apply(matrix, scales)  # type: ignore[no-untyped-call]
        return scaled
    return matrix * scales[:, None]


class _ScaledColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, scales: Tensor) -> Tensor:
        from harmonium.kernels import triton_rows

        ctx.save_for_backward(matrix, scales)
        return triton_rows.scaled_columns(matrix, scales)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        from harmonium.kernels import triton_rows

        return triton_rows.scaled_columns_gradients(g, *ctx.saved_tensors)
