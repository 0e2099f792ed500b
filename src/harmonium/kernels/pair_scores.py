"""float64 scores of single candidates, with bounds on their rounding errors: they decide where faster scores cannot.

A sum of d terms has a rounding error of at most 8 sqrt(d) u times the sum of their absolute values, u = eps / 2, except
with probability 2 d exp(-32) (Higham and Mary 2019); products, lengths and transforms add a few u. Two scores whose
difference is at most the sum of their bounds may be equal, and count as a tie, however they were computed.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.kernels.interfaces import SlotMapLike
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.kernels.torch_backend import linear_query, quadratic_size

OTHER_ROUNDINGS = 16  # roundings of operations other than long sums
PROBES = 4  # random candidates to estimate the length of composed vectors; one may be nearly orthogonal to a query


def relative_error(terms: int, dtype: torch.dtype) -> float:
    """Bound on the rounding error of a sum of `terms` numbers, relative to the sum of their absolute values."""
    return (4 * math.sqrt(terms) + OTHER_ROUNDINGS) * torch.finfo(dtype).eps


@dataclass(frozen=True)
class PairScores:
    """Scores of any candidates for b queries, one by one."""

    form: QuadraticForm  # float64
    slot_map: SlotMapLike  # float64, of b queries

    def __call__(self, row: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """(m,) twice: the scores of candidates (m, slot_dim) for the queries row (m,), and bounds on their errors."""
        lengths = torch.linalg.vector_norm(candidates, dim=-1)
        composed_length = self._generic_length(row, lengths)
        if self.form.core is None:
            query, constant = self._linear
            scores = torch.linalg.vecdot(query[row], candidates) + constant[row, 0]
        else:
            composed = self.slot_map.select(row).apply(candidates)
            scores = self.form(composed)
            composed_length = composed_length.maximum(torch.linalg.vector_norm(composed, dim=-1))
        return scores, relative_error(self.dim, scores.dtype) * self._largest_score(composed_length)

    def error_of_faster_scores(self, dtype: torch.dtype, longest: Tensor) -> Tensor:
        """(b,): a bound on the errors of `all_scores` in another dtype, for candidates of at most this length."""
        query, constant = self._linear
        linear = query.square().sum(-1).sqrt() * longest + constant[:, 0].abs()
        size = linear + quadratic_size(self.form, self.slot_map) * longest.square()
        composing = (
            OTHER_ROUNDINGS * torch.finfo(dtype).eps * self._largest_score(self._generic_length(slice(None), longest))
        )
        return size * relative_error(self.dim, dtype) + composing

    @property
    def dim(self) -> int:
        return len(self.form.vector)

    @cached_property
    def _linear(self) -> tuple[Tensor, Tensor]:
        return linear_query(self.form, self.slot_map)

    def _largest_score(self, lengths: Tensor) -> Tensor:
        """At least the absolute score of a composed vector of each of these lengths."""
        linear, quadratic = self._norms
        return linear * lengths + quadratic * lengths.square()

    @cached_property
    def _norms(self) -> tuple[Tensor, Tensor]:
        """The lengths of c and of A, whose basis is not orthonormal."""
        quadratic = torch.zeros_like(self.form.constant)
        if self.form.core is not None:
            quadratic = torch.linalg.matrix_norm(self.form.core)
        if self.form.basis is not None:
            quadratic = quadratic * torch.linalg.matrix_norm(self.form.basis, ord=2).square()
        return torch.linalg.vector_norm(self.form.vector), quadratic

    def _generic_length(self, row: Tensor | slice, lengths: Tensor) -> Tensor:
        """The length of the composed vector of a generic candidate of each length.

        The composed vector of a given one may be nearly zero by cancellation, its rounding errors are not.
        """
        slope, offset = self._generic
        return slope[row] * lengths + offset[row]

    @cached_property
    def _generic(self) -> tuple[Tensor, Tensor]:
        """(b,) twice: |Tg| of a random candidate g of unit length, the longest of a few, and the length of the offset.

        Their coordinates are not whole numbers, as these could cancel exactly, like those of some candidates.
        """
        size, offset = self.slot_map.slot_dim, self.slot_map.offset
        generic = torch.randn(PROBES, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        slope = torch.zeros_like(offset[:, 0])
        for vector in generic / torch.linalg.vector_norm(generic, dim=-1, keepdim=True):
            composed = self.slot_map.apply(vector.to(offset).expand(len(self.slot_map), -1))
            slope = slope.maximum(torch.linalg.vector_norm(composed - offset, dim=-1))
        return slope, torch.linalg.vector_norm(offset, dim=-1)
