"""Interface of a slot map as the kernels use it; the class is in harmonium.model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from torch import Tensor

Loss = Callable[[Tensor, slice], Tensor]  # of the scores (m, n) of the queries in a slice: the mean over those queries


class SlotMapLike(Protocol):
    """The affine maps candidate -> composed vector of b queries: x = T e + offset."""

    @property
    def slot_dim(self) -> int: ...
    @property
    def is_linear(self) -> bool: ...  # whether the offset is zero
    @property
    def offset(self) -> Tensor: ...  # (b, dim)
    @property
    def relation_ids(self) -> Tensor | None: ...  # (b,): the row of relation_table that each query uses
    @property
    def relation_table(self) -> Tensor | None: ...  # (n_relations, relation_dim)
    @property
    def sorted_by_relation(self) -> bool: ...
    def __len__(self) -> int: ...  # b
    def apply(self, candidate: Tensor) -> Tensor: ...  # x: (..., slot_dim) -> (..., dim)
    def beside_candidates(self) -> Self: ...  # with a candidate axis: apply takes (n, slot_dim) or (b, n, slot_dim)
    def select(self, rows: Tensor | slice) -> Self: ...  # the maps of these queries
    def double(self) -> Self: ...
    def transpose(self, cotangent: Tensor) -> Tensor: ...  # T'v: (..., dim) -> (b, slot_dim)
    def pull_back(self, directions: Tensor) -> Tensor: ...  # T'u of each direction: (k, dim) -> (b, k, slot_dim)
    def dense(self) -> Tensor: ...  # T': (b, slot_dim, dim)
    def norm_bound(self, candidates: Tensor) -> Tensor | None: ...  # (b, n): at least |Te|^2
    def product(self) -> Product | None: ...  # the map as a product with the candidate; None if it is not one


@dataclass(frozen=True)
class ElementwiseProduct:
    """x = known * candidate, coordinate by coordinate."""

    known: Tensor  # (b, slot_dim)


@dataclass(frozen=True)
class CorrelationProduct:
    """x = weight * corr(known, candidate): circular correlation, a product of spectra conj(F known) * F candidate.

    With the candidate first, corr(candidate, known), coordinates come in reverse: k of one is -k of the other.
    """

    known: Tensor  # (b, slot_dim)
    weight: Tensor  # (b, slot_dim): the relation
    candidate_first: bool = False


Product = ElementwiseProduct | CorrelationProduct
