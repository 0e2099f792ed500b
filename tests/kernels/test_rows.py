"""Rows of a table and their gradients, against plain indexing."""

from __future__ import annotations

import pytest
import torch

from harmonium.kernels.fused import unit_rows
from harmonium.kernels.rows import GatherDot, KnownRows, Rows, add_up


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_rows_are_added_up_by_id(dtype: torch.dtype, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    ids, rows = torch.randint(8, (count,), generator=generator), torch.randn(count, 3, generator=generator, dtype=dtype)
    torch.testing.assert_close(add_up(ids, rows, 9), torch.zeros(9, 3, dtype=dtype).index_add(0, ids, rows))


def test_rows_and_their_gradient() -> None:
    table = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[4, 0], [4, 2], [4, 4]])
    found, expected = Rows.apply(table, ids), table[ids]
    assert torch.equal(found, expected)
    grads = [torch.autograd.grad((some**3).sum(), table)[0] for some in (found, expected)]
    torch.testing.assert_close(*grads)


def test_known_rows_and_their_gradient_beside_another_use_of_the_table() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([4, 0, 4, 2])  # one twice

    def use(rows: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (rows**2).sum() + (other.sum(0) ** 3).sum()

    (expected,) = torch.autograd.grad(use(table[ids], table), table)
    (found,) = torch.autograd.grad(use(*KnownRows.apply(table, ids)), table)
    torch.testing.assert_close(found, expected)
    (alone,) = torch.autograd.grad((KnownRows.apply(table, ids)[0] ** 2).sum(), table)
    torch.testing.assert_close(alone, torch.autograd.grad((table[ids] ** 2).sum(), table)[0])


def test_scores_of_raw_rows_are_those_of_unit_rows_with_their_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(7, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    query = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    ids, weight = torch.randint(6, (4, 5), generator=generator), torch.randn(4, 5, generator=generator)  # 6 is not met
    expected = torch.einsum("bd,bnd->bn", query, unit_rows(table)[ids])
    found = GatherDot.apply(query, table, ids, True)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        *(torch.autograd.grad((s * weight).sum(), (query, table)) for s in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other)
