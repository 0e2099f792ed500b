"""The same scores with less work, in plain PyTorch: see `reference` for what they mean.

Linear forms never compose a candidate: score = (T'c).e is one matrix product. Quadratic forms over shared candidates
use squared heads, score = q0.e + sum_k a_k (q_k.e)^2 with A = sum_k a_k u_k u_k' and q_k = T'u_k, so no
(queries, candidates, dim) tensor exists; when gradients are wanted the definition is recomputed in pieces instead.
Where a candidate has fewer coordinates than the form (tensor products), the form is pulled back to it: e'(T'AT)e.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from harmonium.kernels.gpu import has_triton

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # numbers that glibc's mallopt knows these by
BLOCK_ROWS = 2048  # of a table, worked on at once by a CPU
LIFTED = 1024  # at most so many products of two coordinates are kept for every candidate
PIECE = 1 << 24  # numbers held at once by a piece of work (64 MB of float32)


def all_scores(form, slot_map, candidates: Tensor) -> Tensor:
    if form.core is None:
        query, constant = linear_query(form, slot_map)
        return linear_scores(constant, query, candidates)
    if _is_smaller(form, slot_map) and slot_map.slot_dim**2 <= LIFTED:
        query, constant = linear_query(form, slot_map)
        squares = (candidates[:, :, None] * candidates[:, None, :]).flatten(1)  # (n, slot_dim^2)
        return linear_scores(constant, query, candidates) + _pulled_back(form, slot_map).flatten(1) @ squares.T
    if torch.is_grad_enabled():
        return _in_pieces(form, slot_map, candidates)
    return _squared_heads(form, slot_map, candidates)


def sampled_scores(form, slot_maps, table: Tensor, ids, raw: bool = False) -> list[Tensor]:
    if form.core is None:  # all sides in one go: one gradient of the table's size
        parts = [linear_query(form, slot_map) for slot_map in slot_maps]
        query, constant = (torch.cat(part) for part in zip(*parts, strict=True))
        scores = GatherDot.apply(query, table, torch.cat(list(ids)), raw) + constant
        return list(scores.split([len(some) for some in ids]))
    return [_sampled_quadratic(form, slot_map, table, some) for slot_map, some in zip(slot_maps, ids, strict=True)]


def _sampled_quadratic(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    rows = F.embedding(ids, table)  # (b, n, slot_dim)
    if _is_smaller(form, slot_map):
        query, constant = linear_query(form, slot_map)
        linear = (rows @ query.unsqueeze(-1)).squeeze(-1)
        return linear + ((rows @ _pulled_back(form, slot_map)) * rows).sum(-1) + constant
    if form.basis is None:
        size = len(ids) if ids.is_cuda else max(1, BLOCK_ROWS // ids.shape[1])
        scores = []
        for start, some in zip(range(0, len(ids), size), rows.split(size), strict=True):
            composed = slot_map.select(slice(start, start + size)).beside_candidates().apply(some)
            scores.append(Quadratic.apply(composed.flatten(0, 1), form.core, form.vector).view(some.shape[:-1]))
        return torch.cat(scores) + form.constant
    query, constant = linear_query(form, slot_map)
    heads = torch.cat([query[:, None], slot_map.heads(form.basis.T)], dim=1)  # (b, 1 + rank, slot_dim)
    linear, reach = (rows @ heads.mT).split([1, form.basis.shape[1]], dim=-1)
    return linear.squeeze(-1) + ((reach @ form.core) * reach).sum(-1) + constant


def can_share(form, slot_map) -> bool:
    """Whether candidates need not be composed, so that shared ones are scored by a product."""
    return form.core is None or (form.basis is not None and not _is_smaller(form, slot_map))


def shared_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    query, constant = linear_query(form, slot_map)
    heads = query[:, None]
    if form.core is not None:
        heads = torch.cat([heads, slot_map.heads(form.basis.T)], dim=1)  # (b, 1 + rank, slot_dim)
    rows = F.embedding(ids, table)  # (g, n, slot_dim)
    reach = (heads.reshape(len(ids), -1, rows.shape[-1]) @ rows.mT).view(*heads.shape[:2], -1)  # (b, 1 + rank, n)
    if form.core is None:
        return reach[:, 0] + constant
    along = reach[:, 1:].mT  # (b, n, rank)
    return reach[:, 0] + ((along @ form.core) * along).sum(-1) + constant


def _is_smaller(form, slot_map) -> bool:
    return slot_map.slot_dim < len(form.core)


def _pulled_back(form, slot_map) -> Tensor:
    """T'AT (b, slot_dim, slot_dim): the quadratic part as a form in the candidate."""
    seen = form.project(slot_map.dense())  # (b, slot_dim, rank)
    return seen @ form.core @ seen.mT


