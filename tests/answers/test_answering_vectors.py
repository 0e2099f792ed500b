"""Vectors trained on all facts answer, and are those that leave the program; metrics are those of the held-out ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import harmonium
from harmonium.analysis import report
from harmonium.run.run import Run
from small import run_with_constraints, untrained


@pytest.fixture(scope="module")
def run() -> Run:
    learned = run_with_constraints()
    return replace(learned, final=untrained(learned.graph, replace(learned.config.model, normalise=False)))


def test_exported_vectors_are_those_of_the_answers(run: Run, tmp_path: Path) -> None:
    harmonium.export(run, tmp_path / "v.npz")
    stored = np.load(tmp_path / "v.npz")
    assert any(stored[name].shape == run.embeddings.shape and (stored[name] == run.embeddings).all() for name in stored)
    assert (run.embeddings != run.model.entities().detach().numpy()).any()


def test_ranks_of_a_report_are_those_of_the_metrics(run: Run) -> None:
    protocol = replace(run.config.evaluate, split="valid")
    ranks = report._ranks(run, protocol, 10**6, 0, None)
    evaluation = harmonium.evaluate(run, split="valid")
    assert ranks["model"].metrics()["mrr"] == evaluation.metrics["mrr"]
    alone = harmonium.evaluate(run, split="valid", without=["paths", "values", "neighbours", "usual", "names"])
    assert ranks["vectors alone"].metrics()["mrr"] == pytest.approx(alone.metrics["mrr"], abs=0.02)
    assert ranks["model"].metrics()["mrr"] > ranks["vectors alone"].metrics()["mrr"] + 0.3
