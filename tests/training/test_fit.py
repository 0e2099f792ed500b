from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest
import torch

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import History
from harmonium.training import fit as fit_module
from harmonium.training.fit import fit
from harmonium.training.losses import CONTRASTIVE_LOSSES
from harmonium.training.state import Progress
from harmonium.training.step import TrainingStep
from small import family

EMPTY = Triples.from_rows([])


def settings(*more: str) -> Config:
    base = ["model.composition=complex", "model.entity_dim=16", "train.batch_size=32", "train.negatives=20"]
    base += ["train.learning_rate=0.03", "train.epochs=5", "train.evaluate_every=5"]
    return Config.read(None, [*base, *more])


def trained(graph: Graph, config: Config, **options: Any) -> tuple[GradientGraph, History]:
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    return model, fit(model, graph, config, **options)


def mrr(model: Any, graph: Graph) -> float:
    return evaluate_scorer(model, graph).metrics["mrr"]


# Learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["sampled", "full"])
@pytest.mark.parametrize("optimizer", ["train.optimiser=adam", "train.optimiser=adagrad train.learning_rate=0.3"])
@pytest.mark.parametrize("more", ["", "model.harmony=false", "model.reciprocal=true model.rank=4", "train.n3=0.001"])
def test_training_beats_the_frequency_baseline(loss: str, optimizer: str, more: str) -> None:
    graph = family()
    model, history = trained(
        graph, settings(f"train.loss={loss}", "train.epochs=25", *optimizer.split(), *more.split())
    )
    assert mrr(Frequency(graph), graph) < 0.05
    assert mrr(model, graph) > 0.8
    assert history.rows[-1]["loss"] < history.rows[0]["loss"] / 3


COMPOSITIONS = ("concatenation", "rescal", "rescalproduct", "triplecorrelation")


@pytest.mark.parametrize(
    "more",
    [
        *(
            f"train.loss={loss} train.margin=0.5 train.epochs=40 {model}"
            for loss in sorted(set(CONTRASTIVE_LOSSES) - {"sampled"})
            for model in ("", "model.harmony=false", "model.reciprocal=true model.rank=4")
        ),
        *(f"model.composition={name} model.entity_dim=8 train.epochs=30" for name in COMPOSITIONS),
    ],
)
def test_every_loss_and_composition_learns(more: str) -> None:
    graph = family()
    model, history = trained(graph, settings(*more.split()))
    assert history.rows[-1]["loss"] < 0.9 * history.rows[0]["loss"]
    assert mrr(model, graph) > (0.15 if "train.loss" in more else 2 * mrr(Frequency(graph), graph))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "more",
    [
        *(f"train.loss={loss}" for loss in [*CONTRASTIVE_LOSSES, "full"]),
        *(
            f"train.relation_prediction=0.5 model.{more}"
            for more in ("harmony=true", "harmony=false", "reciprocal=true")
        ),
        *(f"model.dropout=0.3 {more}" for more in ("", "model.rank=4")),
        *(
            f"train.{term} {more}"
            for term in (
                "vector_dropout=0.1",
                "composed_dropout=0.1",
                "dura=0.01",
                "label_smoothing=0.1",
            )
            for more in ("", "train.loss=full", "model.rank=4 model.reciprocal=true", "model.harmony=false")
        ),
        "train.f2=0.01 model.normalise=false train.schedule=cosine",
        *(f"model.composition={name}" for name in COMPOSITIONS),
    ],
)
def test_every_option_learns_inside_a_cuda_graph(more: str) -> None:
    options = ["model.composition=hole", "model.entity_dim=8", *more.split()]
    config = settings("train.device=cuda", "train.batch_size=20", "train.epochs=30", *options)
    rows = trained(family(), config)[1].rows
    assert rows[-1]["loss"] < 0.97 * rows[0]["loss"]


