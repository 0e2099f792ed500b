"""plan(): memory is counted as tensors hold it, and time is multiplied out from what is measured."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

import harmonium
from harmonium.config.settings import Config, EvaluateConfig
from harmonium.model.build import build_model
from harmonium.training.search import planning
from small import family, make_graph


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "time_steps", partial(planning.time_steps, seconds=0.15))
    monkeypatch.setattr(planning, "RANKING_SECONDS", 0.05)


def test_time_is_that_of_all_steps_and_rankings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a step took two seconds, and ranking one second per triple."""
    monkeypatch.setattr(planning, "time_steps", lambda *_: 2.0)
    monkeypatch.setattr(planning, "_time_ranking", lambda scorer, graph, protocol, triples, _: float(len(triples)))
    overrides = ["train.epochs=12", "train.evaluate_every=5", "train.batch_size=64"]
    plan = harmonium.plan(family(), "paper", overrides)
    assert (plan.epochs, plan.steps, plan.step_seconds) == (12, math.ceil(100 / 64), 2)
    assert plan.seconds["steps"] == 12 * 2 * 2
    assert plan.seconds["validations"] == 3 * 10  # after epochs 5, 10 and 12
    assert plan.seconds["final evaluation"] == 10 + 10  # of the model and of the baseline
    assert plan.total_seconds == sum(plan.seconds.values())
    more = [*overrides, "train.constraints=true", "train.constraint_seconds=7", "train.last_training=true"]
    whole = harmonium.plan(family(), "paper", more).seconds
    assert whole["path rules, at most"] == 7
    assert whole["last training"] == pytest.approx(12 * 2 * 2 * 120 / 100, abs=0.1)  # on the facts of all splits


@pytest.mark.parametrize(
    "more",
    [[], ["model.rank=3"], ["model.harmony=false"], ["model.reciprocal=true"], ["model.composition=tensorproduct"]],
)
def test_parameters_are_counted_without_building_the_model(more: list[str]) -> None:
    graph, config = family(), Config.read(None, ["model.entity_dim=6", *more])
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    assert planning.count_parameters(config, graph) == sum(p.numel() for p in model.parameters())


def test_ranking_time_is_extrapolated_from_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranking that takes 2 s and 10 ms per triple, on a simulated clock."""
    clock = 0.0

    def rank(scorer: Any, graph: Any, protocol: Any, triples: Any, device: Any) -> None:
        nonlocal clock
        clock += 2 + 0.01 * len(triples)

    graph = make_graph(30, 4, (1000, 1, 1))
    monkeypatch.setattr(planning, "evaluate_scorer", rank)
    monkeypatch.setattr(planning, "now", lambda: clock)
    monkeypatch.setattr(planning, "MAX_SCORES_HELD", {"cpu": 100 * 30})
    seconds = planning._time_ranking(None, graph, EvaluateConfig(), graph.train, planning.torch.device("cpu"))
    assert seconds == pytest.approx(2 + 0.01 * 1000)
    assert clock == pytest.approx(2 * (2 + 0.01) + 2 + 0.01 * 100)  # only one, one and a hundred were ranked
