"""Sampled scores of full and low-rank forms in plain PyTorch: any size of block, and operands that are rounded."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import harmonium
from harmonium import kernels
from harmonium.composition import find_composition
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony
from harmonium.kernels import precision, quadratic
from harmonium.kernels.precision import matmul_precision, operands
from harmonium.model import GradientGraph
from small import family

SIDES = (Slot.HEAD, Slot.TAIL)
PRODUCTS = ("distmult", "hole", "complex")


def make_model(name: str, dim: int, rank: int | None = None, reciprocal: bool = False) -> GradientGraph:
    dim += dim % 2 if name == "complex" else 0
    form = Harmony(dim, 1.0, rank=rank)
    model = GradientGraph(find_composition(name), 23, 5, dim, form, reciprocal=reciprocal)
    model.initialise("calibrated", torch.Generator().manual_seed(0))
    with torch.no_grad():  # away from the special start
        form.free.add_(torch.randn(form.free.shape, generator=torch.Generator().manual_seed(1)) / len(form.free))
    return model


def loss_and_gradients(model: GradientGraph, count: int = 11) -> list[Tensor]:
    """A loss of the scores of both sides, and the gradients of all parameters."""
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape, of=23: torch.randint(of, shape, generator=generator)  # noqa: E731
    queries = Triples(draw(count), draw(count, of=5), draw(count))
    weight = torch.randn(2 * count, 9, generator=generator, dtype=torch.float64).to(model.entity.dtype)

    def of(scores: Tensor, which: slice) -> Tensor:
        return (scores * weight[which]).sum(1).mean()

    loss = model.snapshot().sampled_loss(queries, {slot: draw(count, 9) for slot in SIDES}, of)
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dim", [1, 6, 7])
@pytest.mark.parametrize("block", [1, 300, 1 << 20])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_blocks_of_any_size_give_the_definition(name, dim, block, reciprocal, monkeypatch) -> None:
    monkeypatch.setattr(quadratic, "BLOCK", block)
    model = make_model(name, dim, reciprocal=reciprocal).double()
    with kernels.use("reference"):
        expected = loss_and_gradients(model)
    for found, wanted in zip(loss_and_gradients(model), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("queries, block", [(1, 1), (7, 60), (512, 1 << 12), (512, 1 << 30)])
def test_blocks_are_all_queries_in_order_and_even(queries: int, block: int, monkeypatch) -> None:
    monkeypatch.setattr(quadratic, "BLOCK", block)
    parts = list(quadratic._blocks(torch.zeros(queries, 3), 5))
    assert [i for part in parts for i in range(queries)[part]] == list(range(queries))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) * 15 <= max(block, 15) + 15
    assert len(sizes) == 1 or min(sizes[:-1]) == max(sizes)


def test_gradients_are_taken_once() -> None:
    model = make_model("hole", 8)
    ids = {slot: torch.arange(12).view(2, 6) for slot in SIDES}
    loss = model.snapshot().sampled_loss(Triples.from_rows([[0, 1, 2], [3, 4, 5]]), ids, lambda s, _: s.square().mean())
    torch.autograd.grad(loss, model.entity, retain_graph=True)
    with pytest.raises(RuntimeError, match="compute the loss again"):
        torch.autograd.grad(loss, model.entity)


@pytest.mark.parametrize(
    "name, rank",
    [("distmult", None), ("hole", None), ("complex", None), ("rescalproduct", None), ("distmult", 5), ("hole", 5)],
)
def test_rounded_operands_err_no_more_than_rounded_parameters(name, rank, monkeypatch) -> None:
    """At most twice as much as float64 does when the parameters alone are rounded."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    model, low = make_model(name, 64, rank), make_model(name, 64, rank)
    with matmul_precision("high"):
        rounded = loss_and_gradients(model)
    with kernels.use("reference"):
        exact, plain = loss_and_gradients(model.double()), loss_and_gradients(low.bfloat16().double())
    for found, allowed, wanted in zip(rounded[1:], plain[1:], exact[1:], strict=True):
        error, most = ((some.double() - wanted).norm() / wanted.norm() for some in (found, allowed))
        assert error <= 2 * most
        assert found.dtype == torch.float32
    assert 0 < (rounded[0] - exact[0]).abs() < 0.02


def test_operands_are_rounded_where_they_may_be_and_it_pays(monkeypatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    table = torch.ones(2, 2)
    assert operands(table) == torch.float32
    with matmul_precision("high"):
        assert operands(table) == torch.bfloat16
        assert operands(table.double()) == torch.float64
        monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
        assert operands(table) == torch.float32
    assert torch.get_float32_matmul_precision() == "highest"


def test_training_may_ask_for_the_highest_precision(monkeypatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    losses = {}
    for wanted in ("high", "highest"):
        sets = ["model.entity_dim=8", "train.epochs=2", "train.device=cpu", f"train.precision={wanted}"]
        losses[wanted] = harmonium.train(data=family(), sets=sets).history.rows[-1]["loss"]
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    plain = harmonium.train(data=family(), sets=sets).history.rows[-1]["loss"]
    assert losses["highest"] == plain != losses["high"]
    assert math.isclose(losses["high"], plain, rel_tol=0.01)
