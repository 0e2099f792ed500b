"""Sampled scores of full quadratic forms on a GPU: slot maps as the fused Triton kernels want them.

A composition that is an elementwise product in some basis P (`Composition.elementwise`) has x'Ax = y'My with
y = query o Pe and M = P diag(weight) A diag(weight) P': one matrix for all (DistMult), or one per relation (HolE, in the
frequency domain). The kernels then gather, compose, multiply and reduce without a (queries, candidates, dim) tensor.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor
from torch.nn import functional as F

OPERANDS = torch.bfloat16  # of the products; sums are float32. Tests set float32.


def obstacle(form, slot_map, table: Tensor) -> str | None:
    """Why these kernels cannot be used, or None when they can."""
    if not table.is_cuda:
        return "the tensors are not on a GPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if form.core is None or form.basis is not None:
        return "the form has no full matrix"
    if slot_map.composition.elementwise(slot_map) is None:
        return f"{slot_map.composition.name} is not an elementwise product in this slot"
    return None


def sampled_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): see `reference.sampled_scores`."""
    from harmonium.kernels.triton import quadratic_scores

    part = slot_map.composition.elementwise(slot_map)
    query, linear = part.query, slot_map.transpose(form.vector)
    if part.basis is not None:
        table, linear = table @ part.basis.T, linear @ part.basis.T
    mode = "complex" if part.is_complex else "product"
    if not part.weighted:
        group = torch.zeros_like(ids[:, 0], dtype=torch.int32)
        parts = (table, query, ids, form.core[None], group, linear, mode, part.conjugate)
        return quadratic_scores(*parts, operand_dtype=OPERANDS) + form.constant
    order, group, members, offsets = group_by_relation(slot_map.relation_ids, len(slot_map.relation_table))
    matrix = RelationMatrices.apply(form.core, F.embedding(members, slot_map.relation_table), part.basis, OPERANDS)
    sorted_ = (F.embedding(order, query), ids[order], matrix, group, F.embedding(order, linear))
    scores = quadratic_scores(table, *sorted_, mode, part.conjugate, offsets, operand_dtype=OPERANDS)
    return torch.empty_like(scores).index_copy(0, order, scores) + form.constant


def group_by_relation(relation_ids: Tensor, n_relations: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries in order of relation: their order (b,), group of each (b,), relation of each group (g,), offsets (g + 1,).

    g = min(b, n_relations) whatever the data, so that nothing waits for the host; groups that are left over are empty.
    """
    ordered, order = relation_ids.sort(stable=True)
    group = torch.zeros_like(ordered)
    group[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
    places = torch.arange(min(len(ordered), n_relations) + 1, device=group.device)
    members = torch.zeros_like(places[:-1]).scatter_(0, group, ordered)
    return order, group.int(), members, torch.searchsorted(group, places).int()


class RelationMatrices(torch.autograd.Function):
    """M_g = P diag(r_g) A diag(r_g) P' (g, d, d), in the operand type; gradients by the same products transposed."""

    @staticmethod
    def forward(ctx, matrix: Tensor, relations: Tensor, basis: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(matrix, relations, basis)
        ctx.operands = dtype
        turn, r = basis.to(dtype), relations
        weighted = (r[:, :, None] * matrix * r[:, None, :]).to(dtype)
        return turn @ (weighted @ turn.T)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        matrix, relations, basis = ctx.saved_tensors
        turn = basis.to(ctx.operands)
        back = turn.T @ (g.to(ctx.operands) @ turn)  # (g, dim, dim): the gradient of diag(r) A diag(r), symmetric
        pulled = (back * relations[:, None, :]).to(relations.dtype)  # columns weighted
        dmatrix = torch.einsum("gi,gij->ij", relations, pulled)
        drelations = 2 * (pulled * matrix).sum(-1)
        return dmatrix, drelations, None, None
