"""Ranks under rounding: equal however they are computed, except where the check says that rounding decides."""

from __future__ import annotations

import copy
import itertools
import math
from functools import partial

import pytest
import torch

from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.ranking import rank
from harmonium.evaluation.rounding_check import RoundingTies, check_rounding
from harmonium.kernels import dispatch
from small import TableScorer, make_graph, random_model

GRAPH = make_graph(n_entities=300, sizes=(600, 10, 30))
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize(
    ("composition", "options"),
    [
        ("hole", {}),
        ("hole", {"rank": 3}),
        ("distmult", {"faithfulness": math.inf}),
        ("complex", {"harmony": False, "reciprocal": True}),
        ("concatenation", {"rank": 2}),
    ],
)
def test_ranks_are_the_same_however_computed_where_rounding_leaves_no_doubt(
    composition: str, options: dict, request: pytest.FixtureRequest
) -> None:
    model = random_model(GRAPH, composition, 12, **options).float()
    with torch.no_grad():
        model.entity[::2] = model.entity[1::2] * (1 + 1e-7 * torch.randn(150, 12))  # twins, but for the last digit
    exact = copy.deepcopy(model).double()
    with dispatch.use("reference"):
        wanted = evaluate_scorer(exact, GRAPH).ranks
    uncertain = evaluate_scorer(RoundingTies(model, exact), GRAPH).ranks
    certain = uncertain.tied == 0
    assert certain.any() and not certain.all()
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    for device, chunk, threads in itertools.product(DEVICES, (5, None), (1, 2)):
        torch.set_num_threads(threads)
        ranks = evaluate_scorer(copy.deepcopy(model).to(device), GRAPH, chunk=chunk, device=device).ranks
        assert ranks.values()[certain].equal(wanted.values()[certain])
        assert (ranks.values("optimistic") >= uncertain.values("optimistic")).all()
        assert (ranks.values("pessimistic") <= uncertain.values("pessimistic")).all()


def test_a_planted_near_tie_is_counted() -> None:
    model = random_model(GRAPH, "hole", 12).float()
    exact = copy.deepcopy(model).double()
    before = check_rounding(model, exact, GRAPH, facts=len(GRAPH.test))
    truth = int(GRAPH.test.tail[0])
    with torch.no_grad():
        twin = next(e for e in range(300) if e != truth and e not in GRAPH.test.tail.tolist())
        model.entity[twin] = model.entity[truth] * (1 + 1e-7)
        exact.load_state_dict(model.state_dict())
    after = check_rounding(model, exact, GRAPH, facts=len(GRAPH.test))
    assert after.queries == before.queries == 60
    assert after.uncertain > before.uncertain
    assert after.most >= 1
    low, high = after.metrics["mrr"]
    assert low < evaluate_scorer(model, GRAPH).metrics["mrr"] < high


def test_scores_apart_by_more_than_rounding_are_certain() -> None:
    scores = torch.tensor([0.0, 1.0, 1.0 + 3e-7, 2.0]).expand(1, 4, 4)
    narrow, wide = TableScorer(scores.bfloat16(), scores), TableScorer(scores.double(), scores)  # they differ by 3e-7
    facts = Triples.from_rows([[1, 0, 0], [2, 0, 3]])
    ranks = rank(RoundingTies(narrow, wide), facts, Slot.HEAD)
    assert ranks.better.tolist() == [1, 1]
    assert ranks.tied.tolist() == [1, 1]
    assert rank(RoundingTies(wide, wide), facts, Slot.HEAD).better.tolist() == [2, 1]
