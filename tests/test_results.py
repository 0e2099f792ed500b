"""Every number in the docs comes from results/*.json."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harmonium import records
from harmonium.config import Config
from harmonium.reproduce import CONTROLS, RECIPES, published

ROOT = Path(__file__).parents[1]
ABOUT = {
    "table",
    "dataset",
    "row",
    "variant",
    "model",
    "lambda",
    "dim",
    "seed",
    "settings",
    "command",
    "commit",
    "device",
}


def test_the_docs_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "render.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_results_say_how_they_were_made() -> None:
    for path in (ROOT / "results").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        for record in found if isinstance(found, list) else []:
            assert set(record) >= {*ABOUT, "seconds"}, path.name
            assert record["command"].startswith(f"harmonium reproduce {path.stem} "), path.name
        if isinstance(found, dict):
            assert "command" in found, path.name
            assert "device" in found or "device" in found["environment"], path.name


def test_sentences_quote_what_was_measured() -> None:
    """Numbers that stand in the text of a page, outside the parts that are rendered."""
    found = json.loads((ROOT / "results" / "experiments-cpu.json").read_text(encoding="utf-8"))
    demo, change = found["demo"], found["demo"]["density"]["positives"]
    low, high = change["by_relation"]
    spread = demo["scores_of_facts"]["95%"] - demo["scores_of_facts"]["5%"]
    strongest, eight = (found["spectrum"]["share_of_energy"][k] for k in ("1", "8"))
    caps = {cap: f"{found['cap'][cap]['mrr']:.3f}".lstrip("0") for cap in ("49.75", "37.5")}
    quotes = [
        (
            "math.md",
            f"large ({demo['constant']:,.0f} in the demo, where nine tenths of the facts score within {spread:.0f}",
        ),
        ("decisions/004-constant-left-out-of-comparisons.md", f"nine tenths of its facts score within {spread:.0f} of"),
        ("decisions/003-low-rank-w.md", f"one direction of the full W holds {100 * strongest:.2f} %"),
        ("experiments.md", f"true triplets {change['change']['mean']:.2f} of 5 (by relation {low:.2f} to {high:.2f})"),
        ("experiments.md", f"{100 * demo['skipped_by_bounds']:.2f} % decided by bounds on `atlas`"),
        ("experiments.md", f"{caps['49.75']}; with cap 37.5 {caps['37.5']}:"),
    ]
    for page, words in quotes:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert words in text, f"{page}: {words}"
    assert 1 - eight < 1e-6


@pytest.mark.parametrize("name", ["table1", "htpr", "controls"])
def test_records_of_runs_have_both_protocols_and_what_was_published(name: str) -> None:
    found = records.read(ROOT / "results" / f"{name}.json")
    assert len({records.key(record) for record in found}) == len(found)
    for record in found:
        assert (record["protocol"]["candidates"], record["protocol"]["ties"]) == ("typed-all", "pessimistic")
        assert (record["full"]["protocol"]["candidates"], record["full"]["protocol"]["ties"]) == ("full", "realistic")
        assert record["full"]["mrr"] <= record["mrr"] + 0.02  # more candidates, other ties
        if (RECIPES / "paper" / record["dataset"]).is_dir() and name == "table1":
            expected = published(record["dataset"], record["row"])
            assert record["published"] == {key: value for key, value in expected.items() if key != "table"}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/render.py with an empty folder of results."""
    spec = importlib.util.spec_from_file_location("render", ROOT / "benchmarks" / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def record(row: str, variant: str, mrr: float, seed: int = 0, table: str = "table1", **more: Any) -> records.Record:
    recipe = RECIPES / (f"paper/FB15K/{row}.toml" if table == "table1" else f"controls/{row.split('/')[0]}.toml")
    config = Config.read(recipe)
    metrics = {"mr": 20.0, "mrr": mrr, "hits@1": 0.5, "hits@3": 0.6, "hits@10": 0.7}
    protocol = records.settings(config)["evaluate"]
    beside = (
        {key: value for key, value in published("FB15K", row).items() if key != "table"} if table == "table1" else None
    )
    return {
        "table": table, "dataset": "FB15K", "row": row, "variant": variant, "model": "HHolE", "seed": seed,
        "lambda": records.settings(config)["model"]["faithfulness"], "dim": 512, "settings": records.settings(config),
        "command": f"harmonium reproduce {table} --dataset FB15K --rows {row} --variant {variant} --seeds {seed} --set a=1",
        "commit": "0123456789", "device": "GPU", "seconds": 60.0, "protocol": protocol | {"filter": []}, **metrics,
        "full": {"protocol": {}, **metrics, "mrr": mrr - 0.1}, "published": beside,
    } | more  # fmt: skip


def test_parts_without_results_say_so(page: ModuleType) -> None:
    assert page.models("table1", "FB15K") == page.analysis("gain") == page.controls("temperature") == page.NOT_YET
    assert "not run yet" in page.claims()


def test_a_table_shows_published_ours_and_the_command(page: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "results" / "table1.json"
    for seed, mrr in ((0, 0.80), (1, 0.82), (2, 0.84)):
        records.keep(file, record("hhole-1", "calibrated", mrr, seed))
    for row, mrr in (("hhole-1", 0.7), ("hhole-inf", 0.75)):
        records.keep(file, record(row, "faithful", mrr))
    records.keep(file, record("hhole-1", "faithful", 0.1, dataset="WN18RR", published=None))
    lines = [line.split(" | ") for line in page.models("table1", "FB15K").splitlines() if "HHolE" in line]
    assert [line[1] for line in lines] == ["published", "faithful", "published", "faithful", "calibrated, 3 seeds"]
    assert lines[2][2:7] == ["21", "0.796", "0.727", "0.848", "0.901"]
    assert lines[4][3] == "0.820 ± 0.050"
    assert lines[4][8] == "0.720 ± 0.050"
    assert [line[-2] for line in lines] == ["", "reached (+0.068)", "", "not reached (-0.096)", "reached (+0.024)"]
    assert lines[4][-1] == "`--rows hhole-1 --variant calibrated --seeds 0,1,2 --set a=1` |"
    assert "WN18RR" in page.models("table1", "other")
    claim = next(line for line in page.claims().splitlines() if "HHolE: lambda = 1" in line)
    assert "0.796 against 0.682 | does not hold: 0.700 against 0.750 | not run yet" in claim


def test_controls_stand_by_question_in_the_order_of_their_definition(page: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "results" / "controls.json"
    for name in ("plain", "plain-fixed-scale", "lambda-10", "lambda-2"):
        for composition in ("distmult", "hole"):
            records.keep(file, record(f"{composition}/{name}", "control", 0.5, table="controls"))
    shown = [line.split(" | ")[0] for line in page.controls("temperature").splitlines() if " 0.500 " in line]
    assert shown == ["| plain-fixed-scale", "| plain"]
    shown = [line.split(" | ")[0] for line in page.controls("quadratic capacity").splitlines() if " 0.500 " in line]
    assert shown == ["| lambda-2", "| lambda-10"]
    assert set(CONTROLS) == {"temperature", "quadratic capacity", "optimisation"}
