"""Sampled scores of full quadratic forms on a GPU: slot maps as the fused Triton kernels want them.

A composition that multiplies or correlates (`Composition.product`) is an elementwise product in some basis P: x'Ax = y'My
with y = P known o Pe and M = P diag(weight) A diag(weight) P', one matrix for all (DistMult) or one per relation (HolE, in
the frequency domain). The kernels then gather, compose, multiply and reduce without a (queries, candidates, dim) tensor.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

from harmonium.kernels.precision import may_round


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def obstacle(form, slot_map, table: Tensor) -> str | None:
    """Why these kernels cannot be used, or None when they can."""
    if not table.is_cuda:
        return "the tensors are not on a GPU"
    if not has_triton():
        return "Triton is not installed"
    if form.core is None or form.basis is not None:
        return "the form has no full matrix"
    if slot_map.composition.product(slot_map.select(slice(0, 0))) is None:  # of no queries: costs nothing
        return f"{slot_map.composition.name} is not a product in this slot"
    return None


def sampled_scores(form, slot_maps, table: Tensor, ids) -> list[Tensor]:
    """(b, n) for each slot map: see `reference.sampled_scores`. All are scored in one launch, sharing the matrices."""
    from harmonium.kernels.triton import quadratic_scores

    parts, first = [slot_map.composition.product(slot_map) for slot_map in slot_maps], slot_maps[0]
    linear = [slot_map.transpose(form.vector) for slot_map in slot_maps]
    signs = [part.known.new_full((len(part.known),), -1.0 if part.turned else 1.0) for part in parts]
    queries, basis = [part.known for part in parts], None
    matrix, offsets, join, divide = form.core[None], None, side_by_side, apart
    if parts[0].correlates:
        basis, weights = fourier_basis(table.shape[1], table.dtype, table.device)
        table, linear = table @ basis.T, [some @ basis.T for some in linear]
        queries = [known @ basis.T / weights for known in queries]
    if not first.composition.by_relation:
        group = torch.zeros(len(ids) * len(ids[0]), dtype=torch.int32, device=table.device)
    elif first.in_order and all(slot_map.relation_ids is first.relation_ids for slot_map in slot_maps):
        relations = first.relation_table
        group = first.relation_ids.repeat_interleave(len(ids)).int()
        offsets = torch.searchsorted(group, torch.arange(len(relations) + 1, device=group.device).int(), out_int32=True)
    else:
        ordered, order = torch.cat([slot_map.relation_ids for slot_map in slot_maps]).sort(stable=True)
        group, members = runs(ordered, min(len(ordered), len(first.relation_table)))
        relations, back = first.relation_table[members], order.argsort()
        join, divide = lambda some: torch.cat(some)[order], lambda scores, count: scores[back].chunk(count)
    dtype = torch.bfloat16 if may_round() else torch.float32  # of the products' operands
    if first.composition.by_relation:
        matrix = RelationMatrices.apply(form.core, relations, basis, dtype)
    scores = quadratic_scores(
        table, join(queries), join(list(ids)), matrix, group, join(linear),
        join(signs) if parts[0].correlates else None, offsets, operand_dtype=dtype,
    )  # fmt: skip
    return list(divide(scores + form.constant, len(ids)))


def side_by_side(parts) -> Tensor:
    """(b * k, ...): rows of k tensors (b, ...) in turn, so that what is sorted stays sorted."""
    return torch.stack(list(parts), dim=1).flatten(0, 1)


def apart(rows: Tensor, count: int) -> tuple[Tensor, ...]:
    """The inverse of `side_by_side`."""
    return rows.unflatten(0, (-1, count)).unbind(1)


def runs(ordered: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The number (b,) of each id's run in a sorted list, and the ids (room,) of the runs.

    `room` is at least their number and does not depend on the data, so that nothing waits for the host; the ids of runs
    that are left over mean nothing.
    """
    place = torch.zeros_like(ordered)
    place[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
    return place, ordered.new_zeros(room).scatter_(0, place, ordered)


class RelationMatrices(torch.autograd.Function):
    """M_g = P_g A P_g' with P_g = P diag(r_g), (g, d, d) in the operand type, for symmetric A.

    With U_g = P' dM_g P_g: dA = sum_g diag(r_g) U_g and dr_g = 2 * the row sums of A * U_g. Everything of size
    (g, d, d) is in the operand type and made by matrix products.
    """

    @staticmethod
    def forward(ctx, matrix: Tensor, relations: Tensor, basis: Tensor, dtype: torch.dtype) -> Tensor:
        from harmonium.kernels.triton import scaled_columns

        weighted = scaled_columns(basis.to(dtype), relations.to(dtype))  # P_g: (g, d, dim)
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


@cache
def fourier_basis(dim: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """P (2 * pairs, dim) with orthonormal rows, and the weights with P v = weights * F v, F the discrete transform.

    Coordinates are [real | imaginary] parts of frequencies 0, 1, ...; the imaginary part of frequency 0 is zero, so
    its place holds the real highest frequency when dim is even, and nothing (a zero row) when it is odd.
    """
    pairs = (dim + 1) // 2
    spectrum = torch.fft.rfft(torch.eye(dim, dtype=torch.float64)).T  # (dim // 2 + 1, dim)
    real, imaginary = spectrum.real[:pairs], spectrum.imag[:pairs].clone()
    imaginary[0] = spectrum.real[pairs] if dim % 2 == 0 else 0
    weights = torch.full((2 * pairs,), (2 / dim) ** 0.5, dtype=torch.float64)
    weights[0] = weights[pairs] = dim**-0.5
    basis = torch.cat([real, imaginary]) * weights[:, None]
    return basis.to(device, dtype), weights.to(device, dtype)
