"""The torch backend: the scores that `reference` defines, with less work, in plain PyTorch.

Linear forms never compose a candidate: score = (T'c).e is one matrix product. Quadratic forms over shared candidates
use squared projections, score = q0.e + sum_k a_k (q_k.e)^2 with A = sum_k a_k u_k u_k' and q_k = T'u_k, so no
(queries, candidates, dim) tensor exists. When gradients are wanted, W of low rank is projected on its own directions,
and the definition with a full W is recomputed in pieces. The loss against all candidates is in cross_entropy.py.
Where a candidate has fewer coordinates than the form (tensor products), the form is pulled back to it: e'(T'AT)e.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from harmonium.kernels import blockwise
from harmonium.kernels.cross_entropy import Shard
from harmonium.kernels.cross_entropy import cross_entropy as projected_cross_entropy
from harmonium.kernels.gather import gather_dot, gather_rows
from harmonium.kernels.interfaces import ElementwiseProduct, Loss, SlotMapLike
from harmonium.kernels.precision import operand_dtype
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.kernels.reference import weighted_cross_entropy
from harmonium.kernels.scaled_columns import scaled_columns

MAX_SQUARES = 1024  # products of two coordinates kept for each candidate
NUMBERS_PER_PIECE = 1 << 24  # of work, held at once (64 MB of float32)


def all_scores(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor) -> Tensor:
    if form.core is None:
        query, constant = linear_query(form, slot_map)
        return _linear_scores(constant, query, candidates)
    if _is_smaller(form, slot_map) and slot_map.slot_dim**2 <= MAX_SQUARES:
        query, constant = linear_query(form, slot_map)
        squares = (candidates[:, :, None] * candidates[:, None, :]).flatten(1)  # (n, slot_dim^2)
        return _linear_scores(constant, query, candidates) + _pulled_back(form, slot_map).flatten(1) @ squares.T
    if not torch.is_grad_enabled():
        return _squared_projections(form, slot_map, candidates)
    if form.basis is None:
        return _composed_in_pieces(form, slot_map, candidates)
    return _projected_scores(form, slot_map, candidates)


def cross_entropy(
    form: QuadraticForm,
    slot_maps: Sequence[SlotMapLike],
    candidates: Tensor,
    target: Tensor,
    smoothing: float,
    weights: Tensor | None = None,
    query_of: Tensor | None = None,
    shard: Shard | None = None,
) -> Tensor:
    """The mean cross-entropy, weighted if there are weights, of the answers (m,) to the queries of all slot maps."""
    if not can_share(form, slot_maps[0]):
        scores = torch.cat([all_scores(form, slot_map, candidates) for slot_map in slot_maps])
        return weighted_cross_entropy(
            scores if query_of is None else scores[query_of], target, smoothing, weights, shard
        )
    vectors = torch.cat([query_vectors(form, slot_map) for slot_map in slot_maps], dim=1)  # (1 + rank, m, slot_dim)
    core = vectors.new_zeros(0, 0) if form.core is None else form.core
    return projected_cross_entropy(vectors, core, candidates, target, smoothing, weights, query_of, shard)


def sampled_scores(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor], normalise: bool
) -> list[Tensor]:
    if _is_full(form, slot_maps[0]):
        pairs = zip(slot_maps, ids, strict=True)
        return [blockwise.sampled_scores(form, slot_map, table, candidates) for slot_map, candidates in pairs]
    scores = _sampled_without_composing(form, slot_maps, table, ids, normalise)
    return list(scores.split([len(candidates) for candidates in ids]))


def sampled_loss(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor], normalise: bool, loss: Loss
) -> Tensor | None:
    """The loss of `sampled_scores` computed block by block; None if that would not be faster."""
    if not _is_full(form, slot_maps[0]):
        return loss(_sampled_without_composing(form, slot_maps, table, ids, normalise), slice(None))
    if table.is_cuda or not torch.is_grad_enabled():
        return None
    return blockwise.sampled_loss(form, slot_maps, table, ids, loss)


def can_share(form: QuadraticForm, slot_map: SlotMapLike) -> bool:
    """Whether shared candidates can be scored by a matrix product, without composing them."""
    return form.core is None or (form.basis is not None and not _is_smaller(form, slot_map))


def shared_scores(form: QuadraticForm, slot_map: SlotMapLike, table: Tensor, ids: Tensor) -> Tensor:
    query, constant = linear_query(form, slot_map)
    vectors = query[:, None]
    if form.basis is not None:
        vectors = torch.cat([vectors, slot_map.pull_back(form.basis.T)], dim=1)  # (b, 1 + rank, slot_dim)
    rows = F.embedding(ids, table)  # (g, n, slot_dim)
    products = vectors.reshape(len(ids), -1, rows.shape[-1]) @ rows.mT
    products = products.view(*vectors.shape[:2], -1)  # (b, 1 + rank, n)
    if form.core is None:
        return products[:, 0] + constant
    projected = products[:, 1:].mT  # (b, n, rank)
    return products[:, 0] + ((projected @ form.core) * projected).sum(-1) + constant


def query_vectors(form: QuadraticForm, slot_map: SlotMapLike) -> Tensor:
    """(1 + rank, b, slot_dim): the linear query, then the pulled-back directions of the form's basis."""
    if form.basis is None:
        return linear_query(form, slot_map)[0][None]
    product = slot_map.product()
    if isinstance(product, ElementwiseProduct):
        return scaled_columns(product.known, torch.cat([form.vector[None], form.basis.T]))
    return torch.cat([linear_query(form, slot_map)[0][None], slot_map.pull_back(form.basis.T).transpose(0, 1)])


