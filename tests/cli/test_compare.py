"""The command diff."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import harmonium
from command_line import FAST, shell


def test_a_run_and_itself(call, run: Path) -> None:
    result = call("diff", run, run, "--exit-code")
    assert (result.code, result.out) == (0, f"from {run} to {run}\n  nothing changed\n\n")


def test_two_runs(call, workspace: Path, run: Path, tmp_path: Path) -> None:
    settings = ["--set", "train.epochs=1", "--set", "train.seed=5", "--out", tmp_path / "other"]
    assert shell("train", "--preset", "paper", "--data", "family", *FAST, *settings, cwd=workspace).code == 0
    page = tmp_path / "diff.html"
    shown = call("diff", run, tmp_path / "other", "--out", page, "--top", 3)
    assert shown.code == 0
    assert "the graph is the same" in shown.words
    assert "train.epochs 20 1" in shown.words and "train.seed 0 5" in shown.words
    assert "Metrics on test" in shown.words and "the same 20 questions of facts held out in both" in shown.words
    assert "First answers" in shown.words and f"page: {page}" in shown.out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert call("diff", run, tmp_path / "other", "--exit-code").code == 1
    printed = json.loads(call("diff", run, tmp_path / "other", "--limit", 10, "--seed", 3, "--format", "json").out)
    expected = harmonium.diff(run, tmp_path / "other", limit=10, seed=3)
    assert (printed["changed"], printed["summary"]) == (True, expected.summary)
    assert printed["answers"]["rows"]["rows"] == list(expected.answers.rows.rows)
    assert [part["facts"] for part in printed["metrics"]] == [5, 5]


def test_two_versions_of_a_graph(call, workspace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "family"
    shutil.copytree(workspace / "family", folder)
    with open(folder / "train.txt", "a", encoding="utf-8") as file:
        file.write("person 7\tnext\tperson 99\n")
    shown = call("diff", workspace / "family", folder)
    assert "entities: 1 added; facts: 1 added" in shown.words and "person 7, next, person 99" in shown.words
    rows = list(csv.DictReader(io.StringIO(call("diff", workspace / "family", folder, "--format", "csv").out)))
    assert {
        "part": "graph",
        "kind": "entities added",
        "name": "person 99",
        "before": "",
        "after": "",
        "note": "",
    } in rows
    missing = call("diff", workspace / "family", tmp_path / "gone")
    assert (missing.code, "gone" in missing.err) == (2, True)


def test_files_are_read_as_every_command_reads_them(call, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("to;kind;from\nb;r;a\nc;r;b\n", encoding="utf-8")
    (tmp_path / "new.csv").write_text("to;kind;from\nb;r;a\nc;r;b\n;r;c\n", encoding="utf-8")
    words = ["diff", tmp_path / "old.csv", tmp_path / "new.csv", "--columns", "from,kind,to", "--on-bad", "skip"]
    result = call(*words, "--exit-code")
    assert (result.code, "nothing changed" in result.out, "new.csv: skipped 1 row" in result.words) == (0, True, True)
