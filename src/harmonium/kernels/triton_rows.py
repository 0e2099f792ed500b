"""Passes over rows by Triton kernels: unit rows, scaled columns, complex products, sums of cubes, an Adagrad update."""

from typing import Any

import torch
import triton
from torch import Tensor

from harmonium.kernels.triton_kernels import (
    adagrad_kernel,
    complex_product_gradients_kernel,
    complex_product_kernel,
    scaled_columns_gradients_kernel,
    scaled_columns_kernel,
    sum_of_cubes_gradient_kernel,
    sum_of_cubes_kernel,
    unit_rows_gradient_kernel,
    unit_rows_kernel,
)


def scaled_columns(matrix: Tensor, scales: Tensor) -> Tensor:
    """(g, m, n): matrix (m, n) with column j times scales[g, j], for each row of scales (g, n)."""
    out = scales.new_empty(len(scales), *matrix.shape)
    if len(scales):
        scaled_columns_kernel[(triton.cdiv(matrix.numel(), 4096), len(scales))](
            matrix.contiguous(), scales.contiguous(), out, matrix.numel(), matrix.shape[1], SIZE=4096
        )
    return out


def scaled_columns_gradients(g: Tensor, matrix: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `scaled_columns` in the matrix and in the scales, for g (g, m, n)."""
    (n_rows, width), count, rows, size = matrix.shape, len(scales), 16, 128
    dmatrix, dscales = torch.zeros_like(matrix), scales.new_zeros(triton.cdiv(n_rows, rows), count, width)
    if count and matrix.numel():
        grid = len(dscales), triton.cdiv(width, size)
        scaled_columns_gradients_kernel[grid](
            g.contiguous(), matrix.contiguous(), scales.contiguous(), dmatrix, dscales, n_rows, width, n_rows * width,
            COUNT=count, PADDED=triton.next_power_of_2(count), ROWS=rows, SIZE=size, num_warps=4,
        )  # fmt: skip
    return dmatrix, dscales.sum(0)


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, d) divided by their lengths, and one over the lengths (n, 1)."""
    unit, inverse_length = torch.empty_like(rows), rows.new_empty(len(rows), 1)
    _by_rows(unit_rows_kernel, rows, unit, inverse_length)
    return unit, inverse_length


def unit_rows_gradient(g: Tensor, unit: Tensor, inverse_length: Tensor) -> Tensor:
    """(g - u (u.g)) / |e| for g (n, d)."""
    out = torch.empty_like(unit)
    _by_rows(unit_rows_gradient_kernel, g, unit, inverse_length, out)
    return out


def complex_product(left: Tensor, right: Tensor, conjugate: bool) -> Tensor:
    """left * right, or conj(left) * right, of rows (n, d) of real parts, then imaginary ones."""
    out = torch.empty_like(right, memory_format=torch.contiguous_format)
    _by_columns(complex_product_kernel, left, right, out, parts=2, SIGN=-1 if conjugate else 1)
    return out


def complex_product_gradients(g: Tensor, left: Tensor, right: Tensor, conjugate: bool) -> tuple[Tensor, Tensor]:
    """The gradients in left and right."""
    dleft, dright = (torch.empty_like(right, memory_format=torch.contiguous_format) for _ in range(2))
    sign = -1 if conjugate else 1
    _by_columns(complex_product_gradients_kernel, g, left, right, dleft, dright, parts=2, SIGN=sign)
    return dleft, dright


def sum_of_cubes(vectors: Tensor, parts: int) -> Tensor:
    """(): the sum of cubed magnitudes of rows (n, d), whose coordinates have `parts` numbers each, d / parts apart."""
    sums, width = vectors.new_empty(len(vectors)), vectors.shape[1] // parts
    if len(vectors):
        sum_of_cubes_kernel[(len(vectors),)](vectors.contiguous(), sums, width, PARTS=parts, SIZE=1024, num_warps=4)
    return sums.sum()


def sum_of_cubes_gradient(vectors: Tensor, g: Tensor, parts: int) -> Tensor:
    """(n, d): 3 g m v with m the magnitudes."""
    out = torch.empty_like(vectors, memory_format=torch.contiguous_format)
    _by_columns(sum_of_cubes_gradient_kernel, vectors, g, out, parts=parts, PARTS=parts)
    return out


def adagrad(parameter: Tensor, squares: Tensor, gradient: Tensor, rate: Tensor, eps: float) -> None:
    """squares += g^2, parameter -= rate g / (sqrt(squares) + eps), in one pass; parameter and squares are contiguous."""
    count, size = parameter.numel(), 1024
    if count:
        grid = (triton.cdiv(count, size),)
        adagrad_kernel[grid](parameter, squares, gradient.contiguous(), rate, count, eps, SIZE=size, num_warps=4)


def _by_rows(kernel: Any, *tables: Tensor) -> None:
    """One pass over the rows of contiguous tables, several rows to a program."""
    n, d = tables[0].shape
    size = triton.next_power_of_2(d)
    rows = max(1, 4096 // size)
    if n:
        kernel[(triton.cdiv(n, rows),)](*tables, n, d, ROWS=rows, SIZE=size, num_warps=8 if size > 4096 else 4)


def _by_columns(kernel: Any, *tensors: Tensor, parts: int, **constants: int) -> None:
    """One pass over rows (n, d), as the last tensor has: a program takes SIZE of the d / parts coordinates of a row."""
    n, width = len(tensors[-1]), tensors[-1].shape[1] // parts
    if n and width:
        grid = n, triton.cdiv(width, 1024)
        kernel[grid](*(tensor.contiguous() for tensor in tensors), width, **constants, SIZE=1024, num_warps=4)
