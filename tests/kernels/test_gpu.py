"""The GPU way of sampled scores against the reference: on a GPU for real, else in Triton's interpreter, tiny sizes."""

from __future__ import annotations

import math

import pytest
import torch

from harmonium import kernels
from harmonium.composition import find_composition
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony
from harmonium.kernels import gpu
from harmonium.model import GradientGraph
from harmonium.stepping import distinct_relations
from kernels.test_triton import DEVICE  # decides how Triton runs, and skips where there is none


@pytest.mark.parametrize("name", ["distmult", "hole", "complex"])
@pytest.mark.parametrize("dim", [6, 7, 16])
@pytest.mark.parametrize("faithfulness", [1.0, math.inf])
@pytest.mark.parametrize("in_order", [False, True])
def test_scores_and_gradients_equal_the_reference(name, dim, faithfulness, in_order) -> None:
    if name == "complex" and dim % 2:
        dim += 1
    model = GradientGraph(find_composition(name), 13, 5, dim, Harmony(dim, faithfulness), reciprocal=name == "complex")
    model.initialise("calibrated", torch.Generator().manual_seed(0)).to(DEVICE)
    with torch.no_grad():
        model.form.free.add_(torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE))
    queries = Triples.from_rows([[0, 4, 3], [5, 1, 5], [7, 4, 12], [2, 0, 1]]).to(DEVICE)
    generator, relations = torch.Generator().manual_seed(2), None
    ids = {slot: torch.randint(13, (4, 9), generator=generator).to(DEVICE) for slot in (Slot.HEAD, Slot.TAIL)}
    if in_order:
        relations, queries = distinct_relations(queries[queries.relation.argsort(stable=True)], 4)
    found = []
    for way in ("reference", "gpu"):
        snapshot, parameters = model.snapshot(None, relations), list(model.parameters())
        maps = [snapshot.slot_map(slot, queries) for slot in ids]
        parts = (snapshot.entities, list(ids.values()))
        if way == "gpu":
            scores = torch.cat(gpu.sampled_scores(snapshot.form, maps, *parts))
        else:
            with kernels.use("reference"):
                scores = torch.cat(kernels.sampled_scores(snapshot.form, maps, *parts))
        found.append([scores, *torch.autograd.grad(scores.sin().sum(), parameters, allow_unused=True)])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-4)


def test_runs_of_a_sorted_list() -> None:
    place, ids = gpu.runs(torch.tensor([0, 1, 4, 4]), 5)
    assert place.tolist() == [0, 1, 2, 2]
    assert ids.tolist()[:3] == [0, 1, 4]


@pytest.mark.parametrize("n, d", [(1, 1), (5, 7), (33, 130)])
def test_unit_rows_and_their_gradient(n: int, d: int) -> None:
    from harmonium.kernels import triton

    generator = torch.Generator().manual_seed(0)
    rows, g = (torch.randn(n, d, generator=generator).to(DEVICE) for _ in range(2))
    rows[0] = 0
    unit, shrink = triton.unit_rows(rows)
    rows.requires_grad_()
    expected = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(unit, expected.detach())
    expected[1:].backward(g[1:])
    torch.testing.assert_close(triton.unit_rows_gradient(g, unit, shrink)[1:], rows.grad[1:])


def test_scaled_columns() -> None:
    from harmonium.kernels.triton import scaled_columns

    matrix, scales = torch.randn(67, 65, device=DEVICE), torch.randn(3, 65, device=DEVICE)
    torch.testing.assert_close(scaled_columns(matrix, scales), matrix * scales[:, None])


def test_says_why_it_is_not_chosen() -> None:
    on_cpu, on_gpu = (
        ("hole", None, "the tensors are not on a GPU"),
        ("tensorproduct", None, "not a product"),
    )
    for name, rank, reason in [
        on_cpu if DEVICE == "cpu" else on_gpu,
        *([("hole", 2, "no full matrix")] * (DEVICE != "cpu")),
    ]:
        composition = find_composition(name)
        model = GradientGraph(composition, 13, 5, 4, Harmony(composition.dim(4, 4), rank=rank)).initialise()
        snapshot = model.to(DEVICE).snapshot()
        slot_map = snapshot.slot_map(Slot.TAIL, Triples.from_rows([[0, 0, 0]]).to(DEVICE))
        way, why = kernels.chosen(snapshot.form, slot_map, snapshot.entities)
        assert way == "fused"
        assert reason in why
