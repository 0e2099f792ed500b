"""The loss against all candidates: values and gradients equal the reference for any form, size and block."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.kernels import cross_entropy, dispatch, precision, reference
from harmonium.model.gradient_graph import GradientGraph
from laws import random_triples
from small import make_graph, random_model

BLOCKS = {"one query at a time": 1, "a few queries": 4000, "all at once": 1 << 30}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make_model(name: str, n_entities: int, dim: int, **settings: Any) -> GradientGraph:
    graph = make_graph(n_entities, 3, sizes=(1, 0, 0))
    return random_model(graph, name, dim, faithfulness=2.0, **settings)


def loss_and_gradients(model: GradientGraph, count: int, smoothing: float = 0.0) -> list[Tensor]:
    """The loss over entities and over relations, and the gradients of all parameters."""
    scorer = model.scorer().for_batch(random_triples(model, count=count).to(model.entity.device))
    loss = scorer.entity_cross_entropy(smoothing) + 0.7 * scorer.relation_cross_entropy(smoothing)
    return [loss, *torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["multiplied twice", "products kept"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize(
    "queries, n_entities, dim, rank", [(1, 7, 2, 1), (7, 97, 8, 3), (5, 1025, 6, 6), (9, 50, 4, 0)]
)
def test_values_and_gradients_are_those_of_the_definition(
    queries, n_entities, dim, rank, block, kept, smoothing, device, monkeypatch
) -> None:
    monkeypatch.setattr(cross_entropy, "PRODUCTS_AT_ONCE", dict.fromkeys(("cpu", "cuda"), block))
    monkeypatch.setattr(cross_entropy, "PRODUCTS_KEPT", dict.fromkeys(("cpu", "cuda"), kept))
    for name in ("complex", "hole", "concatenation"):
        form = {"rank": rank} if rank else {"harmony": False}
        model = make_model(name, n_entities, dim, reciprocal=name == "complex", **form).to(device)
        with dispatch.use("reference"):
            expected = loss_and_gradients(model, queries, smoothing)
        measured = loss_and_gradients(model, queries, smoothing)
        torch.testing.assert_close(measured, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_the_error_in_float32_is_that_of_the_reference(rank: int) -> None:
    """At most twice the reference's own error against float64."""
    model = make_model("complex", 301, 16, **({"rank": rank} if rank else {"harmony": False}))
    exact = loss_and_gradients(model, 9)
    rounded = model.float()
    measured = loss_and_gradients(rounded, 9)
    with dispatch.use("reference"):
        reference = loss_and_gradients(rounded, 9)
    for value, ours, theirs in zip(exact, measured, reference, strict=True):
        scale = value.abs().max()
        assert (ours - value).abs().max() <= 2 * (theirs - value).abs().max() + 1e-6 * scale


@pytest.mark.parametrize("rank", [0, 4])
def test_operands_are_rounded_where_candidates_are_many(rank: int, monkeypatch) -> None:
    """On a CPU: gradients in training precision are near the exact ones, and exact for few candidates."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    for n_candidates, rounds in ((50, False), (cross_entropy.MIN_ROUNDED_CANDIDATES, True)):
        vectors, core, table, target = problem(9, n_candidates, 16, rank, torch.float32)
        vectors, table = (tensor.requires_grad_() for tensor in (vectors, table))

        def gradients(setting: str) -> list[Tensor]:
            with precision.matmul_precision(setting):
                loss = cross_entropy.cross_entropy(vectors, core / 10, table, target)  # noqa: B023
                return [loss, *torch.autograd.grad(loss, [vectors, table])]  # noqa: B023

        for exact, rounded in zip(gradients("highest"), gradients("high"), strict=True):
            assert exact.dtype == rounded.dtype == torch.float32
            assert rounded.equal(exact) != rounds
            assert (rounded - exact).norm() < 0.03 * exact.norm()


def problem(queries: int, candidates: int, dim: int, rank: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Vectors, symmetric N, candidates and targets."""
    generator = torch.Generator().manual_seed(queries + candidates + dim + rank)
    shapes = ((1 + rank, queries, dim), (rank, rank), (candidates, dim))
    vectors, core, table = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    return [vectors, (core + core.T) / 2, table, torch.randint(candidates, (queries,), generator=generator)]


def test_large_scores_do_not_overflow() -> None:
    vectors, core, candidates, target = problem(4, 9, 3, 0)
    loss = cross_entropy.cross_entropy(1e4 * vectors, core, candidates, target)
    torch.testing.assert_close(loss, F.cross_entropy(1e4 * vectors[0] @ candidates.T, target))