@pytest.mark.parametrize("more", ["train.loss=sampled", "train.loss=full", "model.rank=3"])
def test_the_same_seed_gives_the_same_parameters_to_the_bit(more: str) -> None:
    first, again, other = (
        list(trained(family(), settings(f"train.seed={seed}", more))[0].parameters()) for seed in (7, 7, 8)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_training_without_a_valid_split_runs_to_the_end() -> None:
    graph = dataclasses.replace(family(), valid=EMPTY)
    model, history = trained(graph, settings("train.epochs=30"))
    assert len(history.rows) == history.best_epoch == 30
    assert all("valid" not in row for row in history.rows)
    assert mrr(model, graph) > 0.8


# Stopping --------------------------------------------------------------------------------------------------------


def fake_validation(monkeypatch: pytest.MonkeyPatch, values: list[float], metric: str = "mrr") -> list[dict]:
    """Validation returns these values; the result holds the parameters at each."""
    states: list[dict] = []

    def validate(model: GradientGraph, graph: Graph, triples: Triples, device: torch.device) -> dict[str, float]:
        states.append(copy.deepcopy(model.state_dict()))
        return {metric: values[len(states) - 1]}

    monkeypatch.setattr(fit_module, "validate", validate)
    return states


def has_state(model: GradientGraph, state: dict) -> bool:
    return all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("metric", ["mrr", "hits@10"])
def test_early_stopping_keeps_the_best_model(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states = fake_validation(monkeypatch, [0.1, 0.5, 0.5, 0.4, 0.49, 0.9], metric)
    config = settings("train.epochs=20", "train.evaluate_every=2", "train.patience=3", f"train.metric={metric}")
    model, history = trained(family(), config)
    assert (len(states), len(history.rows), history.best_epoch) == (5, 10, 4)
    assert history.stopped == f"no better {metric} since epoch 4"
    assert has_state(model, states[1])
    assert not has_state(model, states[4])


def test_an_interrupt_keeps_the_best_model_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(now: Progress) -> None:
        if now.epoch == 4 and now.step % 4 == 2:  # in the middle: 100 triples in batches of 32 are 4 steps
            raise KeyboardInterrupt

    states = fake_validation(monkeypatch, [0.1, 0.5, 0.4])
    config = settings("train.epochs=9", "train.evaluate_every=1")
    model, history = trained(family(), config, progress=interrupt)
    assert history.stopped == "interrupted in epoch 4"
    assert (history.best_epoch, len(history.rows)) == (2, 3)
    assert has_state(model, states[1])


def test_progress_counts_every_step() -> None:
    reports: list[Progress] = []
    _, history = trained(family(), settings("train.epochs=2", "train.evaluate_every=1"), progress=reports.append)
    assert [now.step for now in reports] == list(range(1, 9))
    assert {now.steps for now in reports} == {8}
    assert [now.epoch for now in reports] == [1] * 4 + [2] * 4
    assert math.isnan(reports[0].loss)
    assert reports[-1].loss == history.rows[0]["loss"]
    assert reports[-1].best == history.rows[0]["valid"]["mrr"]


# Errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "model.constraint=spectral", "model.rank=3", "model.harmony=false"])
@pytest.mark.parametrize("loss", ["sampled", "full"])
def test_a_loss_that_diverges_names_the_learning_rate(loss: str, more: str) -> None:
    with pytest.raises(HarmoniumError, match=r"loss became (nan|inf) in epoch 1; lower train.learning_rate \(1e\+38"):
        trained(family(), settings("train.learning_rate=1e38", f"train.loss={loss}", *more.split()))


def failing_step(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(TrainingStep, "loss", fail)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("Storage size calculation overflowed with sizes=[1099511627776, 1099511627776]"),
    ],
)
def test_running_out_of_memory_names_what_to_lower(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_step(monkeypatch, error)
    with pytest.raises(HarmoniumError, match=r"out of memory \(.+\); lower train.batch_size"):
        trained(family(), settings())
