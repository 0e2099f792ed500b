"""Which part of the authors' start and step matters."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import render
import torch

from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.paper import starts as script
from harmonium.paper.rows import AUTHORS, paper_rows
from small import family

SMALL = ["model.entity_dim=8", "train.batch_size=32", "train.negatives=4", "train.epochs=2"]


def test_the_authors_variant_is_the_faithful_recipe_with_three_settings() -> None:
    rows = {row.variant: row for row in paper_rows("table1", "FB15K", ["faithful", "authors"]) if row.name == "hhole-1"}
    faithful, authors = (rows[name].config(family(), 0, "full", []) for name in ("faithful", "authors"))
    assert (authors.model.initialisation, authors.train.reduction, authors.train.alternate_sides) == (
        "xavier",
        "sum",
        True,
    )
    assert (faithful.model.initialisation, faithful.train.reduction, faithful.train.alternate_sides) == (
        "paper",
        "mean",
        False,
    )
    assert rows["authors"].published == rows["faithful"].published


def test_all_parts_together_are_the_authors_variant() -> None:
    config = script.cell_config("hhole-1", script.STARTS["authors"])
    assert {f"model.initialisation={config.model.initialisation}", f"train.reduction={config.train.reduction}"} < set(
        AUTHORS
    )
    assert config.train.alternate_sides


@pytest.mark.parametrize("start", list(script.STARTS))
def test_a_start_changes_what_its_name_says(start: str) -> None:
    parts = script.STARTS[start]
    config = script.cell_config("hhole-1", parts, ["model.entity_dim=64"])
    model = build_model(config.model, 500, 20)
    script.initialise_form(model, parts, 0)
    assert (model.entity.norm(dim=1).mean().item() < 0.6) == ("tables" in parts)
    free = (model.harmony.free + model.harmony.free.T) / 2
    assert (free.norm().item() > 2) == ("W" in parts)
    assert (config.train.reduction == "sum") == ("sum" in parts)
    assert config.train.alternate_sides == ("two steps" in parts)


def test_cells_are_kept_and_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, out = family(), tmp_path / "results" / "paper-start.json"
    for starts in (["faithful"], ["authors", "faithful"]):
        made = script.compare_starts(graph, out, "a command", ["hdistmult-inf"], starts, overrides=SMALL, log=print)
        assert [cell["start"] for cell in made] == starts
    result = json.loads(out.read_text(encoding="utf-8"))
    assert [cell["start"] for cell in result["cells"]] == ["authors", "faithful"]
    assert all(cell["epochs"] == 2 and 0 < cell["typed"]["mrr"] <= 1 for cell in result["cells"])
    monkeypatch.setattr(render, "ROOT", tmp_path)
    assert "| family | hdistmult-inf | tables, W, sum, two steps | 2 |" in render.starts()
    with pytest.raises(HarmoniumError, match="no start 'other'; choose from faithful, tables"):
        script.compare_starts(graph, out, "", starts=["other"])


def test_the_part_between_frequent_entities() -> None:
    graph = family()
    part = script.frequent_part(graph, 4)
    ends = Counter(end for head, _, tail in graph.names_of(graph.train) for end in (head, tail))
    frequent = set(sorted(graph.entities.ids, key=lambda name: -ends[name])[:4])
    for split, facts in graph.splits.items():
        expected = [fact for fact in graph.names_of(facts) if {fact[0], fact[2]} <= frequent]
        assert part.names_of(part.splits[split]) == expected


def test_a_cell_ends_when_its_seconds_are_over() -> None:
    torch.manual_seed(0)
    cell = script.run_cell("hdistmult-inf", "authors", family(), 0.0, [*SMALL, "train.epochs=1000"])
    assert cell["epochs"] < 1000 and "interrupted" in cell["stopped"]
