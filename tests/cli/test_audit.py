"""The command audit."""

from __future__ import annotations

import json
from pathlib import Path


def test_suspects_of_a_run_are_listed_and_written(call, run: Path, tmp_path: Path) -> None:
    shown = call("audit", run, "--top", 3, "--out", tmp_path / "suspects.csv")
    assert shown.code == 0, shown.err
    assert "facts are wrong" in shown.words and "Facts of family to check" in shown.words
    header, *rows = (tmp_path / "suspects.csv").read_text().splitlines()
    assert header.startswith("head,relation,tail,probability,status,reason,meant") and len(rows) == 3
    content = json.loads(call("audit", run, "--top", 2, "--format", "json").out)
    assert len(content["suspects"]) == 2 and content["interval"][0] <= content["wrong"] <= content["interval"][1]


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(call, run: Path, tmp_path: Path) -> None:
    refused = call("audit", run, "--out", tmp_path / "nowhere" / "suspects.csv")
    assert refused.code != 0 and "nowhere" in refused.err
