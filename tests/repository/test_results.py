"""Every number in the docs comes from results/*.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import render

ROOT = Path(__file__).parents[2]
RECORD = {"table", "dataset", "row", "variant", "model", "lambda", "dim", "seed", "settings", "command", "commit"}
LEADERBOARD = {
    "dataset", "model", "preset", "mrr", "hits@1", "hits@10", "mrr_pessimistic", "ties", "seeds", "seconds", "parameters",
    "device", "ensemble", "command", "settings", "protocol",
}  # fmt: skip


@pytest.mark.parametrize("page", render.PARTS)
def test_the_numbers_of_a_page_are_those_of_the_results(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert render.render(text, render.PARTS[page]) == text, "run python benchmarks/render.py"


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_results_name_their_command_and_device(path: Path) -> None:
    results = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(results, dict):
        assert "command" in results and ("device" in results or "device" in results["environment"])
        return
    for record in results:
        if path.stem == "leaderboard":
            assert set(record) >= LEADERBOARD
            assert record["command"].startswith("python benchmarks/leaderboard.py ")
            assert " --dataset " in record["command"]
        else:
            assert set(record) >= {*RECORD, "device", "seconds"}
            assert record["command"].startswith(f"harmonium paper table {path.stem} ")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results for benchmarks/render.py."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    return tmp_path / "results"
