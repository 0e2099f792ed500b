"""A commented settings file for a graph: what `train` would choose for it, and the meaning of every line."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from harmonium.config.setting_values import full_keys
from harmonium.config.settings import Config, Setting, describe, flatten, read_toml, to_toml
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import check_output_file, read_text
from harmonium.training.search.search import Search, select
from harmonium.training.train import DEFAULT, read_recipe

MARK = "# Settings of harmonium"  # the start of every such file
WIDTH = 110


def settings_file(
    data: str | Path | Graph | None = None,
    preset: str | None = None,
    overrides: tuple[str, ...] = (),
    minutes: float | None = None,
) -> str:
    """The text of a settings file for a graph, or without one the settings of a preset; `train` accepts it as `config`.

    Sizes are chosen as `train` chooses them, from the number of facts and the time of a few steps; alternatives are not
    tried. Settings that have their default are commented out.
    """
    recipe = preset or DEFAULT
    given = full_keys(Config, overrides)
    config, search = read_recipe(recipe, given)
    graph = None if data is None else data if isinstance(data, Graph) else load(data)
    reasons: list[str] = []
    budget = None
    if graph is not None:
        config = replace(config, data=graph.name if isinstance(data, Graph) else str(data))
        if search is not None:
            sizes_only = replace(search, choices={})
            config, selection = select(config, sizes_only, graph, list(given), minutes)
            reasons, budget = [*_graph_reasons(config, graph), *selection.reasons], selection.minutes
    return (
        _header(recipe, graph, budget)
        + _settings(config, graph, dict(_split(reason) for reason in reasons))
        + _search(recipe)
    )


def check_path(path: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, a file that cannot be written, or that is not such a file."""
    if path.suffix != ".toml":
        raise HarmoniumError(f"--out {path}: a settings file ends in .toml")
    check_output_file(path)
    if not path.parent.is_dir():
        raise HarmoniumError(f"--out {path}: there is no folder {path.parent}")
    if not path.exists():
        return
    if not overwrite:
        raise HarmoniumError(f"--out {path}: exists already; choose another name, or replace it with --overwrite")
    if not read_text(path).startswith(MARK):
        raise HarmoniumError(f"--out {path}: was not written by `harmonium init`, so it will not be replaced")


def _graph_reasons(config: Config, graph: Graph) -> list[str]:
    """Why the sizes that follow from the number of facts are what they are."""
    batch, count, epochs = config.train.batch_size, len(graph.train), config.train.epochs
    return [
        f"train.batch_size = {batch}: about a hundredth of the {count:,} training facts, from 16 to 1,000",
        f"train.epochs = {epochs}: {epochs * -(-count // batch):,} steps; small graphs need more epochs",
        f"train.evaluate_every = {config.train.evaluate_every}: chosen by the {len(graph.valid):,} validation facts",
    ]


def _split(reason: str) -> tuple[str, str]:
    """The key of a reason such as `model.entity_dim = 64: the largest offered`, and the rest."""
    setting, _, text = reason.partition(": ")
    return setting.partition(" = ")[0], text


def _header(recipe: str, graph: Graph | None, minutes: float | None) -> str:
    lines = [f"{MARK}. Train with them: harmonium train --config FILE"]
    if graph is not None:
        facts = ", ".join(f"{len(part):,} in {split}" for split, part in graph.splits.items())
        sizes = f"{graph.n_entities:,} entities, {graph.n_relations:,} relations; facts: {facts}"
        lines.append(f"# Graph: {_comment(graph.name)}: {sizes}.")
    if minutes is not None:
        lines.append(f"# Sizes are such that training takes about {minutes:g} minutes on this machine, or less.")
    lines += [
        f"# Lines without # differ from the defaults: they are the preset {recipe}'s, or were chosen for the graph.",
        "# Lines with # show the default; remove the # to change one.",
    ]
    return "\n".join(lines) + "\n"


def _settings(config: Config, graph: Graph | None, reasons: dict[str, str]) -> str:
    """Every setting with its meaning, its allowed values and, where it was chosen for the graph, the reason."""
    values, defaults, lines, group = flatten(config), flatten(Config()), [], ""
    for row in describe():
        prefix, _, name = row.key.rpartition(".")
        if prefix != group:
            lines += ["", f"[{prefix}]"]
            group = prefix
        lines += ["", *_explain(row, reasons.get(row.key))]
        value = values[row.key]
        is_chosen = value != defaults[row.key] or row.key in reasons or (row.key == "data" and graph is not None)
        line = f"{name} = {'...' if value is None else to_toml(value)}"
        lines.append(line if is_chosen and value is not None else f"# {line}")
    return "\n".join(lines) + "\n"


def _explain(row: Setting, reason: str | None) -> list[str]:
    text = row.help + ("" if row.values == "text" else f" Values: {row.values}.")
    lines = textwrap.wrap(text, WIDTH)
    lines += textwrap.wrap(f"For this graph: {reason}.", WIDTH) if reason else []
    return [f"# {line}" for line in lines]


def _search(recipe: str) -> str:
    """The alternatives that the recipe would try, commented out."""
    _, text, _ = read_toml(recipe)
    if Search.read(recipe) is None:
        return ""
    table = text[text.index("[search]") :].strip().splitlines()
    about = (
        "\n# Without a table [search] the settings above are trained once, as they are. Remove the # below to let short\n"
        "# trainings choose sizes and alternatives within a time budget, as the preset does.\n\n"
    )
    return about + "\n".join(f"# {line}".rstrip() for line in table) + "\n"


def _comment(text: str) -> str:
    """Text that cannot end its comment."""
    return " ".join(text.split())
