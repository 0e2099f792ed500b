"""Scores of all candidates under a W of low rank: values and gradients equal the reference for any size and block."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.kernels import dispatch, projections, torch_backend
from harmonium.model.gradient_graph import GradientGraph
from laws import random_triples
from small import make_graph, random_model

BLOCKS = {"one query at a time": 1, "a few queries": 4000, "all at once": 1 << 30}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def make_model(name: str, n_entities: int, dim: int, rank: int, **settings: Any) -> GradientGraph:
    graph = make_graph(n_entities, 3, sizes=(1, 0, 0))
    return random_model(graph, name, dim, rank=rank, faithfulness=2.0, **settings)


def loss_and_gradients(model: GradientGraph, slot: Slot, count: int) -> list[Tensor]:
    """A loss of the scores of all candidates for an open slot, and the gradients of all parameters."""
    scores = model.scorer().for_batch(random_triples(model, count=count).to(model.entity.device)).score_slot(slot)
    weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(scores)
    loss = (scores.sin() * weight).sum()
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["projected twice", "projections kept"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("queries, n_entities, dim, rank", [(1, 7, 2, 1), (7, 97, 8, 3), (5, 1025, 6, 6)])
def test_values_and_gradients_are_those_of_the_definition(
    queries, n_entities, dim, rank, block, kept, device, monkeypatch
) -> None:
    monkeypatch.setattr(projections, "BLOCK", dict.fromkeys(("cpu", "cuda"), block))
    monkeypatch.setattr(projections, "KEPT", kept)
    for name, slot in (("complex", Slot.TAIL), ("hole", Slot.HEAD), ("concatenation", Slot.TAIL)):
        model = make_model(name, n_entities, dim, rank, reciprocal=name == "complex").to(device)
        with dispatch.use("reference"):
            expected = loss_and_gradients(model, slot, queries)
        torch.testing.assert_close(loss_and_gradients(model, slot, queries), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rank", [1, 5])
def test_the_error_in_float32_is_that_of_the_reference(rank: int) -> None:
    """At most twice the reference's own error against float64."""
    model = make_model("complex", 301, 16, rank)
    exact = loss_and_gradients(model, Slot.TAIL, 9)
    rounded = model.float()
    measured = loss_and_gradients(rounded, Slot.TAIL, 9)
    with dispatch.use("reference"):
        reference = loss_and_gradients(rounded, Slot.TAIL, 9)
    for value, ours, theirs in zip(exact, measured, reference, strict=True):
        scale = value.abs().max()
        assert (ours - value).abs().max() <= 2 * (theirs - value).abs().max() + 1e-6 * scale


def test_no_candidate_is_composed(monkeypatch) -> None:
    model = make_model("complex", 97, 8, 3, reciprocal=True)
    monkeypatch.setattr(torch_backend, "_composed_in_pieces", None)
    for slot in Slot:
        loss_and_gradients(model, slot, 7)


def test_gradients_of_frozen_candidates_are_not_computed() -> None:
    core, directions, candidates = torch.eye(2), torch.ones(3, 2, 4), torch.ones(5, 4)
    directions.requires_grad_()
    projections.quadratic_scores(core, directions, candidates).sum().backward(retain_graph=True)
    assert torch.equal(directions.grad, torch.full((3, 2, 4), 2 * 4 * 5.0))
    assert candidates.grad is None
    projections.quadratic_scores(core, directions, candidates).sum().backward()
    assert torch.equal(directions.grad, torch.full((3, 2, 4), 2 * 2 * 4 * 5.0))


def test_gradients_can_be_taken_twice() -> None:
    parts = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 2), (3, 2, 4), (5, 4))]
    scores = projections.quadratic_scores(*parts).sum()
    first = torch.autograd.grad(scores, parts, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(scores, parts), first)
    # the gradient in N is symmetric only for a symmetric N, which every form has
    symmetric = (parts[0].detach() + parts[0].detach().T).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda core, *rest: projections.quadratic_scores((core + core.T) / 2, *rest), (symmetric, *parts[1:])
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_a_cuda_graph_can_record_it(kept: int, monkeypatch) -> None:
    monkeypatch.setattr(projections, "KEPT", kept)
    model = make_model("complex", 97, 8, 3, reciprocal=True).cuda()
    expected = loss_and_gradients(model, Slot.TAIL, 7)
    scorer_inputs = random_triples(model, count=7).to("cuda")
    weight = torch.randn(7, 97, generator=torch.Generator().manual_seed(3), dtype=torch.float64).cuda()

    def step() -> list[Tensor]:
        loss = (model.scorer().for_batch(scorer_inputs).score_slot(Slot.TAIL).sin() * weight).sum()
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    torch.testing.assert_close(recorded, expected, rtol=1e-9, atol=1e-9)
