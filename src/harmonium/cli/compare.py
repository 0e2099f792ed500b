"""The command `diff`: what changed between two runs."""

from typing import Annotated

import typer

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.options import argument, flag, option


@command("Analyse")
def diff(
    before: Annotated[str, argument("RUN", "The earlier run folder.")],
    after: Annotated[str, argument("RUN", "The later one.")],
    limit: options.Limit = 4000,
    top: Annotated[int, option("N", "Number of relations, answers and probabilities listed.", min=0)] = 10,
    seed: options.Seed = 0,
    exit_code: Annotated[bool, flag("Exit with code 1 if anything changed, 0 if nothing did.", "--exit-code")] = False,
    output_format: options.Format = "table",
) -> None:
    """Show what changed between two runs: settings, metrics, first answers, probabilities.

    Compared are facts that both runs hold out, matched by name; a metric is
    called better or worse only beyond noise. `doctor --since` compares graphs.

    Example: harmonium diff runs/old runs/new
    """
    with console.bar("comparing") as progress:
        difference = harmonium.diff(before, after, limit=limit, top=top, seed=seed, progress=progress)
    console.output(difference, output_format)
    if exit_code and difference.changed:
        raise typer.Exit(1)
