"""Quadratic forms: the common representation in which harmonies and plain sums are scored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class QuadraticForm:
    """score(x) = x'Ax + c'x + k with A = F N F': all that scoring needs. A plain model has no matrix, a full one no F."""

    core: Tensor | None  # N (rank, rank), symmetric; None for a plain model
    vector: Tensor  # c (dim,)
    constant: Tensor  # k ()
    basis: Tensor | None = None  # F (dim, rank); None is the identity

    @property
    def matrix(self) -> Tensor | None:
        """A (dim, dim)."""
        return None if self.core is None else embed(self.core, self.basis)

    def project(self, composed: Tensor) -> Tensor:
        """(..., dim) -> (..., rank): the coordinates that the quadratic part depends on."""
        return composed if self.basis is None else composed @ self.basis

    @cached_property
    def principal(self) -> tuple[Tensor, Tensor]:
        """A = sum_k a_k u_k u_k' with the u_k of unit length: a (k,) by descending size, and u (k, dim); no zero a_k."""
        if self.core is None:
            return self.vector.new_zeros(0), self.vector.new_zeros(0, len(self.vector))
        basis = None if self.basis is None else self.basis.double()
        orthonormal, reduced = orthonormalise(self.core.double(), basis)
        values, directions = torch.linalg.eigh(reduced)
        directions = directions if orthonormal is None else orthonormal @ directions
        order = values.abs().argsort(descending=True)
        values, directions = values[order], directions.T[order]
        kept = values.abs() > values.abs().max() * torch.finfo(self.core.dtype).eps
        return values[kept].to(self.core.dtype), directions[kept].to(self.core.dtype)

    def spectrum(self) -> Tensor:
        """(rank,): the eigenvalues of A in descending order, without the zeros outside the span of F."""
        if self.core is None:
            return self.vector.new_zeros(0)
        values: Tensor = torch.linalg.eigvalsh(orthonormalise(self.core, self.basis)[1])
        return values.flip(0)

    def to(self, dtype: torch.dtype) -> QuadraticForm:
        core = None if self.core is None else self.core.to(dtype)
        basis = None if self.basis is None else self.basis.to(dtype)
        return QuadraticForm(core, self.vector.to(dtype), self.constant.to(dtype), basis)

    def double(self) -> QuadraticForm:
        return self.to(torch.float64)

    def __call__(self, composed: Tensor) -> Tensor:
        """(..., dim) -> (...)."""
        linear = composed @ self.vector + self.constant
        if self.core is None:
            return linear
        projected = self.project(composed)
        return linear + ((projected @ self.core) * projected).sum(-1)


def embed(core: Tensor, basis: Tensor | None) -> Tensor:
    """F C F'."""
    return core if basis is None else basis @ core @ basis.T


def orthonormalise(core: Tensor, basis: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """F C F' = Q M Q' with orthonormal columns Q: Q (None is the identity) and M, which has its eigenvalues and norms."""
    if basis is None:
        return None, core
    orthonormal, triangle = torch.linalg.qr(basis)
    return orthonormal, embed(core, triangle)
