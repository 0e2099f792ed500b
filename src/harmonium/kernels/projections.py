"""Quadratic scores of shared candidates under a W of low rank, and their gradients, by matrix products alone.

With projections p_k = q_k.e of a candidate on the `rank` directions of a query, the quadratic part of its score is
p'Np. The gradient g of the scores reaches everything else through the one tensor G_k = g p_k:

    dN_kl = sum (G_k E).q_l    dq_k = 2 sum_l N_kl (G_l E)    dE = sum_l G_l' (2 sum_k N_kl q_k)

so that N multiplies vectors of queries, never (queries, rank, candidates) tensors. Those exist for one block of queries
at a time; the projections are kept for the backward pass where they are few and computed again otherwise.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 26}  # projections computed at once: on a CPU they stay in the cache
KEPT = 1 << 26  # projections kept for the backward pass (256 MB of float32); without them it costs a third more


def quadratic_scores(core: Tensor, directions: Tensor, candidates: Tensor) -> Tensor:
    """(b, n): p'Np with p = directions @ candidate; N (rank, rank), directions (b, rank, d), candidates (n, d)."""
    scores: Tensor = _QuadraticScores.apply(core, directions, candidates)  # type: ignore[no-untyped-call]
    return scores


class _QuadraticScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, core: Tensor, directions: Tensor, candidates: Tensor) -> Tensor:
        directions = directions.transpose(0, 1).contiguous()  # (rank, b, d)
        rank, n_queries, _ = directions.shape
        scores = directions.new_empty(n_queries, len(candidates))
        kept: list[Tensor] = []
        keeps = n_queries * rank * len(candidates) <= KEPT
        for part in _query_blocks(directions, len(candidates)):
            projected = _project(directions[:, part], candidates)
            torch.sum(_mix(core, projected).mul_(projected), 0, out=scores[part])
            if keeps:
                kept.append(projected)
        ctx.save_for_backward(core, directions, candidates, *kept)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        core, directions, candidates, *kept = ctx.saved_tensors
        doubled, moments = _mix(2 * core, directions), torch.empty_like(directions)  # (rank, b, d); moments: G E
        dcandidates = torch.zeros_like(candidates) if ctx.needs_input_grad[2] else None
        for number, part in enumerate(_query_blocks(directions, len(candidates))):
            projected = kept[number] if kept else _project(directions[:, part], candidates)
            weighted = projected * g[part]  # G
            rows = weighted.flatten(0, 1)  # (rank * m, n)
            moments[:, part] = (rows @ candidates).view(moments[:, part].shape)
            if dcandidates is not None:
                dcandidates.addmm_(rows.T, doubled[:, part].flatten(0, 1))
        dcore = moments.flatten(1) @ directions.flatten(1).T
        return dcore, _mix(2 * core, moments).transpose(0, 1), dcandidates


def _query_blocks(directions: Tensor, n_candidates: int) -> Iterator[slice]:
    """Slices of the queries of directions (rank, b, d) to project on at once, of about equal size."""
    rank, n_queries, _ = directions.shape
    block = BLOCK.get(directions.device.type, BLOCK["cuda"])
    count = max(1, -(-n_queries * rank * n_candidates // block))
    size = max(1, -(-n_queries // count))
    return (slice(start, min(start + size, n_queries)) for start in range(0, n_queries, size))


def _project(directions: Tensor, candidates: Tensor) -> Tensor:
    """(rank, m, d) -> (rank, m, n)."""
    return (directions.flatten(0, 1) @ candidates.T).view(*directions.shape[:2], -1)


def _mix(core: Tensor, tensors: Tensor) -> Tensor:
    """sum_l N_kl t_l of tensors (rank, ...)."""
    return (core @ tensors.flatten(1)).view_as(tensors)
