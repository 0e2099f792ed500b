"""Exact comparison with the true answer, by bounds: most candidates are decided without their full score.

A candidate's score is L + sum_k a_k p_k^2 + rest, where L is its linear part, p_k = u_k.x its coordinate along the
k-th of the strongest directions of A, and the rest of the quadratic lies between a_min rho and a_max rho with
rho = |x|^2 - sum p_k^2 and a_min <= 0 <= a_max the extremes of the remaining eigenvalues. A composition that can bound
|x|^2 cheaply (`norm_bound`) thus bounds the score; only candidates whose interval contains the true answer's score, or
comes within rounding of it, are scored in full, in float64. The outcome is that of scoring everything.
"""

import torch
from torch import Tensor

from harmonium.kernels.interfaces import SlotMapLike
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.kernels.torch_backend import linear_query

FIRST_DIRECTIONS, MAX_DIRECTIONS = 1, 64  # followed at first, and at most
MAX_UNDECIDED = 0.02  # follow more directions while a larger share of candidates is undecided
PAIRS = 1 << 16  # pairs scored in full at once


class Pruner:
    """The eigenvectors of a form, and what bounds by them have saved so far."""

    def __init__(self, form: QuadraticForm) -> None:
        self.form = form
        self.values, self.directions = form.principal  # (rank,) by falling size, (rank, dim)
        self.followed = min(FIRST_DIRECTIONS, len(self.values))
        self.total = self.decided = 0  # candidates, and those decided by their bounds

    @property
    def skipped(self) -> float:
        """The share of candidates that were never scored in full."""
        return self.decided / max(self.total, 1)

    def comparable_scores(self, slot_map: SlotMapLike, candidates: Tensor, truth: Tensor) -> Tensor | None:
        """(b, n): positive where a candidate beats the true one, in column truth[i], zero where it ties, else negative.

        None when bounds do not pay: the composition has none, or they decide too little.
        """
        bound = slot_map.norm_bound(candidates)  # (b, n)
        if bound is None:
            return None
        rounding = candidates.shape[-1] * torch.finfo(bound.dtype).eps  # of a sum of so many terms
        queries = torch.arange(len(truth), device=truth.device)
        true_scores = _pair_scores(self.form, slot_map, candidates, queries, truth)
        while True:
            low, high = self._interval(slot_map, candidates, bound * (1 + 4 * rounding), true_scores)
            row, column = ((low <= 0) & (high >= 0)).nonzero(as_tuple=True)
            undecided = len(row) / low.numel()
            if undecided <= MAX_UNDECIDED or self.followed >= min(MAX_DIRECTIONS, len(self.values)):
                break
            self.followed = min(4 * max(self.followed, 1), MAX_DIRECTIONS, len(self.values))
        if undecided > 5 * MAX_UNDECIDED:
            return None
        self.total += low.numel()
        self.decided += low.numel() - len(row)
        exact = _pair_scores(self.form, slot_map, candidates, row, column) - true_scores[row]
        high[row, column] = exact.to(high.dtype)  # elsewhere the sign of `high` is decided already
        high[queries, truth] = 0
        return high

    def _interval(
        self, slot_map: SlotMapLike, candidates: Tensor, rest: Tensor, true_scores: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(b, n) twice: below and above every score minus the true one, allowing for rounding. Overwrites `rest`."""
        query, constant = linear_query(self.form, slot_map)
        middle = torch.addmm(constant - true_scores[:, None].to(query.dtype), query, candidates.T)
        vectors = slot_map.pull_back(self.directions[: self.followed]).unbind(1) if self.followed else ()
        longest = torch.linalg.vector_norm(candidates, dim=-1).max()
        size = torch.linalg.vector_norm(query, dim=-1) * longest + true_scores.abs().to(query.dtype)
        for value, vector in zip(self.values[: self.followed].tolist(), vectors, strict=True):
            square = (vector @ candidates.T).square_()
            middle.add_(square, alpha=value)
            rest.sub_(square)
            size = size + abs(value) * (torch.linalg.vector_norm(vector, dim=-1) * longest).square()
        remaining = [0.0, *self.values[self.followed :].tolist()]
        rest.clamp_(min=0)
        slack = (64 * torch.finfo(middle.dtype).eps * size)[:, None]
        low = torch.add(middle - slack, rest, alpha=min(remaining))
        return low, middle.add_(slack).add_(rest, alpha=max(remaining))


def _pair_scores(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(m,) float64: the full scores of candidate column[i] for query row[i]."""
    exact_form, parts = form.double(), []
    for rows, columns in zip(row.split(PAIRS), column.split(PAIRS), strict=True):
        pairs = slot_map.select(rows).double()
        parts.append(exact_form(pairs.apply(candidates[columns].double())))
    return torch.cat(parts)
