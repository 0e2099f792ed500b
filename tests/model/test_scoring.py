"""Scorers: defaults, slot maps of selected queries, and batches whose vectors are gathered once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.ranking import rank
from harmonium.kernels import dispatch
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony, Sum
from laws import random_triples
from small import PlainScorer


def make_model(reciprocal: bool = False) -> GradientGraph:
    return GradientGraph(find_composition("hole"), 11, 3, 6, Sum(6), reciprocal=reciprocal).initialise()


def test_a_scorer_needs_one_method() -> None:
    class Ids(PlainScorer):
        def all_scores(self, slot: Slot, queries: Triples) -> Tensor:
            return torch.arange(4.0).repeat(len(queries), 1)

    scorer, queries = Ids(), Triples.from_rows([[0, 0, 2], [1, 0, 3]])
    assert scorer.prepare() is scorer
    assert scorer.world is None
    [(first, scores)] = scorer.score_blocks(Slot.TAIL, queries)
    assert (first, scores.tolist()) == (0, [[0, 1, 2, 3]] * 2)
    assert scorer.exact_scores(Slot.TAIL, queries) is None
    [comparison] = scorer.compare_blocks(Slot.TAIL, queries)
    assert (comparison.start, comparison.low.tolist(), comparison.high.tolist()) == (0, [[2], [3]], [[2], [3]])
    assert torch.equal(comparison.values, scores)


@pytest.mark.parametrize("rows", [slice(1, 4), torch.tensor([3, 1, 3])], ids=["slice", "ids"])
@pytest.mark.parametrize("slot", list(Slot))
def test_the_slot_map_of_selected_queries_is_that_of_these_alone(slot: Slot, rows: slice | Tensor) -> None:
    scorer = make_model(reciprocal=True).scorer()
    queries = random_triples(make_model())
    selected, alone = scorer.slot_map(slot, queries).select(rows), scorer.slot_map(slot, queries[rows])
    assert len(selected) == len(alone) == 3
    for name in ("first", "second", "relation_ids"):
        assert torch.equal(getattr(selected, name), getattr(alone, name))


@pytest.mark.parametrize("name", ["hole", "complex"])
def test_a_zero_w_has_no_directions_to_project_on(name: str) -> None:
    model = GradientGraph(find_composition(name), 11, 3, 6, Harmony(6, rank=2)).initialise()
    model.form.free.data.zero_()
    queries, scorer = random_triples(model), model.scorer()
    with torch.no_grad():
        with dispatch.use("reference"):
            expected, ranks = scorer.score_slot(Slot.TAIL, queries), rank(scorer, queries, Slot.TAIL)
        torch.testing.assert_close(scorer.score_slot(Slot.TAIL, queries), expected)
        assert torch.equal(rank(scorer, queries, Slot.TAIL).better, ranks.better)
