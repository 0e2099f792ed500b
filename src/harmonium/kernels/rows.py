"""Rows of a table, many of them met many times: how they are read, and how their gradients are added up."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def meetings(ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The places of ids (m,) row by row of a table of n rows, and where those of each row start, (n,).

    Sorting costs less than adding rows one by one, and the order of additions does not depend on threads.
    """
    met = ids.new_zeros(n).scatter_add_(0, ids, torch.ones_like(ids))
    return ids.int().argsort(stable=True), met.cumsum(0) - met  # half the bits, half the time


def add_up(ids: Tensor, rows: Tensor, n: int) -> Tensor:
    """(n, d): the sum of those rows (m, d) that have each id."""
    if rows.is_complex():
        return torch.view_as_complex(add_up(ids, torch.view_as_real(rows).flatten(1), n).unflatten(1, (-1, 2)))
    places, starts = meetings(ids, n)
    return F.embedding_bag(places, rows, starts, mode="sum")


class Rows(torch.autograd.Function):
    """Rows ids (..., ) of a table, whose gradients are sorted and then added."""

    @staticmethod
    def forward(ctx, table: Tensor, ids: Tensor) -> Tensor:
        ctx.n = len(table)
        ctx.save_for_backward(ids)
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        return add_up(ids.flatten(), g.reshape(ids.numel(), -1), ctx.n), None


class KnownRows(torch.autograd.Function):
    """Rows of a table, and the table itself for what else uses it: the rows' gradient is added into the table's.

    Left to autograd, the sum of two gradients of a table is a third of its size. What else uses the table must make a
    gradient of its own, as kernels do, since it is written to.
    """

    @staticmethod
    def forward(ctx, table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ids)
        return F.embedding(ids, table), table.view_as(table)

    @staticmethod
    def backward(ctx, rows: Tensor, table: Tensor) -> tuple[Tensor, None]:
        return table.contiguous().index_add_(0, *ctx.saved_tensors, rows), None


class GatherDot(torch.autograd.Function):
    """(b, n): query[b] . table[ids[b, j]] without the gathered rows in memory; divided by the row's length if `raw`.

    A bag of rows weighted by g is sum_j g[b, j] table[ids[b, j]]: that is the gradient of query, and its gradient in
    the weights is the score. The gradient of a row is a bag too, of the queries that met it: sorting the ids to find them
    costs less than adding rows one by one. A score s = q.e / |e| has the gradient (q - s e / |e|) / |e| in e.
    """

    @staticmethod
    def forward(ctx, query: Tensor, table: Tensor, ids: Tensor, raw: bool) -> Tensor:
        dots = torch.ops.aten._embedding_bag_per_sample_weights_backward
        flat, (starts, bag) = ids.flatten().int(), _bags(*ids.shape, ids.device)
        scores, shrink, scale = dots(query, table.detach(), flat, starts, bag, 0).view_as(ids), None, None
        if raw:
            shrink = torch.linalg.vector_norm(table, dim=1).clamp_(min=1e-12).reciprocal_()
            scale = shrink[ids]
            scores.mul_(scale)
        ctx.save_for_backward(query, table, ids, flat, starts, bag, scores, shrink, scale)
        return scores

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        query, table, ids, flat, starts, bag, scores, shrink, scale = ctx.saved_tensors
        if shrink is not None:
            along = shrink.new_zeros(len(table)).scatter_add_(0, ids.flatten(), (g * scores).flatten())
            g = g * scale
        g = g.flatten()
        dquery = F.embedding_bag(flat, table, starts, mode="sum", per_sample_weights=g)
        places, starts = meetings(ids.flatten(), len(table))
        dtable = F.embedding_bag(bag[places], query, starts.int(), mode="sum", per_sample_weights=g[places])
        if shrink is not None:
            dtable.addcmul_(table, (along * shrink**2)[:, None], value=-1)
        return dquery, dtable, None, None


def _bags(count: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each bag of `size` ids starts (count,), and in which bag each id is (count * size,)."""
    bags = torch.arange(count, dtype=torch.int32, device=device)
    return bags * size, bags.repeat_interleave(size)
