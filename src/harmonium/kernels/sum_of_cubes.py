"""The sum of cubed magnitudes, |v|_3^3, and its gradient; one pass each on a GPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from harmonium.kernels.triton_backend import has_triton


def sum_of_cubes(vectors: Tensor, parts: int = 1) -> Tensor:
    """(): over vectors (n, d) whose coordinates have `parts` numbers each: with 2, v[i] and v[i + d / 2]."""
    total: Tensor = _SumOfCubes.apply(vectors, parts)  # type: ignore[no-untyped-call]
    return total


class _SumOfCubes(torch.autograd.Function):
    """m^3 with m = sqrt(sum of v_i^2) over the parts has the gradient 3 m v."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, parts: int) -> Tensor:
        ctx.save_for_backward(vectors)
        ctx.parts = parts
        if _by_triton(vectors):
            from harmonium.kernels import triton_rows

            return triton_rows.sum_of_cubes(vectors, parts)
        return _magnitude(vectors, parts).pow(3).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (vectors,) = ctx.saved_tensors
        if _by_triton(vectors):
            from harmonium.kernels import triton_rows

            return triton_rows.sum_of_cubes_gradient(vectors, g, ctx.parts), None
        slope = 3 * g * _magnitude(vectors, ctx.parts)
        return (vectors.unflatten(-1, (ctx.parts, -1)) * slope.unsqueeze(-2)).flatten(-2), None


def _magnitude(vectors: Tensor, parts: int) -> Tensor:
    """(..., d) -> (..., d / parts)."""
    return vectors.abs() if parts == 1 else vectors.unflatten(-1, (parts, -1)).square().sum(-2).sqrt()


def _by_triton(vectors: Tensor) -> bool:
    return vectors.is_cuda and vectors.dim() == 2 and vectors.dtype == torch.float32 and has_triton()
