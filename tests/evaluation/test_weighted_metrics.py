"""Weighted metrics beside the others, where facts have weights: what they are, and where they are seen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium
from harmonium.data.checks.diagnosis import diagnose
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.evaluation import EvaluationSummary, evaluate_scorer
from harmonium.evaluation.metrics import METRICS, WEIGHTED, decisive
from harmonium.training.search.held_out import HeldOut
from harmonium.training.train import read_settings
from small import family, make_graph

SETTINGS = {"model": "complex", "dim": 8, "epochs": 4, "evaluate_every": 2, "loss": "full", "device": "cpu"}


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


def test_models_are_compared_by_weighted_metrics_where_there_are_any() -> None:
    assert decisive({"mrr": 0.1, "weighted_mrr": 0.2}, "mrr") == 0.2
    assert decisive({"mrr": 0.1}, "mrr") == 0.1
    graph = family(20)
    weights = torch.linspace(0, 1, 10)
    config = read_settings(None, [f"{key}={value}" for key, value in SETTINGS.items()])
    held_out = HeldOut(replace(graph, valid=graph.valid[:0]), graph, with_weights(graph, valid=weights).valid)
    plain = replace(held_out, facts=graph.valid).reciprocal_ranks(config, torch.device("cpu"), None)
    weighted = held_out.reciprocal_ranks(config, torch.device("cpu"), None)
    assert weighted.mean().item() == pytest.approx(float(plain @ weights.double().repeat(2) / weights.sum() / 2))


def test_a_run_keeps_both(tmp_path: Path) -> None:
    graph = family(20)
    graph = with_weights(graph, train=torch.linspace(0.1, 1, 40), valid=[0.5] * 10, test=torch.linspace(0, 1, 10))
    harmonium.convert(graph, tmp_path / "facts.graph")
    run = harmonium.train(load(tmp_path / "facts.graph"), out=tmp_path / "run", **SETTINGS)
    assert run.evaluation is not None
    metrics = harmonium.Run.load(tmp_path / "run").metrics
    assert metrics == run.metrics and metrics["weighted_mrr"] != metrics["mrr"]
    assert all("weighted_mrr" in row["valid"] for row in run.history.rows if "valid" in row)
    assert EvaluationSummary.from_json(run.evaluation.to_json()) == run.evaluation


# Doctor --------------------------------------------------------------------------------------------------------------


def test_the_doctor_describes_weights() -> None:
    graph = with_weights(make_graph(), train=[0.0, 0.2, 3.0, *[1.0] * 37])
    (finding,) = [finding for finding in diagnose(graph).findings if finding.name == "weights of facts"]
    assert finding.level == "warning"
    assert finding.numbers["low"] == 2 and finding.numbers["above one"] == 1
    assert finding.numbers["zero"] == {"train": 1, "valid": 0, "test": 0}
    assert finding.numbers["quartiles"] == [1.0, 1.0, 1.0]
    assert finding.examples[0] == " · ".join(graph.names_of(graph.train)[0]) + " 0"
    assert all(finding.name != "weights of facts" for finding in diagnose(make_graph()).findings)


def test_the_doctor_counts_facts_with_different_weights() -> None:
    rows = {"head": list("aab"), "relation": list("rrr"), "tail": list("bbc"), "sure": [0.6, 0.9, 0.7]}
    graph = load(rows, weight_column="sure", valid=0, test=0)
    (finding,) = [finding for finding in diagnose(graph).findings if finding.name == "weights of facts"]
    assert finding.numbers["different"] == 1 and finding.level == "warning"
