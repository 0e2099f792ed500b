"""The commands of `harmonium paper` print what the library returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harmonium
from command_line import FACT
from harmonium.analysis.neighbours import nearest_triples
from harmonium.paper.density import density
from harmonium.paper.dynamics import dynamics
from harmonium.paper.gain import gain
from harmonium.paper.guises import guises


@pytest.mark.parametrize(
    ("command", "function", "options", "arguments"),
    [
        ("dynamics", dynamics, ["--steps", 3, "--samples", 7], {"steps": 3, "samples": 7}),
        ("density", density, ["--top", 3], {"top": 3}),
        ("gain", gain, ["--split", "test"], {"split": "test"}),
    ],
)
def test_json_is_that_of_the_library(
    call, run: Path, command: str, function: Callable[..., Any], options: list, arguments: dict
) -> None:
    fact = FACT if command == "dynamics" else ()
    expected = function(run, *fact, **arguments).to_json()
    printed = call("paper", command, run, *fact, *options, "--format", "json").out
    assert json.loads(printed) == json.loads(json.dumps(expected))


def test_dynamics_from_start_to_end(call, run: Path, tmp_path: Path) -> None:
    figure, expected = tmp_path / "climb.png", dynamics(run, *FACT).to_json()
    words = call("paper", "dynamics", run, *FACT, "--plot", figure).words
    assert words.startswith("person 7, next, person 8")
    assert f" {expected['steps']} {expected['harmony'][-1]:.4f}" in words
    assert f"{expected['optimum']:.4f}" in words
    assert figure.stat().st_size > 1000


def test_density_by_label(call, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "labelled.txt"
    file.write_text("person 7\tnext\tperson 8\t1\nperson 7\tnext\tperson 3\t-1\n", encoding="utf-8")
    assert "queries 2 2" in call("paper", "density", run, "--labelled", file).words
    words, expected = call("paper", "density", run, "--no-typed").words, density(run, typed=False)
    assert "queries 20 20" in words and "all entities" in words
    for part in (expected.positives, expected.negatives):
        assert f"{part.change.mean:+.3f} ± {part.change.standard_error:.3f}" in words
        assert f"{part.by_relation[0]:+.3f} to {part.by_relation[1]:+.3f}" in words


def test_gain_by_candidates(call, run: Path, tmp_path: Path) -> None:
    figure, expected = tmp_path / "gain.png", gain(run, "test").to_json()
    words = call("paper", "gain", run, "--split", "test", "--plot", figure).words
    for part in expected["candidates"].values():
        assert f"{part['spearman']['rank']['rho']:+.4f}" in words
        assert f"MRR {part['mrr_before']:.3f} -> {part['mrr_after']:.3f}" in words
    assert figure.stat().st_size > 1000


def test_neighbours_of_guises(call, run: Path) -> None:
    opened = harmonium.Run.load(run)
    graph = opened.graph
    facts = [graph.triple(*fact) for fact in guises(graph)]
    expected = [nearest_triples(opened.model, graph, fact, count=2).to_json() for fact in facts]
    printed = json.loads(call("paper", "neighbours", run, "--top", 2, "--json").out)
    assert printed == json.loads(json.dumps(expected)) and printed
    assert f"{expected[0]['triple'][0]} in (" in call("paper", "neighbours", run, "--top", 2).out


def test_a_table_of_rows(call, workspace: Path, tmp_path: Path) -> None:
    small = ("--scale", "small", "--set", "train.epochs=1", "--set", "model.entity_dim=8", "--set", "model.rank=none")
    options = (
        "--dataset",
        workspace / "family",
        "--rows",
        "hole,hhole-1",
        "--variant",
        "calibrated",
        "--runs",
        tmp_path,
    )
    result = call("paper", "table", "table1", *options, *small, "--format", "csv")
    assert result.code == 0, result.err
    assert "HHolE λ=1 d=8" in result.out and "HolE d=8" in result.out and "calibrated" in result.out
    assert (tmp_path / "results" / "table1.json").is_file()


def test_a_recipe_is_a_preset(call, workspace: Path) -> None:
    refused = call("plan", workspace / "family", "--preset", "paper/FB15K/hhole-7")
    assert refused.code == 2 and "--preset must be one of best" in refused.err
    small = ("--set", "model.entity_dim=4", "--set", "train.epochs=1", "--set", "train.batch_size=16")
    result = call("plan", workspace / "family", "--preset", "paper/FB15K/hhole-1", *small)
    assert result.code == 0, result.err