def linear_scores(constant: Tensor, query: Tensor, candidates: Tensor) -> Tensor:
    """(b, n): query . candidate + constant. On a GPU a count that is no multiple of 8 would halt the fast products."""
    n = len(candidates)
    if candidates.is_cuda and n % 8:
        candidates = F.pad(candidates, (0, 0, 0, -n % 8))
    return torch.addmm(constant, query, candidates.T)[:, :n]


class Quadratic(torch.autograd.Function):
    """x'Ax + c'x of many rows, with both gradients from two products: Y = XA gives dX = g (2Y + c), and dA = (gX)'X."""

    @staticmethod
    def forward(ctx, composed: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
        pushed = composed @ matrix
        ctx.save_for_backward(composed, pushed, vector)
        return torch.linalg.vecdot(pushed, composed) + composed @ vector

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        composed, pushed, vector = ctx.saved_tensors
        weighted = composed * g[:, None]
        dcomposed = torch.add(vector, pushed, alpha=2).mul_(g[:, None])
        return dcomposed, weighted.T @ composed, g @ composed


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
        bag = torch.arange(len(ids), device=ids.device).repeat_interleave(ids.shape[1])
        dots = torch.ops.aten._embedding_bag_per_sample_weights_backward
        scores, shrink = dots(query, table.detach(), ids.flatten(), _starts(ids), bag, 0).view_as(ids), None
        if raw:
            shrink = torch.linalg.vector_norm(table, dim=1).clamp_(min=1e-12).reciprocal_()
            scores.mul_(shrink[ids])
        ctx.save_for_backward(query, table, ids, scores, shrink)
        return scores

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        query, table, ids, scores, shrink = ctx.saved_tensors
        flat = ids.flatten()
        if shrink is not None:
            along = shrink.new_zeros(len(table)).scatter_add_(0, flat, (g * scores).flatten())
            g = g * shrink[ids]
        dquery = F.embedding_bag(flat, table, _starts(ids), mode="sum", per_sample_weights=g.flatten())
        places = flat.argsort(stable=True)
        met = flat.new_zeros(len(table)).scatter_add_(0, flat, torch.ones_like(flat))
        weights, bags = g.flatten()[places], places.div_(ids.shape[1], rounding_mode="floor")
        dtable = F.embedding_bag(bags, query, met.cumsum(0) - met, mode="sum", per_sample_weights=weights)
        if shrink is not None:
            dtable.addcmul_(table, (along * shrink**2)[:, None], value=-1)
        return dquery, dtable, None, None


def _starts(ids: Tensor) -> Tensor:
    """Where each query's bag of ids starts, (b,)."""
    return torch.arange(0, ids.numel(), ids.shape[1], device=ids.device)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """float32 products of CUDA matrices inside the block: "highest" is exact, "high" rounds operands to TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def resolvent(matrix: Tensor, tau: float, bound: float) -> Tensor:
    """W (I - tau W)^-1 for symmetric W whose norm times tau is at most `bound` < 1."""
    return Resolvent.apply(matrix, tau, bound)


class Resolvent(torch.autograd.Function):
    """N = WS with S = (I - tau W)^-1, and its gradient S g S.

    On a GPU S is the product of I + R^(2^k), R = tau W: no factorisation, which is slow there and waits for the host.
    The number of factors follows from the bound on R, so the error is below rounding for every W within its cap.
    """

    @staticmethod
    def forward(ctx, matrix: Tensor, tau: float, bound: float) -> Tensor:
        spread = _inverse_by_squaring(tau * matrix, bound) if matrix.is_cuda else _inverse(tau * matrix)
        ctx.save_for_backward(spread)
        pushed = matrix @ spread
        return (pushed + pushed.T) / 2

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, None, None]:
        (spread,) = ctx.saved_tensors
        return spread @ g @ spread, None, None


def _inverse(power: Tensor) -> Tensor:
    """(I - R)^-1 of a symmetric R."""
    identity = torch.eye(len(power), dtype=power.dtype, device=power.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(identity - power))


def _inverse_by_squaring(power: Tensor, bound: float) -> Tensor:
    """The same as (I + R)(I + R^2)(I + R^4)..., until R^(2^k) is below rounding."""
    spread = power + torch.eye(len(power), dtype=power.dtype, device=power.device)
    needed = math.log(torch.finfo(power.dtype).eps / 4) / math.log(bound)  # the power at which bound^needed is nothing
    for _ in range(math.ceil(math.log2(needed)) - 1):
        power = power @ power
        spread = torch.addmm(spread, spread, power)
    return spread


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its length."""
    return UnitRows.apply(rows)


class UnitRows(torch.autograd.Function):
    """u = e / |e|, with the gradient (g - u (u.g)) / |e|. On a CPU by blocks, so that rows pass through the cache once."""

    @staticmethod
    def forward(ctx, rows: Tensor) -> Tensor:
        if _by_triton(rows):
            from harmonium.kernels import triton

            unit, shrink = triton.unit_rows(rows.contiguous())
            ctx.save_for_backward(unit, shrink)
            return unit
        unit = torch.empty_like(rows)
        shrink = rows.new_empty(*rows.shape[:-1], 1)
        for some, out, scale in _blocks(rows, unit, shrink):
            torch.linalg.vector_norm(some, dim=-1, keepdim=True, out=scale)
            scale.clamp_(min=1e-12).reciprocal_()
            torch.mul(some, scale, out=out)
        ctx.save_for_backward(unit, shrink)
        return unit

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:
        unit, shrink = ctx.saved_tensors
        g = g.to_dense() if g.is_sparse else g
        if _by_triton(g):
            from harmonium.kernels import triton

            return triton.unit_rows_gradient(g.contiguous(), unit, shrink)
        gradient = torch.empty_like(unit)
        for some, direction, scale, out in _blocks(g, unit, shrink, gradient):
            along = torch.linalg.vecdot(some, direction).unsqueeze(-1)
            torch.addcmul(some, direction, along, value=-1, out=out).mul_(scale)
        return gradient


def _by_triton(rows: Tensor) -> bool:
    return rows.is_cuda and rows.dim() == 2 and has_triton()


def _blocks(*tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each table, so many at a time that they stay in a processor's cache; all at once on a GPU."""
    size = len(tables[0]) if tables[0].is_cuda or tables[0].dim() < 2 else BLOCK_ROWS
    return zip(*(table.split(max(size, 1)) for table in tables), strict=True)


def linear_query(form, slot_map) -> tuple[Tensor, Tensor]:
    """The vector (b, slot_dim) and number (b, 1) with score(e) = query.e + constant, up to the quadratic in e.

    With offset o = T0: x'Ax + c'x + k = e'(T'AT)e + (T'(c + 2Ao)).e + form(o).
    """
    if slot_map.composition.is_linear:
        return slot_map.transpose(form.vector), form.constant.expand(len(slot_map.first), 1)
    offset = slot_map.offset  # (b, dim)
    slope = form.vector
    if form.core is not None:
        push = 2 * form.project(offset) @ form.core
        slope = slope + (push if form.basis is None else push @ form.basis.T)
    return slot_map.transpose(slope), form(offset)[:, None]


def _squared_heads(form, slot_map, candidates: Tensor) -> Tensor:
    query, constant = linear_query(form, slot_map)
    scores = linear_scores(constant, query, candidates).contiguous()  # (b, n)
    values, directions = form.principal
    heads = slot_map.heads(directions)  # (b, k, slot_dim)
    step = max(1, PIECE // (max(len(values), 1) * len(candidates)))
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        reach = heads[part] @ candidates.T  # (step, k, n)
        scores[part] += torch.einsum("k,bkn->bn", values, reach.square_())
    return scores


def _in_pieces(form, slot_map, candidates: Tensor) -> Tensor:
    wide = slot_map.beside_candidates()
    per_candidate = len(slot_map.first) * len(form.vector)
    pieces = candidates.split(max(1, PIECE // per_candidate))
    score = lambda e: form(wide.apply(e))  # noqa: E731
    return torch.cat(
        [checkpoint(score, piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces], dim=1
    )


@cache
def keep_freed_memory() -> None:
    """Ask the C library not to hand freed blocks back to the system between steps, only to ask for them again.

    Every step allocates tables of the same sizes; fresh pages cost more than the arithmetic on them. glibc only.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def give_back_freed_memory() -> None:
    """The opposite, for good: a server with many threads would keep the most that each of them ever used."""
    keep_freed_memory()  # done once, it is not done again
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 1 << 16)
        library.mallopt(M_MMAP_THRESHOLD, 1 << 20)  # also keeps glibc from raising it by itself
        library.mallopt(M_TRIM_THRESHOLD, 1 << 24)