def linear_query(form: QuadraticForm, slot_map: SlotMapLike) -> tuple[Tensor, Tensor]:
    """The vector (b, slot_dim) and number (b, 1) with score(e) = query.e + constant, up to the quadratic in e.

    With offset o = T0: x'Ax + c'x + k = e'(T'AT)e + (T'(c + 2Ao)).e + form(o).
    """
    if slot_map.is_linear:
        return slot_map.transpose(form.vector), form.constant.expand(len(slot_map), 1)
    offset = slot_map.offset  # (b, dim)
    slope = form.vector
    if form.core is not None:
        push = 2 * form.project(offset) @ form.core
        slope = slope + (push if form.basis is None else push @ form.basis.T)
    return slot_map.transpose(slope), form(offset)[:, None]


def quadratic_size(form: QuadraticForm, slot_map: SlotMapLike) -> Tensor:
    """(b,): magnitude of the quadratic terms that `all_scores` sums, for candidates of unit length; for error bounds."""
    if form.core is None:
        return form.vector.new_zeros(len(slot_map))
    if _is_smaller(form, slot_map):
        return _pulled_back(form, slot_map).square().sum((-2, -1)).sqrt()
    values, directions = form.principal
    if not len(values):  # W is zero
        return form.vector.new_zeros(len(slot_map))
    step = max(1, NUMBERS_PER_PIECE // directions.numel())
    starts = range(0, len(slot_map), step)
    parts = [slot_map.select(slice(start, start + step)).pull_back(directions) for start in starts]
    squares = torch.cat([vectors.square().sum(-1) for vectors in parts])  # (b, k)
    return (values * squares).square().sum(-1).sqrt()  # not their sum: rounding errors are independent


def _linear_scores(constant: Tensor, query: Tensor, candidates: Tensor) -> Tensor:
    """(b, n): query . candidate + constant."""
    return torch.addmm(constant, query, _padded(candidates).T)[:, : len(candidates)]


def _padded(candidates: Tensor) -> Tensor:
    """On a GPU the candidates padded to a multiple of 8, for fast products."""
    n = len(candidates)
    return F.pad(candidates, (0, 0, 0, -n % 8)) if candidates.is_cuda and n % 8 else candidates


def _squared_projections(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor) -> Tensor:
    query, constant = linear_query(form, slot_map)
    scores = _linear_scores(constant, query, candidates).contiguous()  # (b, n)
    values, directions = form.principal
    if not len(values):  # W is zero
        return scores
    vectors = slot_map.pull_back(directions)  # (b, k, slot_dim)
    step = max(1, NUMBERS_PER_PIECE // (len(values) * len(candidates)))
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        projected = vectors[part] @ candidates.T  # (step, k, n)
        scores[part] += torch.einsum("k,bkn->bn", values, projected.square_())
    return scores


def _projected_scores(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor) -> Tensor:
    """Differentiable: 1 + rank products with each candidate, by the linear query and the directions of W."""
    core, basis = cast(Tensor, form.core), cast(Tensor, form.basis)
    query, constant = linear_query(form, slot_map)
    projected = slot_map.pull_back(basis.T) @ candidates.T  # (b, rank, n)
    return _linear_scores(constant, query, candidates) + ((core @ projected) * projected).sum(1)


def _composed_in_pieces(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor) -> Tensor:
    """By the definition, in pieces; composed vectors are computed again in the backward pass and not kept."""
    maps = slot_map.beside_candidates()

    def score(piece: Tensor) -> Tensor:
        return form(maps.apply(piece))

    pieces = candidates.split(max(1, NUMBERS_PER_PIECE // (len(slot_map) * len(form.vector))))
    scores = [checkpoint(score, piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
    return torch.cat(scores, dim=1)


def _sampled_without_composing(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor], normalise: bool
) -> Tensor:
    """(sum of b, n): scores of all slot maps, stacked, from one gather, so with one gradient of the table's size."""
    queries = [linear_query(form, slot_map) for slot_map in slot_maps]
    query, stacked = torch.cat([query for query, _ in queries]), torch.cat(ids)
    constant = form.constant if slot_maps[0].is_linear else torch.cat([constant for _, constant in queries])
    scores = gather_dot(query, table, stacked, normalise) + constant
    return scores if form.core is None else scores + _quadratic_part(form, slot_maps, table, stacked)


def _quadratic_part(form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: Tensor) -> Tensor:
    """(sum of b, n): e'T'ATe of the rows ids of the table, of all slot maps, stacked."""
    if _is_smaller(form, slot_maps[0]):
        rows = gather_rows(table, ids)
        return ((rows @ torch.cat([_pulled_back(form, slot_map) for slot_map in slot_maps])) * rows).sum(-1)
    core, basis = cast(Tensor, form.core), cast(Tensor, form.basis)
    vectors = torch.cat([slot_map.pull_back(basis.T) for slot_map in slot_maps])  # (b, rank, slot_dim)
    dtype = operand_dtype(table)
    projected = (gather_rows(table.to(dtype), ids) @ vectors.to(dtype).mT).to(table.dtype)
    return ((projected @ core) * projected).sum(-1)


def _is_full(form: QuadraticForm, slot_map: SlotMapLike) -> bool:
    return form.core is not None and form.basis is None and not _is_smaller(form, slot_map)


def _is_smaller(form: QuadraticForm, slot_map: SlotMapLike) -> bool:
    """Whether a candidate has fewer coordinates than the quadratic part of the form."""
    return form.core is not None and slot_map.slot_dim < len(form.core)


def _pulled_back(form: QuadraticForm, slot_map: SlotMapLike) -> Tensor:
    """T'AT (b, slot_dim, slot_dim): the quadratic part as a form in the candidate."""
    projected = form.project(slot_map.dense())  # (b, slot_dim, rank)
    return projected @ cast(Tensor, form.core) @ projected.mT
