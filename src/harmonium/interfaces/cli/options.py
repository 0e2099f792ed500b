"""Arguments and options: how they are declared, and those that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from harmonium.runtime.errors import HarmoniumError


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help)


def option(metavar: str, help: str, *names: str, **settings: Any) -> Any:
    """An option that takes a value; its name is that of the parameter unless `names` are given."""
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def flag(help: str, *names: str, **settings: Any) -> Any:
    """An option that takes no value: --name and --no-name, unless `names` are given."""
    return typer.Option(*names, help=help, **settings)


def _check_figure(path: Path | None) -> Path | None:
    """Refuse a figure that cannot be written before any work is done."""
    if path is None:
        return None
    from harmonium.analysis.figures import figure_path

    return figure_path(path)


def recipe(config: Path | None, preset: str | None) -> Path | str | None:
    """The settings file or the preset, of which one may be given."""
    from harmonium.runtime.config import presets

    if config is not None and preset is not None:
        raise HarmoniumError("give CONFIG.toml or --preset, not both")
    if preset is not None and preset not in presets():
        raise HarmoniumError(f"--preset is one of {', '.join(presets())}, not '{preset}'")
    return config or preset


RunFolder = Annotated[Path, argument("RUN", "Run folder written by train or demo.")]
ConfigFile = Annotated[Path | None, argument("CONFIG.toml", "Settings file or recipe; default: the preset best.")]
Head = Annotated[str, argument("HEAD", "Name of the head entity.")]
Relation = Annotated[str, argument("RELATION", "Name of the relation.")]
Tail = Annotated[str, argument("TAIL", "Name of the tail entity.")]

Data = Annotated[
    str | None, option("GRAPH", "Dataset name, folder or file of triples; default: `data` of the settings.")
]
Columns = Annotated[
    str | None, option("H,R,T", "Columns of head, relation, tail by name or number: from,kind,to or 1,3,2.")
]
Separator = Annotated[str | None, option("CHAR", "Column separator: one character, tab or space.")]
Encoding = Annotated[str | None, option("NAME", "Encoding of a text file, such as cp1252; default: UTF-8.")]
Preset = Annotated[str | None, option("best|fast|plain|paper", "Settings for any graph; default: best.")]
Minutes = Annotated[
    float | None, option("M", "Time budget of training; default for best: 5 on a CPU, 3 on a GPU.", min=0.01)
]
Settings = Annotated[
    list[str] | None, option("KEY=VALUE", "Override a setting, e.g. model.faithfulness=inf; repeatable.", "--set")
]
Track = Annotated[
    list[str] | None,
    option("TRACKER", "Also log to tensorboard:DIR, wandb:PROJECT, mlflow:URI or csv:FILE; repeatable."),
]
OutFile = Annotated[
    Path | None, option("FILE", "Write the results to a .tsv, .csv, .jsonl, .parquet, .nt or .ttl file.")
]
Figure = Annotated[Path | None, option("FILE", "Draw a figure: .png, .pdf or .svg.", "--plot", callback=_check_figure)]
Seed = Annotated[int, option("N", "Random seed.")]
Device = Annotated[str, option("cpu|cuda|auto", "Device; auto: a GPU if there is one.")]
Ties = Annotated[
    str, option("RULE", "Rank among scores equal within the rounding of float64: realistic, optimistic or pessimistic.")
]
InferredTypes = Annotated[bool, flag("Only entities that could fill the slot, by their types, given or inferred.")]
Typed = Annotated[bool, flag("Only entities seen in that slot of the relation.")]
Count = Annotated[int, option("N", "Number of neighbours.", min=1)]
Limit = Annotated[int, option("N", "Rank at most this many queries, a seeded sample.", min=2)]
Top = Annotated[int, option("N", "Number of relations to list.", min=0)]
Overwrite = Annotated[bool, flag("Replace what is already there.", "--overwrite")]
AsJson = Annotated[bool, flag("Print JSON.", "--json")]
