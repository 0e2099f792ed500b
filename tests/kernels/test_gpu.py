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
from kernels.test_triton import DEVICE  # decides how Triton runs, and skips where there is none


@pytest.mark.parametrize("name", ["distmult", "hole", "complex"])
@pytest.mark.parametrize("dim", [6, 7, 16])
@pytest.mark.parametrize("faithfulness", [1.0, math.inf])
def test_scores_and_gradients_equal_the_reference(name: str, dim: int, faithfulness: float, monkeypatch) -> None:
    if name == "complex" and dim % 2:
        dim += 1
    monkeypatch.setattr(gpu, "OPERANDS", torch.float32)
    model = GradientGraph(find_composition(name), 13, 5, dim, Harmony(dim, faithfulness), reciprocal=name == "complex")
    model.initialise("calibrated", torch.Generator().manual_seed(0)).to(DEVICE)
    with torch.no_grad():
        model.form.free.add_(torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE))
    queries = Triples.from_rows([[0, 4, 3], [5, 1, 5], [7, 4, 12], [2, 0, 1]]).to(DEVICE)
    generator = torch.Generator().manual_seed(2)
    ids = {slot: torch.randint(13, (4, 9), generator=generator).to(DEVICE) for slot in (Slot.HEAD, Slot.TAIL)}
    found = []
    for way in ("reference", "gpu"):
        snapshot, parameters = model.snapshot(), list(model.parameters())
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


def test_groups_by_relation() -> None:
    order, group, members, offsets = gpu.group_by_relation(torch.tensor([4, 1, 4, 0]), 9)
    assert order.tolist() == [3, 1, 0, 2]
    assert group.tolist() == [0, 1, 2, 2]
    assert members.tolist()[:3] == [0, 1, 4]
    assert offsets.tolist() == [0, 1, 2, 4, 4]


def test_says_why_it_is_not_chosen() -> None:
    cases = [("hole", None, "the tensors are not on a GPU"), ("tensorproduct", None, "not an elementwise product")]
    for name, rank, reason in cases[: 1 if DEVICE == "cpu" else 2]:
        composition = find_composition(name)
        model = GradientGraph(composition, 13, 5, 4, Harmony(composition.dim(4, 4), rank=rank)).initialise()
        snapshot = model.to(DEVICE).snapshot()
        slot_map = snapshot.slot_map(Slot.TAIL, Triples.from_rows([[0, 0, 0]]).to(DEVICE))
        way, why = kernels.chosen(snapshot.form, slot_map, snapshot.entities)
        assert way == "fused"
        assert reason in why
