"""train(): what it evaluates, and what the run remembers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.config.settings import Config
from harmonium.data.triples import Triples
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.evaluation import evaluate_scorer
from small import family

EMPTY = Triples.from_rows([])


def settings(*more: str) -> Config:
    return Config.read(None, ["model.entity_dim=8", "train.batch_size=32", "train.epochs=1", *more])


def test_a_run_has_the_metrics_of_its_protocol_and_of_the_baseline() -> None:
    graph = family()
    run = harmonium.train(graph, settings("train.epochs=5", "evaluate.ties=pessimistic"))
    assert run.path is None
    assert run.evaluation.metrics == evaluate_scorer(run.model, run.graph, run.config.evaluate).metrics
    assert run.evaluation.protocol.ties == "pessimistic"
    frequency = evaluate_scorer(Frequency(graph), graph, run.config.evaluate)
    assert run.evaluation.baselines["frequency"] == {**frequency.metrics, "queries": len(frequency.ranks)}


def test_the_final_evaluation_uses_a_split_that_exists() -> None:
    no_test = harmonium.train(dataclasses.replace(family(), test=EMPTY), settings())
    assert no_test.evaluation.protocol.split == "valid"
    assert not harmonium.train(dataclasses.replace(family(), valid=EMPTY, test=EMPTY), settings()).evaluation


def test_overrides_change_a_config() -> None:
    run = harmonium.train(family(), settings("train.seed=3"), overrides=["train.epochs=2"])
    assert run.config == settings("train.seed=3", "train.epochs=2", "data=family")
    assert len(run.history.rows) == 2


# Entity tables in bfloat16 ---------------------------------------------------------------------------------------

BFLOAT16 = ["train.batch_size=16", "train.negatives=4", "train.epochs=3", "train.evaluate_every=1"]
BFLOAT16 += ["model.entity_dtype=bfloat16"]


@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
def test_bfloat16_vectors_are_trained_saved_and_loaded(optimiser: str, tmp_path: Path) -> None:
    config = settings(*BFLOAT16, f"train.optimiser={optimiser}")
    run, again, other = (
        harmonium.train(family(), config, out, overrides=[f"train.seed={seed}"])
        for out, seed in ((tmp_path / "run", 0), (None, 0), (None, 1))
    )
    read = harmonium.Run.load(tmp_path / "run")
    assert (read.model.entity.dtype, read.model.relation.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(read.model.entity, run.model.entity)
    assert torch.equal(again.model.entity, run.model.entity)
    assert not torch.equal(other.model.entity, run.model.entity)
    assert (tmp_path / "run" / "model.safetensors").stat().st_size < 4 * sum(p.numel() for p in read.model.parameters())
    assert harmonium.evaluate(tmp_path / "run").metrics == run.metrics
    assert len(harmonium.predict(tmp_path / "run", "person 0", "next", top=3, typed=False)) == 3  # with probabilities
    vectors = read.model.entities()
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(40))
