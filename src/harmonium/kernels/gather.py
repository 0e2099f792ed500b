"""Gather rows of a table, many of them repeatedly, and sum their gradients by row."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def sum_by_id(ids: Tensor, rows: Tensor, n: int) -> Tensor:
    """(n, d): for each id below n, the sum of the rows (m, d) with that id in ids (m,)."""
    if rows.is_complex():
        sums = sum_by_id(ids, torch.view_as_real(rows).flatten(1), n)
        return torch.view_as_complex(sums.unflatten(1, (-1, 2)))
    positions, starts = sort_by_id(ids, n)
    return F.embedding_bag(positions, rows, starts, mode="sum")


def sort_by_id(ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Positions in ids (m,), those of id 0 first, then those of id 1, ...; and the offset of each id, (n,).

    Sorting costs less than adding rows one by one, and the order of additions does not depend on threads.
    """
    counts = ids.new_zeros(n).scatter_add_(0, ids, torch.ones_like(ids))
    return ids.int().argsort(stable=True), counts.cumsum(0) - counts  # half the bits, half the time


def number_runs(ids: Tensor, max_runs: int) -> tuple[Tensor, Tensor]:
    """For sorted ids (b,): the index (b,) of the run of equal ids that each belongs to, and the id of each run (max_runs,).

    `max_runs` does not depend on the data, so a GPU never waits for the host; entries beyond the last run are undefined.
    """
    numbers = torch.zeros_like(ids)
    numbers[1:] = (ids[1:] != ids[:-1]).cumsum(0)
    return numbers, ids.new_zeros(max_runs).scatter_(0, numbers, ids)


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """(..., d): rows ids (...) of a table; their gradients are sorted and then summed."""
    rows: Tensor = _GatherRows.apply(table, ids)  # type: ignore[no-untyped-call]
    return rows


def gather_with_table(table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Rows ids (m,) of a table, and the table itself for its other use: the rows' gradient is added into the table's.

    Left to autograd, the sum of two gradients of a table is a third tensor of its size. The other use must return a new
    gradient, as kernels do, since it is written to.
    """
    rows, same_table = _GatherWithTable.apply(table, ids)  # type: ignore[no-untyped-call]
    return rows, same_table


def gather_dot(query: Tensor, table: Tensor, ids: Tensor, normalise: bool) -> Tensor:
    """(b, n): query[b] . table[ids[b, j]] without the gathered rows in memory; divided by the row's length to normalise."""
    scores: Tensor = _GatherDot.apply(query, table, ids, normalise)  # type: ignore[no-untyped-call]
    return scores


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.n = len(table)
        ctx.save_for_backward(ids)
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        return sum_by_id(ids.flatten(), g.reshape(ids.numel(), -1), ctx.n), None


class _GatherWithTable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ids)
        return F.embedding(ids, table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, drows: Tensor, dtable: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        return dtable.contiguous().index_add_(0, ids, drows), None


class _GatherDot(torch.autograd.Function):
    """A bag of rows weighted by g is sum_j g[b, j] table[ids[b, j]]: the gradient of query, whose gradient in the weights
    is the score. The gradient of a row is a bag too, of the queries that used it: sorting the ids costs less than adding
    rows one by one. A score s = q.e / |e| has the gradient (q - s e / |e|) / |e| in e.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor, ids: Tensor, normalise: bool) -> Tensor:
        dots = torch.ops.aten._embedding_bag_per_sample_weights_backward
        flat, bags = ids.flatten().int(), torch.arange(len(ids), dtype=torch.int32, device=ids.device)
        starts, bag = bags * ids.shape[1], bags.repeat_interleave(ids.shape[1])  # of each query; of each id
        scores: Tensor = dots(query, table.detach(), flat, starts, bag, 0).view_as(ids)
        inverse_length = scale = None
        if normalise:
            inverse_length = torch.linalg.vector_norm(table, dim=1).clamp_(min=1e-12).reciprocal_()
            scale = inverse_length[ids]
            scores.mul_(scale)
        ctx.save_for_backward(query, table, ids, flat, starts, bag, scores, inverse_length, scale)
        return scores

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        query, table, ids, flat, starts, bag, scores, inverse_length, scale = ctx.saved_tensors
        if inverse_length is not None:
            along = inverse_length.new_zeros(len(table)).scatter_add_(0, ids.flatten(), (g * scores).flatten())
            g = g * scale
        g = g.flatten()
        dquery = F.embedding_bag(flat, table, starts, mode="sum", per_sample_weights=g)
        positions, starts = sort_by_id(ids.flatten(), len(table))
        weights = g[positions]
        dtable = F.embedding_bag(bag[positions], query, starts.int(), mode="sum", per_sample_weights=weights)
        if inverse_length is not None:
            dtable.addcmul_(table, (along * inverse_length**2)[:, None], value=-1)
        return dquery, dtable, None, None
