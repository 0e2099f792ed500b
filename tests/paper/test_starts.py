"""Which part of the authors' start and step matters."""

from __future__ import annotations

import pytest

from harmonium.model.build import build_model
from harmonium.paper import starts as script
from harmonium.paper.rows import AUTHORS, paper_rows
from small import family


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
