"""The rows of the paper's tables and of the controls: recipes and published numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError

RECIPES = Path(__file__).parent / "recipes"

# The cap c on W that gives A = W S / 2 the same largest norm at every lambda: |A| <= c/2 / (1 - c/lambda) = a means
# c = 2a / (1 + 2a/lambda); a = 1.5 is what the paper's cap gives at lambda = 1.
LARGEST_A = 1.5
# The start and the step of the authors' code, which the paper does not describe: settings on top of a faithful recipe.
AUTHORS = ("model.initialisation=xavier", "train.reduction=sum", "train.alternate_sides=true")
VARIANTS = ("faithful", "authors", "calibrated")
LAMBDAS = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
# Where the gain comes from: settings on top of recipes/controls (calibrated, lambda = 1), by what they test.
CONTROLS: dict[str, dict[str, list[str]]] = {
    "temperature": {
        "plain-fixed-scale": ["model.harmony=false", "model.initialisation=paper"],
        "plain": ["model.harmony=false"],  # a learned scale and no W
        "plain-free-norm": ["model.harmony=false", "model.normalise=false"],
        "linear": ["model.faithfulness=inf", "model.cap=1e-6"],  # b alone: a scale per coordinate, almost no W
    },
    "quadratic capacity": {
        **{f"lambda-{x:g}": [f"model.faithfulness={x}"] for x in LAMBDAS},  # the paper's cap, lambda - 0.25
        **{f"inf-cap-{x - 0.25:g}": ["model.faithfulness=inf", f"model.cap={x - 0.25}"] for x in LAMBDAS},
        **{
            f"same-a-{x:g}": [f"model.faithfulness={x}", f"model.cap={2 * LARGEST_A / (1 + 2 * LARGEST_A / x)}"]
            for x in (*LAMBDAS, float("inf"))
        },
    },
    "optimisation": {
        "paper-start": ["model.initialisation=paper"],
        "paper-start-inf": ["model.initialisation=paper", "model.faithfulness=inf"],
        "free-norm": ["model.normalise=false"],
    },
}


@dataclass(frozen=True)
class Row:
    """A line of a table: a recipe, settings on top of it, and the published numbers."""

    table: str
    name: str
    variant: str
    recipe: Path
    overrides: tuple[str, ...] = ()
    published: dict[str, Any] | None = None

    def config(self, graph: Graph, seed: int, scale: str, overrides: Sequence[str]) -> Config:
        smaller = small_settings(Config.read(self.recipe, self.overrides), graph) if scale == "small" else []
        settings = [*self.overrides, *smaller, *overrides, f"train.seed={seed}"]
        return replace(Config.read(self.recipe, settings), data=graph.name)


def small_settings(config: Config, graph: Graph) -> list[str]:
    """`--scale small`: seconds on a small graph, minutes on FB15K, with two CPU cores."""
    epochs = max(1, min(10, 500_000 // max(1, len(graph.train))))
    tensor = config.model.composition == "tensorproduct"
    sizes = ["model.entity_dim=3", "model.relation_dim=8"] if tensor else ["model.entity_dim=32"]
    return [
        *sizes, *(["model.rank=8"] if config.model.harmony else []), "train.batch_size=256", "train.negatives=32",
        f"train.epochs={epochs}", "train.validation_triples=500", f"train.learning_rate={10 * config.train.learning_rate}",
    ]  # fmt: skip


def published(dataset: str, row: str) -> dict[str, Any]:
    """The numbers the paper reports for a row, and their table; empty for a calibrated recipe."""
    text = (RECIPES / dataset / f"{row}.toml").read_text(encoding="utf-8")
    numbers: dict[str, Any] = tomllib.loads(text).get("published", {})
    return numbers


def paper_rows(table: str, dataset: str, variants: Sequence[str]) -> list[Row]:
    """The rows of one of the paper's tables, in its order; for other datasets the rows of FB15K, nothing published."""
    rows = []
    for recipe in (RECIPES / dataset).glob("*.toml"):
        numbers, model = published(dataset, recipe.stem), Config.read(recipe).model
        if numbers.pop("table", None) == table:
            order = (model.composition, model.harmony, -model.faithfulness)
            for variant in variants:
                file = recipe.with_suffix(".calibrated.toml") if variant == "calibrated" else recipe
                overrides = AUTHORS if variant == "authors" else ()
                rows.append((order, Row(table, recipe.stem, variant, file, overrides, numbers)))
    if not rows and dataset != "FB15K":
        return [replace(row, published=None) for row in paper_rows(table, "FB15K", variants)]
    if not rows:
        raise HarmoniumError(f"no recipes in {RECIPES}")
    return [row for _, row in sorted(rows, key=lambda entry: entry[0])]


def control_rows() -> list[Row]:
    return [
        Row("controls", f"{recipe.stem}/{name}", "control", recipe, tuple(overrides))
        for recipe in sorted((RECIPES / "controls").glob("*.toml"), reverse=True)
        for controls in CONTROLS.values()
        for name, overrides in controls.items()
    ]
