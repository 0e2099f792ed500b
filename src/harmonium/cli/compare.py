"""The command `diff`: what changed between two runs, or two versions of a graph."""

from pathlib import Path
from typing import Annotated, Any

import typer

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.display.differences import show_difference
from harmonium.cli.options import argument, flag, option
from harmonium.cli.reading import reads_graph


@command("Analyse")
@reads_graph
def diff(
    before: Annotated[
        str, argument("RUN|GRAPH", "The earlier run folder; or a dataset name, folder or file of facts.")
    ],
    after: Annotated[str, argument("RUN|GRAPH", "The later one.")],
    out: Annotated[Path | None, option("FILE", "Also write a self-contained page (.html).")] = None,
    limit: options.Limit = 4000,
    missing: Annotated[
        int | None,
        option("N", "Compare the N most probable missing facts; default: 100, or none on large graphs.", min=0),
    ] = None,
    top: Annotated[int, option("N", "Number of rows of each kind.", min=0)] = 10,
    seed: options.Seed = 0,
    exit_code: Annotated[bool, flag("Exit with code 1 if anything changed, 0 if nothing did.", "--exit-code")] = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Show what changed between two runs: graph, settings, metrics, answers, probabilities, calibration.

    Names and facts are matched by name; metrics are compared on the same
    held-out questions, and called better or worse only beyond noise.
    Of two graphs, or a graph and a run, the graphs are compared.

    Example: harmonium diff runs/old runs/new --out diff.html

    Example: harmonium diff facts-2023.csv facts-2024.csv --top 100
    """
    for graph in (before, after):
        console.download(graph)
    with console.bar("comparing") as progress:
        difference = harmonium.diff(before, after, out, limit, seed, top, missing, progress, **reading)
    console.output(difference, output_format, show_difference)
    if out is not None and output_format == "table":
        console.say(f"page: {out}")
    if exit_code and difference.changed:
        raise typer.Exit(1)
