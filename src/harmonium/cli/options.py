"""Declaration of arguments and options, and those that several commands share.

The placeholder of a value in the help is one of METAVARS, or the allowed values: a|b|c.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harmonium.cli.console import FORMATS
from harmonium.config.settings import EvaluateConfig, allowed_values, presets, recipes
from harmonium.errors import HarmoniumError

GRAPH_FORMAT = "FORMAT"
METAVARS = {
    GRAPH_FORMAT: "format of a graph",
    "TARGET": "where results go",
    "RUN": "run folder",
    "GRAPH": "dataset name, folder or file of facts",
    "CONFIG": "settings file (.toml) or recipe",
    "FILE": "file",
    "FOLDER": "folder",
    "PATH": "file or folder",
    "NAME": "name of an entity, a relation, a column, ...",
    "HEAD": "name of the head entity",
    "RELATION": "name of the relation",
    "TAIL": "name of the tail entity",
    "RELATION=NAME": "a relation, and the entity at its other end",
    "N": "whole number",
    "X": "number",
    "CHAR": "one character",
    "KEY=VALUE": "setting",
    "TEXT": "any text",
}


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help)


def option(metavar: str, help: str, *names: str, **settings: Any) -> Any:
    """An option that takes a value; its name is that of the parameter unless `names` are given."""
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def choice(values: Sequence[str], help: str, *names: str, unlisted: Collection[str] = ()) -> Any:
    """An option with one of a few values: the help lists them, the shell completes them, others are an error.

    `unlisted` values are accepted, but not shown.
    """
    return _choice("|".join(values), lambda: values, help, names, unlisted)


def _choice(
    metavar: str, values: Callable[[], Sequence[str]], help: str, names: Sequence[str], unlisted: Collection[str] = ()
) -> Any:
    def check(parameter: typer.CallbackParam, value: str | None) -> str | None:
        if value is not None and value not in values() and value not in unlisted:
            raise HarmoniumError(f"{parameter.opts[0]} must be one of {', '.join(values())}, not '{value}'")
        return value

    def complete(incomplete: str) -> list[str]:
        return [value for value in values() if value.startswith(incomplete)]

    return typer.Option(*names, metavar=metavar, help=help, callback=check, autocompletion=complete)


def graph_formats() -> Sequence[str]:
    """Formats in which a graph can be written; loaded on demand, as importing formats is slow."""
    from harmonium.data.formats.registry import targets

    return targets()


def graph_format(help: str) -> Any:
    """An option for a format of graphs; its help lists them (`shown_metavar`)."""
    return _choice(GRAPH_FORMAT, graph_formats, help, ())


def shown_metavar(metavar: str | None) -> str | None:
    """The placeholder of a value in the help; for graph formats, the list of registered ones."""
    return "|".join(graph_formats()) if metavar == GRAPH_FORMAT else metavar


def protocol(name: str, help: str) -> Any:
    """An option for a setting of the evaluation protocol."""
    return choice(allowed_values(EvaluateConfig, name), help)


def flag(help: str, *names: str, **settings: Any) -> Any:
    """An option that takes no value: --name and --no-name, unless `names` are given."""
    return typer.Option(*names, metavar="", help=help, **settings)


def _check_figure(path: Path | None) -> Path | None:
    """Refuse a figure that cannot be written before any work is done."""
    if path is None:
        return None
    from harmonium.analysis.figures import figure_path

    return figure_path(path)


def sources(
    given: str | None, data: str | None, config: Path | None, preset: str | None
) -> tuple[str | None, Path | str | None]:
    """Sort out the graph and the settings of a command whose first argument may be either.

    An argument that ends in .toml, or is the name of a recipe, means settings; any other one means a graph.
    """
    if given is not None:
        if given.endswith(".toml") or given in recipes():
            if config is not None:
                raise HarmoniumError(f"two settings files: '{given}' and --config {config}; give one")
            config = Path(given)
        elif data is not None:
            raise HarmoniumError(f"two graphs: '{given}' and --data {data}; give one")
        else:
            data = given
    if config is not None and preset is not None:
        raise HarmoniumError("give a settings file or --preset, not both")
    return data, config or preset


RunFolder = Annotated[Path, argument("RUN", "Run folder written by train, complete or demo.")]
GraphOrConfig = Annotated[
    str | None,
    argument("GRAPH|CONFIG", "Dataset name, folder or file of facts; or a settings file (.toml) or recipe."),
]
ConfigFile = Annotated[
    Path | None, option("CONFIG", "Settings file (.toml), such as the config.toml of a run, or recipe.", "--config")
]
Head = Annotated[str, argument("HEAD", "Name of the head entity.")]
Relation = Annotated[str, argument("RELATION", "Name of the relation.")]
Tail = Annotated[str, argument("TAIL", "Name of the tail entity.")]

Data = Annotated[
    str | None, option("GRAPH", "Dataset name, folder or file of facts; default: `data` of the settings file.")
]
Preset = Annotated[str | None, choice(presets(), "Settings for any graph; default: best.", unlisted=recipes())]
Minutes = Annotated[
    float | None,
    option("X", "Time budget of training in minutes; default for best: 5 on a CPU, 3 on a GPU.", min=0.01),
]
Settings = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Change a setting, e.g. train.epochs=50; `harmonium train --settings` lists all; repeatable.",
        "--set",
    ),
]
Track = Annotated[
    list[str] | None,
    option("NAME:TARGET", "Also log to tensorboard:FOLDER, wandb:PROJECT, mlflow:URI or csv:FILE; repeatable."),
]
OutFile = Annotated[
    Path | None, option("FILE", "Write the results to a .tsv, .csv, .jsonl, .parquet, .nt or .ttl file.")
]
Figure = Annotated[Path | None, option("FILE", "Draw a figure: .png, .pdf or .svg.", "--plot", callback=_check_figure)]
Seed = Annotated[int, option("N", "Random seed.")]
Device = Annotated[
    str, option("auto|cpu|cuda", "Device that computes; auto: a GPU if there is one; cuda:1: the second.")
]
Ties = Annotated[str, protocol("ties", "Rank of the true answer among equal scores: mean, first or last.")]
Split = Annotated[str, protocol("split", "Facts to rank.")]
InferredTypes = Annotated[bool, flag("Only entities that could fill the slot, by their types, given or inferred.")]
Typed = Annotated[bool, flag("Only entities seen in that slot of the relation.")]
NeighbourCount = Annotated[int, option("N", "Number of neighbours.", min=1)]
Limit = Annotated[int, option("N", "Rank at most this many queries, a random sample.", min=2)]
Top = Annotated[int, option("N", "Number of relations to list.", min=0)]
Overwrite = Annotated[bool, flag("Replace existing output.", "--overwrite")]
Format = Annotated[
    str,
    choice(FORMATS, "Output format: table is for people, the others for programs.", "--format"),
]
