"""Exact comparison with the true answer, by bounds: most candidates are decided without their full score.

A candidate's score is L + sum_k a_k p_k^2 + rest, where L is its linear part, p_k = u_k.x its coordinate along the
k-th of the strongest directions of A, and the rest of the quadratic lies between a_min rho and a_max rho with
rho = |x|^2 - sum p_k^2 and a_min <= 0 <= a_max the extremes of the eigenvalues left out. A composition that can bound
|x|^2 cheaply (`norm_bound`) thus bounds the score; only candidates whose interval meets the truth's score, or comes
within rounding of it, are scored in full, in float64. The outcome is that of scoring everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from harmonium.kernels import fused

START, MOST = 1, 64  # directions followed at first, and at most
DENSE = 0.02  # with more than this share of candidates undecided, follow more directions
PAIRS = 1 << 16  # pairs scored in full at once


@dataclass
class Pruner:
    """What is prepared once for a form, and what was saved so far."""

    form: object
    values: Tensor = field(init=False)  # (rank,) by falling size
    directions: Tensor = field(init=False)  # (rank, dim)
    followed: int = START
    decided: int = 0  # candidates decided by their bounds
    total: int = 0

    def __post_init__(self) -> None:
        self.values, self.directions = self.form.principal
        self.followed = min(START, len(self.values))

    @property
    def skipped(self) -> float:
        """The share of candidates that were never scored in full."""
        return self.decided / max(self.total, 1)

    def advantages(self, slot_map, candidates: Tensor, truth: Tensor) -> Tensor | None:
        """(b, n): positive where a candidate beats the truth, zero where it ties, negative where it loses.

        None when bounds would not pay: the composition has none, or they decide too little.
        """
        bound = slot_map.composition.norm_bound(slot_map, candidates)  # (b, n)
        if bound is None:
            return None
        bound_error = candidates.shape[-1] * torch.finfo(bound.dtype).eps  # of a sum of so many terms
        best = _pair_scores(self.form, slot_map, candidates, torch.arange(len(truth), device=truth.device), truth)
        while True:
            low, high = self._interval(slot_map, candidates, bound * (1 + 4 * bound_error), best)
            row, column = ((low <= 0) & (high >= 0)).nonzero(as_tuple=True)
            share = len(row) / low.numel()
            if share <= DENSE or self.followed >= min(MOST, len(self.values)):
                break
            self.followed = min(4 * max(self.followed, 1), MOST, len(self.values))
        if share > 5 * DENSE:
            return None
        self.total += low.numel()
        self.decided += low.numel() - len(row)
        exact = _pair_scores(self.form, slot_map, candidates, row, column) - best[row]
        high[row, column] = exact.to(high.dtype)  # elsewhere the sign of `high` is decided already
        high[torch.arange(len(truth), device=truth.device), truth] = 0
        return high

    def _interval(self, slot_map, candidates: Tensor, rest: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
        """(b, n) twice: below and above every score's advantage over `best`, rounding allowed for. Uses `rest` up."""
        query, constant = fused.linear_query(self.form, slot_map)
        middle = torch.addmm(constant - best[:, None].to(query.dtype), query, candidates.T)
        heads = slot_map.heads(self.directions[: self.followed]).unbind(1) if self.followed else ()
        longest = torch.linalg.vector_norm(candidates, dim=-1).max()
        size = torch.linalg.vector_norm(query, dim=-1) * longest + best.abs().to(query.dtype)
        for value, head in zip(self.values[: self.followed].tolist(), heads, strict=True):
            square = (head @ candidates.T).square_()
            middle.add_(square, alpha=value)
            rest.sub_(square)
            size = size + abs(value) * (torch.linalg.vector_norm(head, dim=-1) * longest).square()
        left = self.values[self.followed :]
        lowest, highest = (0.0, 0.0) if not len(left) else (min(left.min().item(), 0), max(left.max().item(), 0))
        rest.clamp_(min=0)
        slack = (64 * torch.finfo(middle.dtype).eps * size)[:, None]
        return torch.add(middle - slack, rest, alpha=lowest), middle.add_(slack).add_(rest, alpha=highest)


def _pair_scores(form, slot_map, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(m,) float64: the full scores of candidate column[i] for query row[i]."""
    wide = form.double()
    parts = []
    for rows, columns in zip(row.split(PAIRS), column.split(PAIRS), strict=True):
        pairs = slot_map.select(rows).double()
        parts.append(wide(pairs.apply(candidates[columns].double())))
    return torch.cat(parts)
