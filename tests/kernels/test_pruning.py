"""Ranks by bounds are the ranks of scoring everything."""

from __future__ import annotations

import math

import pytest
import torch

from harmonium.data.triples import Slot
from harmonium.evaluation.ranking import rank
from harmonium.kernels import dispatch
from harmonium.kernels.pruning import Pruner
from harmonium.model.composition import Composition, find_composition
from harmonium.model.exact_scores import Comparison
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from laws import random_triples


def model_of(name: str, faithfulness: float, size_of_w: float, size_of_b: float, rank: int | None) -> GradientGraph:
    composition = find_composition(name)
    dim = composition.dim(4, composition.relation_dim(4))
    form = Harmony(dim, faithfulness, cap=min(0.9 * faithfulness, 5.0), rank=rank)
    model = GradientGraph(composition, 60, 4, 4, form)
    model.initialise("paper", torch.Generator().manual_seed(1))
    with torch.no_grad():
        form.free.mul_(size_of_w)
        form.bias.mul_(size_of_b)
        model.entity[7] = model.entity[3]  # two entities that always tie
    return model


@pytest.mark.parametrize("name", sorted(Composition.registry))
@pytest.mark.parametrize("slot", list(Slot))
@pytest.mark.parametrize(
    ("faithfulness", "size_of_w", "size_of_b", "rank_of_w"),
    [(1.0, 100, 100, None), (1.0, 100, 0.01, None), (math.inf, 1, 1, None), (2.0, 1e-3, 1, 2), (50.0, 100, 1e-6, None)],
)
def test_ranks_equal_the_reference(name, slot, faithfulness, size_of_w, size_of_b, rank_of_w) -> None:
    model = model_of(name, faithfulness, size_of_w, size_of_b, rank_of_w)
    facts = random_triples(model, count=80)
    pruned = rank(model, facts, slot)
    with dispatch.use("reference"):
        exact = rank(model.double(), facts, slot)
    assert pruned.values().equal(exact.values())
    assert pruned.tied.equal(exact.tied)


def compare(model: GradientGraph) -> tuple[Pruner, Comparison]:
    scorer = model.prepare()
    [comparison] = scorer.compare_blocks(Slot.TAIL, random_triples(model, count=80))
    return scorer.pruner, comparison


@torch.no_grad()
def test_bounds_decide_most_and_say_so() -> None:
    pruner, comparison = compare(model_of("hole", 1.0, 1.0, 100, None))
    assert pruner.total == comparison.values.numel()
    assert comparison.decide is None
    assert pruner.skipped > 0.9
