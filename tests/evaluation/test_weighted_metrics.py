"""Weighted metrics beside the others, where facts have weights: what they are, and where they are seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from harmonium.data.graph import Graph
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.metrics import METRICS, WEIGHTED
from small import make_graph


def with_weights(graph: Graph, **weights: Any) -> Graph:
    splits = {
        split: replace(graph.splits[split], weight=torch.as_tensor(values, dtype=torch.float64))
        for split, values in weights.items()
    }
    return replace(graph, **splits)


def test_a_weight_of_two_is_the_fact_twice_and_of_zero_its_absence() -> None:
    graph = make_graph()
    weighted = with_weights(graph, test=[2.0, 0.0, *[1.0] * 8])
    rows = [0, 0, *range(2, 10)]
    scorer = Frequency(graph)
    metrics = evaluate_scorer(scorer, weighted).metrics
    expected = evaluate_scorer(scorer, graph, triples=graph.test[rows]).metrics
    assert [metrics[name] for name in WEIGHTED] == pytest.approx([expected[name] for name in METRICS], nan_ok=True)
    plain = evaluate_scorer(scorer, graph)
    assert {name: metrics[name] for name in METRICS} == plain.metrics
    assert set(plain.metrics) == set(METRICS)
    assert "weight" not in plain.describe() and "weighted metrics" in evaluate_scorer(scorer, weighted).describe()


def test_parts_have_weighted_metrics_of_their_own() -> None:
    graph = with_weights(make_graph(), test=torch.linspace(0, 1, 10))
    evaluation = evaluate_scorer(Frequency(graph), graph)
    sides = evaluation.by_side
    assert evaluation.metrics["weighted_mrr"] == pytest.approx(
        (sides["head"]["weighted_mrr"] + sides["tail"]["weighted_mrr"]) / 2
    )
    for relation, metrics in evaluation.by_relation.items():
        mine = evaluation.ranks[evaluation.ranks.relation == graph.relations.index(relation)]
        assert mine.weight is not None
        reciprocal = 1 / mine.values()
        assert metrics["weighted_mrr"] == pytest.approx(float((mine.weight * reciprocal).sum() / mine.weight.sum()))


def test_metrics_of_nothing_but_zeros_are_undefined_and_huge_weights_are_not() -> None:
    graph = make_graph()
    for weight, is_defined in ((0.0, False), (1e308, True)):
        metrics = evaluate_scorer(Frequency(graph), with_weights(graph, test=[weight] * 10)).metrics
        assert math.isfinite(metrics["mrr"]) and math.isfinite(metrics["weighted_mrr"]) == is_defined


# Doctor --------------------------------------------------------------------------------------------------------------
