"""Sampled scores of full and low-rank forms in plain PyTorch: any size of block, and operands that are rounded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.kernels import blockwise, dispatch, precision
from harmonium.model.gradient_graph import GradientGraph
from laws import random_triples
from small import make_graph, random_model

SIDES = (Slot.HEAD, Slot.TAIL)


def make_model(name: str, dim: int, **settings: Any) -> GradientGraph:
    return random_model(make_graph(23, 5), name, dim + (dim % 2 if name == "complex" else 0), **settings)


def loss_and_gradients(model: GradientGraph, count: int = 11) -> list[Tensor]:
    """A loss of the scores of both sides, and the gradients of all parameters."""
    generator = torch.Generator().manual_seed(2)
    ids = {slot: torch.randint(model.n_entities, (count, 9), generator=generator) for slot in SIDES}
    weight = torch.randn(2 * count, 9, generator=generator, dtype=torch.float64).to(model.entity.dtype)

    def loss_of(scores: Tensor, part: slice) -> Tensor:
        return (scores * weight[part]).sum(1).mean()

    loss = model.scorer().for_batch(random_triples(model, count=count)).sampled_loss(ids, loss_of)
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("name", ["distmult", "hole", "complex"])
@pytest.mark.parametrize("dim", [1, 6, 7])
@pytest.mark.parametrize("block", [1, 300, 1 << 20])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_blocks_of_any_size_give_the_definition(name, dim, block, reciprocal, monkeypatch) -> None:
    monkeypatch.setattr(blockwise, "NUMBERS_AT_ONCE", block)
    model = make_model(name, dim, reciprocal=reciprocal)
    with dispatch.use("reference"):
        expected = loss_and_gradients(model)
    torch.testing.assert_close(loss_and_gradients(model), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("queries, block", [(1, 1), (7, 60), (512, 1 << 12), (512, 1 << 30)])
def test_blocks_are_all_queries_in_order_and_even(queries: int, block: int, monkeypatch) -> None:
    monkeypatch.setattr(blockwise, "NUMBERS_AT_ONCE", block)
    parts = list(blockwise.query_blocks(torch.zeros(queries, 3), 5))
    assert [i for part in parts for i in range(queries)[part]] == list(range(queries))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) * 15 <= max(block, 15) + 15
    assert len(sizes) == 1 or min(sizes[:-1]) == max(sizes)


@pytest.mark.parametrize(
    "name, rank",
    [("distmult", None), ("hole", None), ("complex", None), ("rescalproduct", None), ("distmult", 5), ("hole", 5)],
)
def test_rounded_operands_err_no_more_than_rounded_parameters(name, rank, monkeypatch) -> None:
    """At most twice as much as float64 does when the parameters alone are rounded."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    model, low = (make_model(name, 64, rank=rank).float() for _ in range(2))
    with precision.matmul_precision("high"):
        rounded = loss_and_gradients(model)
    with dispatch.use("reference"):
        exact, plain = loss_and_gradients(model.double()), loss_and_gradients(low.bfloat16().double())
    for gradient, by_parameters, wanted in zip(rounded[1:], plain[1:], exact[1:], strict=True):
        error, limit = ((each.double() - wanted).norm() / wanted.norm() for each in (gradient, by_parameters))
        assert error <= 2 * limit
        assert gradient.dtype == torch.float32
    assert 0 < (rounded[0] - exact[0]).abs() < 0.02
