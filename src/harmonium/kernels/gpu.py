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
    if slot_map.composition.elementwise(slot_map.select(slice(0, 0))) is None:  # of no queries: costs nothing
        return f"{slot_map.composition.name} is not an elementwise product in this slot"
    return None


def sampled_scores(form, slot_maps, table: Tensor, ids) -> list[Tensor]:
    """(b, n) for each slot map: see `reference.sampled_scores`. All are scored in one launch, sharing the matrices."""
    from harmonium.kernels.triton import quadratic_scores

    parts = [slot_map.composition.elementwise(slot_map) for slot_map in slot_maps]
    query = torch.cat([part.query for part in parts])
    linear = torch.cat([slot_map.transpose(form.vector) for slot_map in slot_maps])
    everyone, first = torch.cat(list(ids)), parts[0]
    if first.basis is not None:
        table, linear = table @ first.basis.T, linear @ first.basis.T
    sign = None
    if first.is_complex:
        sign = torch.cat([p.query.new_full((len(p.query),), -1.0 if p.conjugate else 1.0) for p in parts])
    if not first.weighted:
        group = torch.zeros_like(everyone[:, 0], dtype=torch.int32)
        scores = quadratic_scores(table, query, everyone, form.core[None], group, linear, sign, operand_dtype=OPERANDS)
    else:
        relation_ids, relations = torch.cat([s.relation_ids for s in slot_maps]), slot_maps[0].relation_table
        order, group, members, offsets = group_by_relation(relation_ids, len(relations))
        matrix = RelationMatrices.apply(form.core, F.embedding(members, relations), first.basis, OPERANDS)
        query, linear = F.embedding(order, query), F.embedding(order, linear)
        sorted_ = quadratic_scores(
            table, query, everyone[order], matrix, group, linear, sign[order], offsets, operand_dtype=OPERANDS
        )
        scores = torch.empty_like(sorted_).index_copy(0, order, sorted_)
    return list((scores + form.constant).split([len(part) for part in ids]))


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
    """M_g = P_g A P_g' with P_g = P diag(r_g), (g, d, d) in the operand type, for symmetric A.

    With U_g = P' dM_g P_g: dA = sum_g diag(r_g) U_g and dr_g = 2 * the row sums of A * U_g. Everything of size
    (g, d, d) is in the operand type and made by matrix products.
    """

    @staticmethod
    def forward(ctx, matrix: Tensor, relations: Tensor, basis: Tensor, dtype: torch.dtype) -> Tensor:
        weighted = basis.to(dtype) * relations.to(dtype)[:, None, :]  # P_g: (g, d, dim)
        ctx.save_for_backward(matrix, relations, basis, weighted)
        return (weighted @ matrix.to(dtype)) @ weighted.mT

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        matrix, relations, basis, weighted = ctx.saved_tensors
        dtype = weighted.dtype
        pulled = basis.to(dtype).T @ (g.to(dtype) @ weighted)  # U: (g, dim, dim)
        dmatrix = torch.einsum("gi,gij->ij", relations.to(dtype), pulled)
        drelations = 2 * torch.einsum("gij,ij->gi", pulled, matrix.to(dtype))
        return dmatrix.to(matrix.dtype), drelations.to(relations.dtype), None, None
