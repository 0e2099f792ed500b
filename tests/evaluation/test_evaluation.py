"""Evaluations: their parts, samples, summaries and baselines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import SPLITS
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.evaluation import (
    EvaluationSummary,
    describe_protocol,
    evaluate_scorer,
    evaluate_with_baselines,
)
from small import make_graph, random_table

GRAPH = make_graph(n_entities=20, sizes=(80, 10, 30))


def test_parts_add_up() -> None:
    result = evaluate_scorer(random_table(GRAPH, 50, 1), GRAPH)
    relations = result.by_relation
    assert sum(part["queries"] for part in relations.values()) == len(result.ranks) == 60
    mean = sum(part["queries"] * part["mrr"] for part in relations.values()) / 60
    assert mean == pytest.approx(result.metrics["mrr"])
    categories = [part for sides in result.by_category.values() for part in sides.values()]
    assert sum(part["queries"] for part in categories) == 60
    assert (result.by_side["head"]["mrr"] + result.by_side["tail"]["mrr"]) / 2 == pytest.approx(result.metrics["mrr"])
    assert "filtered by train+valid+test" in describe_protocol(result.protocol)
    assert [row["queries"] for row in result.records()][:3] == [60, 30, 30]


def test_a_constant_scorer_is_at_chance() -> None:
    constant = random_table(GRAPH, 1, 0)
    assert evaluate_scorer(constant, GRAPH).metrics["amri"] == pytest.approx(0, abs=1e-12)
    assert evaluate_scorer(constant, GRAPH, EvaluateConfig(ties="optimistic")).metrics["mrr"] == 1


def test_a_sample_is_ranked_exactly_and_labelled() -> None:
    graph = make_graph(n_entities=40, sizes=(200, 20, 300))
    scorer, protocol = random_table(graph, 50, 1), EvaluateConfig(sample=50)
    whole, sampled = evaluate_scorer(scorer, graph), evaluate_scorer(scorer, graph, protocol)
    assert len(sampled.ranks) == 100
    assert evaluate_scorer(scorer, graph, protocol).metrics == sampled.metrics
    assert set(sampled.ranks.values().tolist()) <= set(whole.ranks.values().tolist())
    label = "estimated from 50 of 300 facts drawn at random"
    assert sampled.estimate and sampled.summary().describe().endswith(label)
    assert sampled.to_json()["estimate"]["words"].startswith(label)
    assert sampled.to_json()["protocol"]["sample"] == 50
    assert all(row["estimated"] == label for row in sampled.records())
    for name, (low, high) in sampled.estimate.intervals.items():
        assert low < sampled.metrics[name] < high, name
    assert evaluate_scorer(scorer, graph, EvaluateConfig(sample=300)).to_json() == whole.to_json()


@pytest.mark.parametrize("protocol", [EvaluateConfig(), EvaluateConfig(sample=5, ties="pessimistic", side="tail")])
def test_a_summary_comes_back_from_json(protocol: EvaluateConfig) -> None:
    scorer = random_table(GRAPH, 50, 1)
    summary = evaluate_with_baselines(scorer, GRAPH, protocol)
    frequency = evaluate_scorer(Frequency(GRAPH), GRAPH, protocol)
    assert summary and summary.baselines["frequency"] == {**frequency.metrics, "queries": len(frequency.ranks)}
    stored = json.loads(json.dumps(summary.to_json()))
    assert stored["protocol"]["filter"] == list(SPLITS)
    assert stored["baselines"] == summary.baselines
    assert EvaluationSummary.from_json(stored) == summary


def test_without_test_facts_the_summary_is_of_valid() -> None:
    scorer, nothing = random_table(GRAPH, 50, 1), GRAPH.test[:0]
    summary = evaluate_with_baselines(scorer, replace(GRAPH, test=nothing), EvaluateConfig())
    assert summary and summary.protocol.split == "valid"
    assert evaluate_with_baselines(scorer, replace(GRAPH, test=nothing, valid=nothing), EvaluateConfig()) is None
    unseen = replace(GRAPH, train=GRAPH.train[:1], valid=nothing)  # no test fact has only seen entities
    assert evaluate_with_baselines(scorer, unseen, EvaluateConfig(unseen="drop")) is None


def test_no_facts_left_to_rank_is_an_error() -> None:
    last = GRAPH.n_entities - 1
    unseen = replace(GRAPH, train=GRAPH.train[:1], test=Triples.from_rows([[last, 0, last]]))
    with pytest.raises(HarmoniumError, match="no test facts are left to rank; set unseen=keep"):
        evaluate_scorer(Frequency(unseen), unseen, EvaluateConfig(unseen="drop"))
