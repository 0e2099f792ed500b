"""Arguments and options: how they are declared, and those that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer


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


RunFolder = Annotated[Path, argument("RUN", "Run folder written by train or demo.")]
ConfigFile = Annotated[Path | None, argument("CONFIG.toml", "Settings file; default: the built-in settings.")]
Head = Annotated[str, argument("HEAD", "Name of the head entity.")]
Relation = Annotated[str, argument("RELATION", "Name of the relation.")]
Tail = Annotated[str, argument("TAIL", "Name of the tail entity.")]

Data = Annotated[
    str | None, option("GRAPH", "Dataset name, folder or file of triples; default: `data` of the settings.")
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
Ties = Annotated[str, option("RULE", "Rank among equal scores: realistic, optimistic or pessimistic.")]
Typed = Annotated[bool, flag("Only entities seen in that slot of the relation.")]
Count = Annotated[int, option("N", "Number of neighbours.", min=1)]
Limit = Annotated[int, option("N", "Rank at most this many queries, a seeded sample.", min=2)]
Top = Annotated[int, option("N", "Number of relations to list.", min=0)]
Overwrite = Annotated[bool, flag("Replace what is already there.", "--overwrite")]
AsJson = Annotated[bool, flag("Print JSON.", "--json")]
