"""W (I - tau W)^-1 of a symmetric matrix, and its gradient."""

import math
from typing import Any

import torch
from torch import Tensor


def resolvent(matrix: Tensor, tau: float, bound: float) -> Tensor:
    """W (I - tau W)^-1 for symmetric W whose norm times tau is at most `bound` < 1."""
    pushed: Tensor = _Resolvent.apply(matrix, tau, bound)  # type: ignore[no-untyped-call]
    return pushed


class _Resolvent(torch.autograd.Function):
    """N = WS with S = (I - tau W)^-1, and its gradient S g S.

    On a GPU S is the product of I + R^(2^k), R = tau W: no factorisation, which is slow there and waits for the host.
    The number of factors follows from the bound on R, so the error is below rounding for every W within its cap.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, tau: float, bound: float) -> Tensor:
        inverse = _inverse_by_squaring(tau * matrix, bound) if matrix.is_cuda else _inverse(tau * matrix)
        ctx.save_for_backward(inverse)
        pushed = matrix @ inverse
        return (pushed + pushed.T) / 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return inverse @ g @ inverse, None, None


def _inverse(power: Tensor) -> Tensor:
    """(I - R)^-1 of a symmetric R."""
    identity = torch.eye(len(power), dtype=power.dtype, device=power.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(identity - power))


def _inverse_by_squaring(power: Tensor, bound: float) -> Tensor:
    """(I - R)^-1 as the product (I + R)(I + R^2)(I + R^4)..., which ends when R^(2^k) is below rounding."""
    inverse = power + torch.eye(len(power), dtype=power.dtype, device=power.device)
    largest_power = math.log(torch.finfo(power.dtype).eps / 4) / math.log(bound)  # at which bound^k is below rounding
    for _ in range(math.ceil(math.log2(largest_power)) - 1):
        power = power @ power
        inverse = torch.addmm(inverse, inverse, power)
    return inverse