@pytest.mark.parametrize("rank", [0, 2])
def test_the_loss_of_a_query_is_multiplied_by_its_weight(rank: int, monkeypatch) -> None:
    monkeypatch.setattr(cross_entropy, "PRODUCTS_AT_ONCE", {"cpu": 20})  # several blocks of queries
    vectors, core, candidates, target = problem(5, 9, 4, rank)
    weights = torch.tensor([0.0, 0.3, 1.0, 2.0, 0.5], dtype=torch.float64)
    parts = [vectors.requires_grad_(), candidates.requires_grad_()]

    def one_query(number: int) -> Tensor:
        row = slice(number, number + 1)
        return cross_entropy.cross_entropy(vectors[:, row], core, candidates, target[row], 0.1)

    measured = cross_entropy.cross_entropy(vectors, core, candidates, target, 0.1, weights)
    expected = torch.stack([one_query(number) for number in range(5)]) @ weights / 5
    torch.testing.assert_close(measured, expected)
    gradients = [torch.autograd.grad(loss, parts) for loss in (measured, expected)]
    torch.testing.assert_close(*gradients)


@needs_gpu
@pytest.mark.parametrize("rank", [0, 3, 8])
@pytest.mark.parametrize("queries, candidates, dim", [(7, 97, 8), (64, 5001, 96), (3, 40_000, 16)])
def test_bfloat16_operands_change_gradients_by_their_rounding(
    queries: int, candidates: int, dim: int, rank: int
) -> None:
    parts = [part.cuda() for part in problem(queries, candidates, dim, rank)]
    parts[0] /= dim**0.5
    parts[1] /= max(1, rank)

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        leaves = [part.detach().to(dtype).requires_grad_() for part in parts[:3]]
        loss = cross_entropy.cross_entropy(*leaves, parts[3], 0.1)
        return [loss, *torch.autograd.grad(loss, leaves)]

    torch.set_float32_matmul_precision("high")
    try:
        rounded = gradients(torch.float32)
    finally:
        torch.set_float32_matmul_precision("highest")
    for exact, ours in zip(gradients(torch.float64), rounded, strict=True):
        if exact.numel():
            assert (ours - exact).abs().max() <= 0.03 * exact.abs().max()


# Candidates sharded over processes --------------------------------------------------------------------------------


class Threads:
    """Processes as threads, which exchange what `World` does."""

    def __init__(self, size: int) -> None:
        self.size, self.values = size, dict[int, tuple[Tensor, Tensor]]()
        self.barrier, self.local = threading.Barrier(size), threading.local()

    def sum_of_exponentials(self, logs: Tensor, summed: Tensor) -> tuple[Tensor, Tensor]:
        self.values[self.local.rank] = logs, summed
        self.barrier.wait(30)
        parts = [self.values[rank] for rank in range(self.size)]
        self.barrier.wait(30)
        return torch.stack([part[0] for part in parts]).logsumexp(0), torch.stack([part[1] for part in parts]).sum(0)

    def run(self, function: Callable[[int], list[Tensor]]) -> list[list[Tensor]]:
        def call(rank: int) -> list[Tensor]:
            self.local.rank = rank
            return function(rank)

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(call, range(self.size)))


@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["multiplied twice", "products kept"])
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("rank, smoothing", [(0, 0.0), (3, 0.1)])
@pytest.mark.parametrize("sizes", [(50,), (26, 24), (17, 17, 16, 0)])
def test_the_parts_of_processes_add_up_to_the_loss_and_its_gradients(
    sizes, rank, smoothing, backend, kept, monkeypatch
) -> None:
    monkeypatch.setattr(cross_entropy, "PRODUCTS_KEPT", dict.fromkeys(("cpu", "cuda"), kept))
    monkeypatch.setattr(cross_entropy, "PRODUCTS_AT_ONCE", dict.fromkeys(("cpu", "cuda"), 200))
    torch.manual_seed(0)
    vectors, core, table, _ = problem(9, 50, 6, rank, torch.float64)
    query_of = torch.arange(9).repeat_interleave(torch.tensor([1, 3, 1, 2, 1, 1, 4, 1, 1]))
    target = torch.randint(50, (len(query_of),))
    weights = torch.rand(len(query_of), dtype=torch.float64)
    vectors, core, table = (tensor.requires_grad_() for tensor in (vectors, core, table))

    def loss_of(table: Tensor, shard: cross_entropy.Shard | None) -> Tensor:
        if backend == "torch":
            return cross_entropy.cross_entropy(vectors, core, table, target, smoothing, weights, query_of, shard)
        products = vectors @ table.T
        scores = products[0] + (products[1:] * torch.einsum("kl,lqn->kqn", core, products[1:])).sum(0)
        return reference.weighted_cross_entropy(scores[query_of], target, smoothing, weights, shard)

    expected = loss_of(table, None)
    gradients = torch.autograd.grad(expected, [vectors, core, table], allow_unused=True, materialize_grads=True)
    threads, starts = Threads(len(sizes)), [sum(sizes[:number]) for number in range(len(sizes))]

    def part(number: int) -> list[Tensor]:
        local = table.detach()[starts[number] : starts[number] + sizes[number]].requires_grad_()
        loss = loss_of(local, cross_entropy.Shard(starts[number], 50, threads))
        found = torch.autograd.grad(loss, [vectors, core, local], allow_unused=True, materialize_grads=True)
        return [loss.detach(), *found]

    parts = threads.run(part)
    for column, whole in enumerate((expected.detach(), *gradients[:2])):
        torch.testing.assert_close(sum(each[column] for each in parts), whole)
    torch.testing.assert_close(torch.cat([each[3] for each in parts]), gradients[2])
