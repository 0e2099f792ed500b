"""The same scores with less work, in plain PyTorch: see `reference` for what they mean.

Linear forms never compose a candidate: score = (T'c).e is one matrix product. Quadratic forms over shared candidates
use squared heads, score = q0.e + sum_k a_k (q_k.e)^2 with A = sum_k a_k u_k u_k' and q_k = T'u_k, so no
(queries, candidates, dim) tensor exists; when gradients are wanted the definition is recomputed in pieces instead.
Where a candidate has fewer coordinates than the form (tensor products), the form is pulled back to it: e'(T'AT)e.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from harmonium.kernels import quadratic
from harmonium.kernels.gpu import has_triton
from harmonium.kernels.precision import operands
from harmonium.kernels.rows import GatherDot, Rows

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
    if _is_full(form, slot_maps[0]):
        return [quadratic.sampled_scores(form, m, table, some) for m, some in zip(slot_maps, ids, strict=True)]
    return list(_joined_scores(form, slot_maps, table, ids, raw).split([len(some) for some in ids]))


def sampled_loss(form, slot_maps, table: Tensor, ids, of, raw: bool = False) -> Tensor | None:
    """The loss of all such scores; None where nothing is gained by asking for it at once."""
    if not _is_full(form, slot_maps[0]):
        return of(_joined_scores(form, slot_maps, table, ids, raw), slice(None))
    if table.is_cuda or not torch.is_grad_enabled():
        return None
    return quadratic.sampled_loss(form, slot_maps, table, ids, of)


def _joined_scores(form, slot_maps, table: Tensor, ids, raw: bool) -> Tensor:
    """Of all sides in one go, one after the other: one gradient of the table's size."""
    queries = [linear_query(form, slot_map) for slot_map in slot_maps]
    query, ids = torch.cat([query for query, _ in queries]), torch.cat(list(ids))
    constant = form.constant if slot_maps[0].composition.is_linear else torch.cat([some for _, some in queries])
    scores = GatherDot.apply(query, table, ids, raw) + constant
    return scores if form.core is None else scores + _quadratic_part(form, slot_maps, table, ids)


def _is_full(form, slot_map) -> bool:
    return form.core is not None and form.basis is None and not _is_smaller(form, slot_map)


def _quadratic_part(form, slot_maps, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): e'T'ATe of the rows ids of a table, all sides in one go."""
    if _is_smaller(form, slot_maps[0]):
        rows = Rows.apply(table, ids)
        return ((rows @ torch.cat([_pulled_back(form, slot_map) for slot_map in slot_maps])) * rows).sum(-1)
    heads = torch.cat([slot_map.heads(form.basis.T) for slot_map in slot_maps])  # (b, rank, slot_dim)
    dtype = operands(table)
    reach = (Rows.apply(table.to(dtype), ids) @ heads.to(dtype).mT).to(table.dtype)
    return ((reach @ form.core) * reach).sum(-1)


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
    if tables[0].is_cuda or tables[0].dim() < 2 or len(tables[0]) <= BLOCK_ROWS:
        return iter([tables])
    return zip(*(table.split(BLOCK_ROWS) for table in tables), strict=True)


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
