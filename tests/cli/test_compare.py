"""The command diff."""

from __future__ import annotations

import json
from pathlib import Path

import harmonium
from command_line import FAST, shell


def test_a_run_and_itself(call, run: Path) -> None:
    result = call("diff", run, run, "--exit-code")
    assert (result.code, result.out) == (0, f"from {run} to {run}\n  nothing changed\n")


def test_two_runs(call, workspace: Path, run: Path, tmp_path: Path) -> None:
    settings = ["--set", "train.epochs=1", "--set", "train.seed=5", "--out", tmp_path / "other"]
    assert shell("train", "--preset", "paper", "--data", "family", *FAST, *settings, cwd=workspace).code == 0
    shown = call("diff", run, tmp_path / "other", "--top", 3)
    assert shown.code == 0
    assert "train.epochs 20 1" in shown.words and "train.seed 0 5" in shown.words
    assert "Metrics on test" in shown.words and "10 of 10 facts that both runs hold out" in shown.words
    assert "First answers" in shown.words
    assert call("diff", run, tmp_path / "other", "--exit-code").code == 1
    printed = json.loads(call("diff", run, tmp_path / "other", "--limit", 10, "--seed", 3, "--format", "json").out)
    expected = harmonium.diff(run, tmp_path / "other", limit=10, seed=3)
    assert (printed["changed"], printed["summary"]) == (True, expected.summary)
    assert (printed["answers"], printed["facts"]) == (expected.answers, 5)


def test_a_graph_is_not_a_run_and_the_doctor_compares_graphs(call, workspace: Path, run: Path) -> None:
    result = call("diff", run, workspace / "family")
    assert result.code == 2 and "run" in result.err
