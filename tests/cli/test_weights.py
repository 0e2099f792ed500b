"""Weights of facts on the command line: read, trained with, evaluated, diagnosed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from small import family

SETTINGS = ["--set", "epochs=2", "--set", "dim=8", "--set", "loss=full", "--set", "device=cpu"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    graph = family(30)
    rows = [",".join((*names, f"{1 - number % 4 / 10}")) for number, names in enumerate(graph.names_of(graph.facts()))]
    (tmp_path / "facts.csv").write_text("\n".join(["who,tie,whom,sure", *rows]))
    return tmp_path / "facts.csv"


def test_a_column_of_weights_from_training_to_evaluation(table: Path, tmp_path: Path, call) -> None:
    reading = ["--columns", "who,tie,whom", "--weight-column", "sure"]
    trained = call("train", str(table), "--out", str(tmp_path / "run"), "--preset", "plain", *reading, *SETTINGS)
    assert "facts have weights from 0.7 to 1" in " ".join((trained.out + trained.err).split())
    printed = " ".join(call("evaluate", str(tmp_path / "run")).out.split())
    assert ", weighted " in printed and "weighted metrics by the weights of facts" in printed
    values = json.loads(call("evaluate", str(tmp_path / "run"), "--format", "json").out)["metrics"]
    assert values["weighted_mrr"] != values["mrr"]
    diagnosis = json.loads(call("doctor", str(table), *reading, "--format", "json").out)
    (finding,) = [finding for finding in diagnosis["findings"] if finding["name"] == "weights of facts"]
    assert finding["numbers"]["greatest"] == 1.0
