"""The command `audit`: known facts that are probably wrong, of a run or of a file of facts, which is trained on first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.opening import open_or_train
from harmonium.cli.options import argument, flag, option
from harmonium.cli.reading import reads_graph

if TYPE_CHECKING:
    from harmonium.answers.audit.suspect import Audit


@command("Ask")
@reads_graph
def audit(
    graph_or_run: Annotated[
        str, argument("GRAPH|RUN", "Dataset name, folder or file of facts, to train on first; or a run folder.")
    ],
    out: options.OutFile = None,
    top: Annotated[int, option("N", "Number of facts to list.", min=1)] = 100,
    judgements: Annotated[
        Path | None,
        option("FILE", "Judgements of a review; accepted facts are not listed. Default: those beside the run."),
    ] = None,
    preset: options.Preset = None,
    minutes: options.Minutes = None,
    run: Annotated[Path | None, option("RUN", "Run folder to train into; default: runs/GRAPH.")] = None,
    overwrite: Annotated[bool, flag("Train again where there is a run already.", "--overwrite")] = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Find the facts of a graph that are probably wrong, with probabilities, reasons and what was probably meant.

    Every fact is judged by all others, hidden from itself. `contradicted` says
    that other facts speak against it or that a change of it fits far better;
    `unsupported` that nothing speaks for it, as of many rare facts that are
    right. How many facts are wrong in all is estimated, with an interval.

    A graph is trained on first, as `complete` does. An audit takes minutes, and
    is kept in the run folder.

    Example: harmonium audit facts.csv --out suspects.csv

    Example: harmonium audit runs/demo --top 20
    """
    from harmonium.answers.send.result_file import check_path

    if out is not None:
        check_path(out)
    opened = open_or_train(
        graph_or_run,
        output_format != "table",
        preset=preset,
        minutes=minutes,
        folder=run,
        overwrite=overwrite,
        **reading,
    )
    with console.bar("auditing") as progress:
        audited = harmonium.audit(opened, top=top, out=out, judgements=judgements, progress=progress)

    def show(audited: Audit) -> None:
        console.show(audited)
        if out is not None:
            console.say(f"all {len(audited):,} facts: {out}")

    console.output(audited, output_format, show, to_json=lambda audited: audited.to_json())
