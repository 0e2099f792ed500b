"""Weights of validation and test facts as examples: of probabilities, of answer sets, of missing facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from harmonium.answers.calibration.conformal import Surprises
from harmonium.answers.calibration.temperature import fit_temperature
from harmonium.config.settings import ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.build import build_model
from harmonium.model.scoring import Scorer
from small import make_graph

MODEL = ModelConfig("distmult", 8)


def graph_and_model() -> tuple[Graph, Scorer]:
    return make_graph(20, 3, (200, 90, 90)), build_model(MODEL, 20, 3)


def weigh(facts: Triples, weights: Any) -> Triples:
    return replace(facts, weight=torch.as_tensor(weights, dtype=torch.float64).expand(len(facts)).clone())


def test_the_confidence_of_a_triple_is_the_weight_of_the_fact() -> None:
    facts = weigh(Triples.from_rows([[0, 0, 1], [1, 0, 2], [2, 1, 0]]), [0.3, 2.0, 0.0])
    asked = Triples.from_rows([[1, 0, 2], [0, 0, 2], [0, 0, 1], [2, 1, 0], [0, 0, 1]])
    assert facts.confidence_of(asked).tolist() == [1.0, 0.0, 0.3, 0.0, 0.3]
    assert replace(facts, weight=None).confidence_of(asked).tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert facts.positive().to_rows().tolist() == [[0, 0, 1], [1, 0, 2]]


def test_the_temperature_is_that_of_weighted_facts() -> None:
    graph, model = graph_and_model()
    half = torch.arange(90) < 45
    facts = weigh(graph.valid, half.double())
    expected = fit_temperature(model, Slot.TAIL, graph.valid[half], 20)
    assert fit_temperature(model, Slot.TAIL, facts, 20) == pytest.approx(expected, rel=0.1)


def test_answer_sets_cover_by_weight() -> None:
    """The facts that surprise most do not count."""
    surprise = torch.linspace(0, 10, 1000)
    weight = (surprise < 5).double()
    weighted = Surprises(1.0, [0] * 1000, surprise.tolist(), [True] * 1000, weight.tolist())
    part = Surprises(1.0, [0] * 500, surprise[:500].tolist(), [True] * 500)
    any_relation = torch.tensor([-1])
    limits = [s.thresholds(0.9, any_relation, False).item() for s in (weighted, part)]
    assert limits[0] == pytest.approx(limits[1], abs=0.02)
