"""Rows of the leaderboard are what was trained and ranked; the page shows those and no others."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import leaderboard
import pytest
import render

import harmonium
from harmonium.data import graph_file
from harmonium.runtime.storage import write
from small import family

ROOT = Path(__file__).parents[2]
OPTIONS = ["--preset", "plain", "--minutes", "0.01", "--set", "model.entity_dim=8", "--set", "train.epochs=3"]
OPTIONS += ["--set", "train.device=cpu", "--set", "train.threads=1"]
FIXED = OPTIONS[5::2]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "FB237.graph"
    write(path, graph_file.parts(family()))
    return path


@pytest.fixture(scope="module")
def rows(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> list[leaderboard.Row]:
    results = tmp_path_factory.mktemp("results") / "new" / "leaderboard.json"
    command = ["--dataset", str(graph), "--name", "FB15K-237", *OPTIONS, "--seeds", "2", "--ensemble"]
    for _ in range(2):  # the second time replaces what the first one made
        leaderboard.main([*command, "--results", str(results)])
    leaderboard.main(["--dataset", str(graph), *OPTIONS, "--seeds", "1", "--results", str(results)])
    return json.loads(results.read_text(encoding="utf-8"))


def test_rows_are_means_of_what_the_seeds_gave(rows: list[leaderboard.Row], graph: Path) -> None:
    single = next(row for row in rows if row["seeds"] == 2 and not row["ensemble"])
    runs = [
        harmonium.train(graph, "plain", overrides=[*FIXED, f"train.seed={seed}"], minutes=0.01) for seed in range(2)
    ]
    pessimistic = [harmonium.evaluate(run, ties="pessimistic").metrics["mrr"] for run in runs]
    assert [row["mrr"] for row in single["per_seed"]] == [run.metrics["mrr"] for run in runs]
    for name in ("mrr", "hits@1", "hits@10"):
        assert single[name] == pytest.approx(mean(run.metrics[name] for run in runs))
    assert single["mrr_pessimistic"] == pytest.approx(mean(pessimistic))
    assert single["parameters"] == sum(parameter.numel() for parameter in runs[0].model.parameters())
    assert (single["dataset"], single["model"]) == ("FB15K-237", "ComplEx-N3, d = 8")
    product = next(row for row in rows if row["ensemble"])
    learned = harmonium.evaluate(runs, weights="learned")
    assert product["mrr"] == pytest.approx(learned.metrics["mrr"])
    assert product["weights"] == pytest.approx(learned.weights, abs=1e-4)
    assert product["parameters"] == 2 * single["parameters"]
    assert product["seconds"] >= single["seconds"]


def test_a_row_replaces_its_predecessor_and_names_its_command(rows: list[leaderboard.Row]) -> None:
    assert [(row["dataset"], row["seeds"], row["ensemble"]) for row in rows] == [
        ("FB15K-237", 2, False), ("FB15K-237", 2, True), ("family", 1, False),
    ]  # fmt: skip
    for row in rows:
        assert row["command"].startswith("python benchmarks/leaderboard.py --dataset FB237.graph ")
        assert "/" not in row["command"].partition(" --dataset ")[2]


def test_the_page_has_published_rows_and_rows_that_were_run(
    rows: list[leaderboard.Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "results").mkdir()
    published = (ROOT / "benchmarks" / "published.json").read_text(encoding="utf-8")
    (tmp_path / "benchmarks" / "published.json").write_text(published, encoding="utf-8")
    assert "**" not in render.leaderboard()
    (tmp_path / "results" / "leaderboard.json").write_text(json.dumps(rows), encoding="utf-8")
    page = render.leaderboard()
    ours = [line for line in page.splitlines() if line.startswith("| **")]
    assert len(ours) == len(rows)
    for row in rows:
        assert any(f"**{row['mrr']:.4f}**" in line and row["command"].partition(".py ")[2] in line for line in ours)
    section = page.partition("### FB15K-237")[2].partition("\n### ")[0]
    lines = [line.split(" | ") for line in section.partition("\n| ---")[2].splitlines() if line.startswith("| ")][1:]
    shown = [float(cells[1].replace("*", " ").split()[0]) for cells in lines]
    assert shown == sorted(shown, reverse=True)
    assert "### WN18RR" not in page
