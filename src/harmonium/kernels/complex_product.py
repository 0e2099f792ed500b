"""Products of complex vectors stored as [real | imaginary]; on a GPU one pass forward and one backward."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from harmonium.kernels.triton_backend import has_triton


def complex_product(left: Tensor, right: Tensor, conjugate: bool = False) -> Tensor:
    """left * right, or conj(left) * right, coordinate by coordinate: (..., d) each, broadcasting."""
    if left.is_cuda and left.shape == right.shape and left.dim() == 2 and left.dtype == torch.float32 and has_triton():
        product: Tensor = _ComplexProduct.apply(left, right, conjugate)  # type: ignore[no-untyped-call]
        return product
    (a, b), (c, d) = left.chunk(2, dim=-1), right.chunk(2, dim=-1)
    if conjugate:
        return torch.cat([a * c + b * d, a * d - b * c], dim=-1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=-1)


class _ComplexProduct(torch.autograd.Function):
    """left * right has the gradients g conj(right) and g conj(left), conj(left) * right has conj(g) right and g left."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, conjugate: bool) -> Tensor:
        from harmonium.kernels import triton_rows

        ctx.save_for_backward(left, right)
        ctx.conjugate = conjugate
        return triton_rows.complex_product(left, right, conjugate)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        from harmonium.kernels import triton_rows

        left, right = ctx.saved_tensors
        return *triton_rows.complex_product_gradients(g, left, right, ctx.conjugate), None
