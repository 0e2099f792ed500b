"""Exact comparison with the true answer, by bounds: most candidates are decided without their full score.

A candidate's score is L + sum_k a_k p_k^2 + rest, where L is its linear part, p_k = u_k.x its coordinate along the
k-th of the strongest directions of A, and the rest of the quadratic lies between a_min rho and a_max rho with
rho = |x|^2 - sum p_k^2 and a_min <= 0 <= a_max the extremes of the remaining eigenvalues. A composition that can bound
|x|^2 cheaply (`norm_bound`) thus bounds the score; only candidates whose interval contains the true answer's score, or
comes within rounding of it, are scored in full, in float64 (pair_scores.py). The outcome is that of scoring everything.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from harmonium.kernels.interfaces import SlotMapLike
from harmonium.kernels.pair_scores import relative_error
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.kernels.torch_backend import linear_query

FIRST_DIRECTIONS, MAX_DIRECTIONS = 1, 64  # projected on at first, and at most
MAX_UNDECIDED = 0.02  # share of candidates; while more are undecided, directions are added
Decide = Callable[[Tensor, Tensor], Tensor]  # (row, column) -> exact score minus the true answer's, zero where they tie


class Pruner:
    """Eigenvectors of a form for bounding scores, and counts of the candidates that bounds have decided."""

    def __init__(self, form: QuadraticForm, dtype: torch.dtype) -> None:
        """`form` is in float64; bounds are computed in `dtype`."""
        self.form = form.to(dtype)
        values, directions = form.principal
        self.values, self.directions = values.to(dtype), directions.to(dtype)  # (rank,) by descending size, (rank, dim)
        self.followed = min(FIRST_DIRECTIONS, len(self.values))
        self.total = self.decided = 0  # candidates, and those decided by their bounds

    @property
    def skipped(self) -> float:
        """The share of candidates that were never scored in full."""
        return self.decided / max(self.total, 1)

    def comparable_scores(
        self, slot_map: SlotMapLike, candidates: Tensor, true_scores: Tensor, tolerance: Tensor, decide: Decide
    ) -> Tensor | None:
        """(b, n): positive where a candidate beats the true answer, zero where it ties, else negative.

        `true_scores` (b,) are in float64, and `decide` finds ties among scores within `tolerance` (b,) of them alone.
        None if bounds do not pay off: the composition has none, or they decide too few candidates.
        """
        bound = slot_map.norm_bound(candidates)  # (b, n)
        if bound is None:
            return None
        rounding = candidates.shape[-1] * torch.finfo(bound.dtype).eps  # of a sum over all coordinates
        while True:
            low, high = self._interval(slot_map, candidates, bound * (1 + 4 * rounding), true_scores, tolerance)
            row, column = ((low <= 0) & (high >= 0)).nonzero(as_tuple=True)
            undecided = len(row) / low.numel()
            if undecided <= MAX_UNDECIDED or self.followed >= min(MAX_DIRECTIONS, len(self.values)):
                break
            self.followed = min(4 * max(self.followed, 1), MAX_DIRECTIONS, len(self.values))
        if undecided > 5 * MAX_UNDECIDED:
            return None
        self.total += low.numel()
        self.decided += low.numel() - len(row)
        high[row, column] = decide(row, column).sign().to(high.dtype)  # elsewhere the sign of `high` is decided already
        return high

    def _interval(
        self, slot_map: SlotMapLike, candidates: Tensor, rest: Tensor, true_scores: Tensor, tolerance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(b, n) twice: below and above every score minus the true one, allowing for rounding. Overwrites `rest`."""
        query, constant = linear_query(self.form, slot_map)
        middle = torch.addmm(constant - true_scores[:, None].to(query.dtype), query, candidates.T)
        vectors = slot_map.pull_back(self.directions[: self.followed]).unbind(1) if self.followed else ()
        longest = torch.linalg.vector_norm(candidates, dim=-1).max()
        size = (
            torch.linalg.vector_norm(query, dim=-1) * longest + true_scores.abs().to(query.dtype) + constant[:, 0].abs()
        )
        for value, vector in zip(self.values[: self.followed].tolist(), vectors, strict=True):
            square = (vector @ candidates.T).square_()
            middle.add_(square, alpha=value)
            rest.sub_(square)
            size = size + abs(value) * (torch.linalg.vector_norm(vector, dim=-1) * longest).square()
        remaining = [0.0, *self.values[self.followed :].tolist()]
        rest.clamp_(min=0)
        rounding = relative_error(len(self.form.vector), middle.dtype) * size
        slack = (rounding + tolerance.to(middle.dtype))[:, None]
        low = torch.add(middle - slack, rest, alpha=min(remaining))
        return low, middle.add_(slack).add_(rest, alpha=max(remaining))
