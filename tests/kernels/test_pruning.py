"""Ranks by bounds are the ranks of scoring everything."""

from __future__ import annotations

import math

import pytest
import torch

from harmonium import kernels
from harmonium.composition import Composition, find_composition
from harmonium.evaluation import rank
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony
from harmonium.kernels.fused import unit_rows
from harmonium.model import GradientGraph

N_ENTITIES, N_RELATIONS = 60, 4


def model_of(name: str, faithfulness: float, size_of_w: float, size_of_b: float, rank: int | None) -> GradientGraph:
    composition = find_composition(name)
    dim = composition.dim(4, composition.relation_dim(4))
    form = Harmony(dim, faithfulness, cap=min(0.9 * faithfulness, 5.0), rank=rank)
    model = GradientGraph(composition, N_ENTITIES, N_RELATIONS, 4, form)
    model.initialise("paper", torch.Generator().manual_seed(1))
    with torch.no_grad():
        form.free.mul_(size_of_w)
        form.bias.mul_(size_of_b)
        model.entity[7] = model.entity[3]  # two entities that always tie
    return model


def triples() -> Triples:
    generator = torch.Generator().manual_seed(2)
    sizes = (N_ENTITIES, N_RELATIONS, N_ENTITIES)
    return Triples(*(torch.randint(size, (80,), generator=generator) for size in sizes))


@pytest.mark.parametrize("name", sorted(Composition.registry))
@pytest.mark.parametrize("slot", list(Slot))
@pytest.mark.parametrize(
    ("faithfulness", "size_of_w", "size_of_b", "rank_of_w"),
    [(1.0, 100, 100, None), (1.0, 100, 0.01, None), (math.inf, 1, 1, None), (2.0, 1e-3, 1, 2), (50.0, 100, 1e-6, None)],
)
def test_ranks_equal_the_reference(name, slot, faithfulness, size_of_w, size_of_b, rank_of_w) -> None:
    model, facts = model_of(name, faithfulness, size_of_w, size_of_b, rank_of_w), triples()
    found = rank(model, facts, slot)
    with kernels.use("reference"):
        exact = rank(model.double(), facts, slot)
    assert found.values().equal(exact.values())
    assert found.tied.equal(exact.tied)


def test_bounds_decide_most_and_say_so() -> None:
    model = model_of("hole", 1.0, 1.0, 100, None)
    snapshot = model.snapshot()
    with torch.no_grad():
        advantages = snapshot.advantages(*_asked(model))
    assert snapshot.pruner.total == advantages.numel()
    assert snapshot.pruner.skipped > 0.9


def test_a_form_that_bounds_cannot_decide_is_scored_in_full(monkeypatch) -> None:
    monkeypatch.setattr("harmonium.kernels.pruning.MOST", 1)
    model = model_of("hole", 50.0, 1e4, 1e-9, None)
    with torch.no_grad():
        assert model.snapshot().pruner.advantages(*_asked(model)) is None
    assert rank(model, triples(), Slot.TAIL).values().min() >= 1


def _asked(model: GradientGraph) -> tuple:
    snapshot, facts = model.snapshot(), triples()
    return snapshot.slot_map(Slot.TAIL, facts), snapshot.entities, facts.tail


@pytest.mark.parametrize("rows", [1, 7, 2049])
def test_unit_rows_are_normalised_rows(rows: int) -> None:
    vectors = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(rows, 5, dtype=torch.float64)
    plain = torch.nn.functional.normalize(vectors, dim=-1)
    (wanted,) = torch.autograd.grad((plain * weight).sum(), vectors)
    (found,) = torch.autograd.grad((unit_rows(vectors) * weight).sum(), vectors)
    torch.testing.assert_close(unit_rows(vectors), plain)
    torch.testing.assert_close(found, wanted)
