"""The Triton backend: sampled scores of full quadratic forms on a GPU.

A slot map that multiplies or correlates (`SlotMapLike.product`) is an elementwise product in a basis P: x'Ax = y'My with
y = P known o Pe and M = P diag(weight) A diag(weight) P', one matrix for all (DistMult) or one per relation (HolE, in the
frequency domain). The kernels then gather, compose, multiply and reduce without a (queries, candidates, dim) tensor.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from harmonium.kernels.gather import number_runs
from harmonium.kernels.interfaces import CorrelationProduct, Product, SlotMapLike
from harmonium.kernels.precision import may_round
from harmonium.kernels.quadratic_form import QuadraticForm


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def obstacle(form: QuadraticForm, slot_map: SlotMapLike, table: Tensor) -> str | None:
    """Why this backend cannot be used; None when it can."""
    if not table.is_cuda:
        return "the tensors are not on a GPU"
    if not has_triton():
        return "Triton is not installed"
    if form.core is None or form.basis is not None:
        return "the form has no full matrix"
    product = slot_map.select(slice(0, 0)).product()  # of no queries: costs nothing
    if product is None:
        return "the composition is not a product in this slot"
    if isinstance(product, CorrelationProduct) and slot_map.relation_ids is None:
        return "dropout gives the queries of a relation different vectors"
    return None


def sampled_scores(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor]
) -> list[Tensor]:
    """(b, n) for each slot map: see `reference.sampled_scores`. All are scored in one launch, sharing the matrices."""
    from harmonium.kernels.triton_quadratic import quadratic_scores

    core = cast(Tensor, form.core)
    products = [cast(Product, slot_map.product()) for slot_map in slot_maps]
    correlations = [product for product in products if isinstance(product, CorrelationProduct)]
    known, linear = [product.known for product in products], [slot_map.transpose(form.vector) for slot_map in slot_maps]
    dtype = torch.bfloat16 if may_round() else torch.float32  # of the products' operands
    if correlations:
        basis, weights = _fourier_basis(table.shape[1], table.dtype, table.device)
        table, linear = table @ basis.T, [vectors @ basis.T for vectors in linear]
        known = [vectors @ basis.T / weights for vectors in known]
        rows, relations, group, offsets = _group_by_relation(slot_maps)
        matrix = _relation_matrices(core, relations, basis, dtype)
        sign = rows.join([_sign(product) for product in correlations])
    else:
        rows, matrix, sign, offsets = _RowOrder(len(ids)), core[None], None, None
        group = torch.zeros(len(ids) * len(ids[0]), dtype=torch.int32, device=table.device)
    scores = quadratic_scores(
        table, rows.join(known), rows.join(ids), matrix, group, rows.join(linear), sign, offsets, operand_dtype=dtype
    )
    return rows.split(scores + form.constant)


def _sign(product: CorrelationProduct) -> Tensor:
    """(b,): which factor of the product of spectra is conjugated, 1 for the known one and -1 for the candidate."""
    return product.known.new_full((len(product.known),), -1.0 if product.candidate_first else 1.0)


def _group_by_relation(slot_maps: Sequence[SlotMapLike]) -> tuple[_RowOrder, Tensor, Tensor, Tensor | None]:
    """Order the queries by relation. Returns the order, the relations (g, dim), the index of the relation of each query,
    and the offset of the first query of each relation, if known.
    """
    first, ids = slot_maps[0], [cast(Tensor, slot_map.relation_ids) for slot_map in slot_maps]
    table = cast(Tensor, first.relation_table)
    if first.sorted_by_relation and all(each is ids[0] for each in ids):
        group = ids[0].repeat_interleave(len(ids)).int()
        starts = torch.searchsorted(group, torch.arange(len(table) + 1, device=group.device).int(), out_int32=True)
        return _RowOrder(len(ids)), table, group, starts
    sorted_ids, order = torch.cat(ids).sort(stable=True)
    group, members = number_runs(sorted_ids, min(len(sorted_ids), len(table)))
    return _RowOrder(len(ids), order), table[members], group, None


@dataclass(frozen=True)
class _RowOrder:
    """An order of the queries of several slot maps: query 0 of each, then query 1 of each, ...; or all queries of one map
    after the other, permuted by `order`.
    """

    n_slot_maps: int
    order: Tensor | None = None

    def join(self, parts: list[Tensor]) -> Tensor:
        """Rows of tensors (b, ...), one for each slot map, in this order."""
        return torch.stack(parts, dim=1).flatten(0, 1) if self.order is None else torch.cat(parts)[self.order]

    def split(self, rows: Tensor) -> list[Tensor]:
        """The inverse of `join`."""
        if self.order is None:
            return list(rows.unflatten(0, (-1, self.n_slot_maps)).unbind(1))
        return list(rows[self.order.argsort()].chunk(self.n_slot_maps))


@cache
def _fourier_basis(dim: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """P (2 * pairs, dim) with orthonormal rows, and the weights with P v = weights * F v, F the discrete transform.

    Coordinates are [real | imaginary] parts of frequencies 0, 1, ...; the imaginary part of frequency 0 is zero, so
    that coordinate holds the real highest frequency when dim is even, and nothing (a zero row) when it is odd.
    """
    pairs = (dim + 1) // 2
    spectrum = torch.fft.rfft(torch.eye(dim, dtype=torch.float64)).T  # (dim // 2 + 1, dim)
    real, imaginary = spectrum.real[:pairs], spectrum.imag[:pairs].clone()
    imaginary[0] = spectrum.real[pairs] if dim % 2 == 0 else 0
    weights = torch.full((2 * pairs,), (2 / dim) ** 0.5, dtype=torch.float64)
    weights[0] = weights[pairs] = dim**-0.5
    basis = torch.cat([real, imaginary]) * weights[:, None]
    return basis.to(device, dtype), weights.to(device, dtype)


def _relation_matrices(matrix: Tensor, relations: Tensor, basis: Tensor, dtype: torch.dtype) -> Tensor:
    """(g, d, d) in the operand dtype: M_g = P_g A P_g' with P_g = P diag(r_g), for symmetric A."""
    matrices: Tensor = _RelationMatrices.apply(matrix, relations, basis, dtype)  # type: ignore[no-untyped-call]
    return matrices


class _RelationMatrices(torch.autograd.Function):
    """With U_g = P' dM_g P_g: dA = sum_g diag(r_g) U_g and dr_g = 2 * the row sums of A * U_g.

    Everything of size (g, d, d) is in the operand dtype and made by matrix products.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, relations: Tensor, basis: Tensor, dtype: torch.dtype) -> Tensor:
        from harmonium.kernels.triton_rows import scaled_columns

        weighted = scaled_columns(basis.to(dtype), relations.to(dtype))  # P_g: (g, d, dim)
        ctx.save_for_backward(matrix, relations, basis, weighted)
        return (weighted @ matrix.to(dtype)) @ weighted.mT

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        matrix, relations, basis, weighted = ctx.saved_tensors
        dtype = weighted.dtype
        pulled = basis.to(dtype).T @ (g.to(dtype) @ weighted)  # U: (g, dim, dim)
        dmatrix = torch.einsum("gi,gij->ij", relations.to(dtype), pulled)
        drelations = 2 * torch.einsum("gij,ij->gi", pulled, matrix.to(dtype))
        return dmatrix.to(matrix.dtype), drelations.to(relations.dtype), None, None
