"""Gathered and unit rows and their gradients, against plain indexing and division."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.kernels.gather import gather_dot, gather_rows, sum_by_id
from harmonium.kernels.unit_rows import unit_rows


def check(function: Callable[..., Tensor], definition: Callable[..., Tensor], *shapes: tuple[int, int]) -> None:
    """Both give the same values and gradients for random arguments of these shapes."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    results = []
    for each in (function, definition):
        values = each(*inputs)
        results.append([values, *torch.autograd.grad((values**3).sum(), inputs)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_rows_are_summed_by_id(dtype: torch.dtype, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    ids, rows = torch.randint(8, (count,), generator=generator), torch.randn(count, 3, generator=generator, dtype=dtype)
    torch.testing.assert_close(sum_by_id(ids, rows, 9), torch.zeros(9, 3, dtype=dtype).index_add(0, ids, rows))


def test_gathered_rows() -> None:
    ids = torch.tensor([[4, 0], [4, 2], [4, 4]])
    check(lambda table: gather_rows(table, ids), lambda table: table[ids], (7, 3))


def test_normalised_dots_are_those_of_unit_rows() -> None:
    ids = torch.randint(6, (4, 5), generator=torch.Generator().manual_seed(0))  # 6 does not occur
    check(
        lambda query, table: gather_dot(query, table, ids, True),
        lambda query, table: torch.einsum("bd,bnd->bn", query, F.normalize(table)[ids]),
        (4, 3),
        (7, 3),
    )


@pytest.mark.parametrize("rows", [1, 7, 2049])
def test_unit_rows(rows: int) -> None:
    check(unit_rows, F.normalize, (rows, 5))
