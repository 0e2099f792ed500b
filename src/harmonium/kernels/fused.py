"""The same scores with less work, in plain PyTorch: see `reference` for what they mean.

Linear forms never compose a candidate: score = (T'c).e is one matrix product. Quadratic forms over shared candidates
use squared heads, score = q0.e + sum_k a_k (q_k.e)^2 with A = sum_k a_k u_k u_k' and q_k = T'u_k, so no
(queries, candidates, dim) tensor exists; when gradients are wanted the definition is recomputed in pieces instead.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from harmonium.kernels import reference

PIECE = 1 << 24  # numbers held at once by a piece of work (64 MB of float32)


def all_scores(form, slot_map, candidates: Tensor) -> Tensor:
    if form.core is None:
        query, constant = _linear_query(form, slot_map)
        return torch.addmm(constant, query, candidates.T)
    if torch.is_grad_enabled():
        return _in_pieces(form, slot_map, candidates)
    return _squared_heads(form, slot_map, candidates)


def sampled_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    if form.core is not None and form.basis is None:
        return reference.sampled_scores(form, slot_map, table, ids)
    query, constant = _linear_query(form, slot_map)
    rows = F.embedding(ids, table)  # (b, n, slot_dim)
    if form.core is None:
        return torch.baddbmm(constant[..., None], rows, query[..., None]).squeeze(-1)
    heads = torch.cat([query[:, None], slot_map.heads(form.basis.T)], dim=1)  # (b, 1 + rank, slot_dim)
    linear, reach = (rows @ heads.mT).split([1, form.basis.shape[1]], dim=-1)
    return linear.squeeze(-1) + ((reach @ form.core) * reach).sum(-1) + constant


def _linear_query(form, slot_map) -> tuple[Tensor, Tensor]:
    """The vector (b, slot_dim) and number (b, 1) with score(e) = query.e + constant, up to the quadratic in e.

    With offset o = T0: x'Ax + c'x + k = e'(T'AT)e + (T'(c + 2Ao)).e + form(o).
    """
    offset = slot_map.offset  # (b, dim)
    slope = form.vector
    if form.core is not None:
        push = 2 * form.project(offset) @ form.core
        slope = slope + (push if form.basis is None else push @ form.basis.T)
    return slot_map.transpose(slope), form(offset)[:, None]


def _squared_heads(form, slot_map, candidates: Tensor) -> Tensor:
    query, constant = _linear_query(form, slot_map)
    scores = torch.addmm(constant, query, candidates.T)  # (b, n)
    values, directions = torch.linalg.eigh(form.core)  # A = sum_k values_k u_k u_k' with u = F directions
    kept = values.abs() > values.abs().max() * len(values) * torch.finfo(values.dtype).eps
    values, directions = values[kept], directions.T[kept]
    heads = slot_map.heads(directions if form.basis is None else directions @ form.basis.T)  # (b, k, slot_dim)
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
    return torch.cat([checkpoint(lambda e: form(wide.apply(e)), piece, use_reentrant=False) for piece in pieces], dim=1)
