"""Harmony: the energy of a hidden state h given a composed vector x, its optimum, and its value there.

    H(h, x) = 1/2 [ h'Wh + b'h - lambda |h - x|^2 ],   W symmetric, lambda above its largest eigenvalue

`faithfulness` is lambda. Everything is written with tau = 1/lambda, so that lambda = infinity is tau = 0 with no
special case: S = (I - tau W)^-1 maps composed vectors to tokens. Symbols and proofs: docs/math.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harmonium.errors import HarmoniumError

MARGIN = 0.25  # the paper's epsilon: how far the cap on W stays below lambda
CAP_AT_INFINITY = 2.5  # the paper's cap when lambda is infinite
CONSTRAINTS = ("frobenius", "spectral")


@dataclass(frozen=True)
class QuadraticForm:
    """score(x) = x'Ax + c'x + k: all that scoring needs. A plain model has no matrix."""

    matrix: Tensor | None  # A (dim, dim), symmetric
    vector: Tensor  # c (dim,)
    constant: Tensor  # k ()

    def __call__(self, composed: Tensor) -> Tensor:
        """(..., dim) -> (...)."""
        if self.matrix is None:
            return composed @ self.vector + self.constant
        return ((composed @ self.matrix + self.vector) * composed).sum(-1) + self.constant


@dataclass(frozen=True)
class Trajectory:
    """The hidden state and its harmony along the dynamics."""

    hidden: Tensor  # (steps + 1, ..., dim)
    harmony: Tensor  # (steps + 1, ...)


class Sum(nn.Module):
    """The plain models: score = scale * sum of x, the form with no matrix."""

    def __init__(self, dim: int, learn_scale: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.ones(()), requires_grad=learn_scale)

    def fold(self) -> QuadraticForm:
        return QuadraticForm(None, self.scale.expand(self.dim), self.scale.new_zeros(()))

    def calibrate(self, composed: Tensor) -> None:
        """Start with scores of unit spread over the given composed vectors."""
        if self.scale.requires_grad:
            with torch.no_grad():
                self.scale.copy_(1 / composed.sum(-1).std().clamp(min=1e-12))


class Harmony(nn.Module):
    """W, b and the faithfulness lambda.

    W is the symmetric part of a free matrix, scaled down when its norm (Frobenius, as in the paper, or spectral)
    exceeds `cap`; cap < lambda makes the optimum exist. The paper's cap is lambda - 0.25, or 2.5 at infinity.
    """

    def __init__(
        self, dim: int, faithfulness: float = 1.0, constraint: str = "frobenius", cap: float | None = None
    ) -> None:
        super().__init__()
        if not faithfulness > 0:
            raise HarmoniumError(f"faithfulness (lambda) must be positive, not {faithfulness}")
        if constraint not in CONSTRAINTS:
            raise HarmoniumError(f"no constraint '{constraint}' on W; there are {', '.join(CONSTRAINTS)}")
        if cap is None:
            cap = CAP_AT_INFINITY if math.isinf(faithfulness) else faithfulness - MARGIN
            if cap <= 0:
                raise HarmoniumError(
                    f"faithfulness (lambda) = {faithfulness} leaves no room for W: the default cap is lambda - {MARGIN}; "
                    "raise lambda or set a positive cap below it"
                )
        if not 0 < cap < faithfulness:
            raise HarmoniumError(
                f"faithfulness (lambda) = {faithfulness} must be above the cap on W, {cap}: "
                "otherwise harmony has no maximum. Raise lambda or lower the cap"
            )
        self.dim, self.faithfulness, self.constraint, self.cap = dim, faithfulness, constraint, cap
        self.free = nn.Parameter(torch.randn(dim, dim) / dim)
        self.bias = nn.Parameter(torch.randn(dim) / math.sqrt(dim))

    @property
    def tau(self) -> float:
        return 1 / self.faithfulness

    def matrix(self) -> Tensor:
        """W (dim, dim): symmetric and within the cap."""
        symmetric = (self.free + self.free.T) / 2
        if self.constraint == "frobenius":
            norm = torch.linalg.matrix_norm(symmetric)
        else:
            norm = _spectral_norm(symmetric)
        return symmetric * (self.cap / norm.clamp(min=self.cap))

    def token_map(self, matrix: Tensor | None = None) -> Tensor:
        """S = (I - tau W)^-1 (dim, dim): tokens differ by S times what composed vectors differ by."""
        matrix = self.matrix() if matrix is None else matrix
        identity = torch.eye(self.dim, dtype=matrix.dtype, device=matrix.device)
        if self.tau == 0:
            return identity
        return torch.cholesky_inverse(torch.linalg.cholesky(identity - self.tau * matrix))

    def forward(self, hidden: Tensor, composed: Tensor) -> Tensor:
        """The definition, H(h, x). At lambda = infinity any h other than x has harmony -infinity."""
        core, distance = self.core(hidden), (hidden - composed).square().sum(-1)
        if self.tau == 0:
            return torch.where(distance == 0, core, -torch.inf)
        return core - self.faithfulness * distance / 2

    def core(self, hidden: Tensor) -> Tensor:
        """Core harmony, 1/2 [h'Wh + b'h]: coherence, before faithfulness is counted."""
        return ((hidden @ self.matrix() + self.bias) * hidden).sum(-1) / 2

    def optimise(self, composed: Tensor) -> Tensor:
        """The token mu(x) = S (x + tau b / 2), the maximiser of H(., x)."""
        return (composed + self.tau * self.bias / 2) @ self.token_map()

    def fold(self) -> QuadraticForm:
        """H(mu(x), x) as a quadratic form: A = WS/2, c = Sb/2, k = tau b'Sb/8. No token is needed to score."""
        matrix = self.matrix()
        spread = self.token_map(matrix)
        folded = matrix @ spread / 2
        vector = spread @ self.bias / 2
        return QuadraticForm((folded + folded.T) / 2, vector, self.tau * (self.bias @ vector) / 4)

    def relax(self, composed: Tensor, steps: int = 100, step_size: float | None = None) -> Trajectory:
        """The recurrent network dh/dt = Wh + b/2 + lambda (x - h), by Euler steps from h = x; ends at the token."""
        matrix, hidden = self.matrix(), composed
        states = [hidden]
        if self.tau > 0:
            step_size = step_size or 1 / (self.faithfulness + self.cap)
            for _ in range(steps):
                hidden = hidden + step_size * (
                    hidden @ matrix + self.bias / 2 + self.faithfulness * (composed - hidden)
                )
                states.append(hidden)
        else:
            states += [hidden] * steps
        path = torch.stack(states)
        return Trajectory(path, self(path, composed))

    @torch.no_grad()
    def calibrate(self, composed: Tensor) -> None:
        """Start with scores of unit spread over the given composed vectors and W = cap * b b'/|b|^2.

        b points along the sum of x (the plain model's score). W stretches that direction from the first step, so
        tokens differ from composed vectors at once; b alone would leave W idle (docs/math.md, section 3).
        """
        direction = torch.full_like(self.bias, 1 / math.sqrt(self.dim))
        self.free.copy_(self.cap * torch.outer(direction, direction))
        stretch = 1 / (1 - self.tau * self.cap)
        self.bias.copy_(direction * 2 / (stretch * (composed @ direction).std().clamp(min=1e-12)))


def _spectral_norm(symmetric: Tensor) -> Tensor:
    """The largest |eigenvalue|; its gradient is v v', so only the eigenvector is found outside the graph."""
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(symmetric)
        top = vectors[:, values.abs().argmax()]
    return (top @ symmetric @ top).abs()
