"""Estimates beside what really happens, on a small scale."""

from __future__ import annotations

import math
import time

import pytest
import torch

import harmonium
from harmonium import planning
from harmonium.config import Config
from harmonium.training import Training, build_model
from small import family, make_graph

SETS = ["model.entity_dim=16", "train.batch_size=64", "train.negatives=16", "train.epochs=6", "train.patience=99"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "STEPS_FOR", 0.15)
    monkeypatch.setattr(planning, "RANK_FOR", 0.05)


@pytest.mark.parametrize("more", [["model.rank=4"], ["model.composition=distmult", "model.harmony=false"]])
def test_time_is_about_what_training_takes(more: list[str]) -> None:
    """In processor time, which other programs on the machine do not change much; docs say how near it gets."""
    graph = make_graph(200, 4, (1500, 100, 100))
    for _ in range(2):  # the first in a process also loads parts of PyTorch
        found = harmonium.plan(data=graph, sets=[*SETS, *more], clock=time.process_time)
    start = time.process_time()
    run = harmonium.train(data=graph, sets=[*SETS, *more])
    taken = time.process_time() - start
    assert len(run.history.rows) == found.epochs == 6
    assert found.steps == math.ceil(1500 / 64)
    assert taken / 2 < found.total_seconds < taken * 2
    assert found.seconds["steps"] == pytest.approx(6 * found.steps * found.step_seconds)


@pytest.mark.parametrize(
    "more",
    [[], ["model.rank=3"], ["model.harmony=false"], ["model.reciprocal=true"], ["model.composition=tensorproduct"]],
)
def test_parameters_are_counted_without_making_them(more: list[str]) -> None:
    graph, config = family(), Config.read(None, ["model.entity_dim=6", *more])
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    assert planning.count_parameters(config, graph) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
def test_memory_that_is_counted_is_what_tensors_hold(optimiser: str) -> None:
    graph, sets = family(), ["model.entity_dim=8", f"train.optimizer={optimiser}"]
    found = harmonium.plan(data=graph, sets=sets).memory
    config = Config.read(None, sets)
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    training = Training(model, graph.train, config.train)
    training.move(torch.arange(8))
    size = sum(4 * p.numel() for p in model.parameters())
    assert found["model"] == found["best model, kept"] == found["gradients"] == size
    states = {"adam": 2, "adagrad": 1}[optimiser]
    assert found["optimiser"] == pytest.approx(states * size, abs=100)  # and a number of steps for each table
    assert found["program and graph"] > 50e6


def test_what_does_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_available", lambda device: 5 * 4 * 4000)
    monkeypatch.setattr(planning, "_time_steps", lambda *_: pytest.fail("it was tried"))
    found = harmonium.plan(data=family(), sets=["model.entity_dim=100", "model.harmony=false"])
    assert not found.fits
    assert found.parameters >= 43 * 100
    assert found.peak_memory > found.memory["program and graph"] + 5 * 4 * 4000


def test_processes_that_would_do_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of this size take about 80 kB in one process; a step and the order of triples some more in each."""
    sets = ["model.entity_dim=100", "model.harmony=false", "train.batch_size=4", "train.negatives=1"]
    alone = harmonium.plan(data=family(), sets=sets)
    assert (alone.fits, alone.enough, alone.processes) == (True, None, 1)
    monkeypatch.setattr(planning, "_available", lambda device: 60_000)
    found = harmonium.plan(data=family(), sets=sets)
    assert (found.fits, found.seconds) == (False, {})
    assert found.enough["processes"] == 2
    assert 20_000 < found.enough["memory"] < 60_000
    assert found.to_json()["enough"] == found.enough


def test_several_processes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_time_steps", lambda *_: pytest.fail("it was tried"))
    sets = ["model.entity_dim=100", "model.harmony=false", "train.epochs=3"]
    found = harmonium.plan(data=family(), sets=sets, processes=4)
    assert (found.fits, found.processes) == (True, 4)
    assert found.seconds["steps"] == pytest.approx(3 * found.steps * found.step_seconds)
    assert found.memory["model"] == 40 / 4 * 400 + 4 * (found.parameters - 4000)


def test_vectors_of_fewer_bits_are_counted_so() -> None:
    sets = ["model.entity_dim=100", "model.harmony=false", "train.optimizer=row-adagrad", "train.table=host"]
    found = harmonium.plan(data=family(), sets=[*sets, "model.entity_dtype=bfloat16"])
    rest = found.parameters - 4000
    assert found.memory["model"] == found.memory["best model, kept"] == 2 * 4000 + 4 * rest
    assert found.memory["optimiser"] == pytest.approx(4 * 40 + 4 * rest, abs=100)


def test_validations_and_rankings_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ranking costs one second for each triple, so the sums can be told."""
    monkeypatch.setattr(planning, "_time_ranking", lambda run, triples, chunk, now: float(len(triples)))
    found = harmonium.plan(data=family(), sets=["train.epochs=12", "train.evaluate_every=5", "model.entity_dim=4"])
    assert found.seconds["validations"] == 3 * 10  # after epochs 5, 10 and 12
    assert found.seconds["final evaluation"] == 10 + 10  # the model's and the baseline's


def test_rankings_are_extrapolated_from_a_part() -> None:
    """A ranking that costs 2 s and 10 ms a triple, on a clock of its own."""
    at = 0.0

    def run(triples) -> None:
        nonlocal at
        at += 2 + 0.01 * len(triples)

    triples = make_graph(30, 4, (1000, 1, 1)).train
    assert planning._time_ranking(run, triples, 100, lambda: at) == pytest.approx(2 + 0.01 * 1000)
    assert at < 2 * (2 + 0.01) + 2 + 0.01 * 100 + 0.001  # no more was tried than that
