"""Commands that make something new of a run: update, export."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.options import argument, choice, flag, option
from harmonium.cli.reading import option_name, reads_graph
from harmonium.errors import HarmoniumError


@command("Manage")
@reads_graph
def update(
    run: options.RunFolder,
    add: Annotated[
        Path | None, option("FILE", "Facts to add, also about new entities and relations: .tsv, .csv, .jsonl, ...")
    ] = None,
    remove: Annotated[
        Path | None, option("FILE", "Facts to forget; those that the graph does not have are recorded as false.")
    ] = None,
    judgements: Annotated[
        Path | None, option("FILE", "Judgements of a review: accepted facts are added, rejected ones removed.")
    ] = None,
    undo: Annotated[bool, flag("Give back the run before its last update.", "--undo")] = False,
    out: Annotated[Path | None, option("RUN", "Run folder to write; the run itself only with --overwrite.")] = None,
    overwrite: options.Overwrite = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Add facts to a run and remove others without training again; only the vectors concerned move.

    Removed facts, and facts to be removed that the graph does not have, are
    recorded as false: no command proposes them again, until they are added.

    Example: harmonium update runs/demo --add facts.tsv --out runs/newer

    Example: harmonium update runs/demo --remove wrong.tsv --out runs/demo --overwrite

    Example: harmonium update runs/demo --judgements runs/demo.review.sqlite --out runs/newer

    Example: harmonium update runs/newer --undo --out runs/before
    """
    if out is None:
        raise HarmoniumError(
            f"say where the updated run goes: --out RUN, or --out {run} --overwrite to replace the run itself"
        )
    command = f"harmonium {shlex.join(sys.argv[1:])}"
    if judgements is not None and (undo or add is not None or remove is not None):
        raise HarmoniumError("give --judgements alone, without --add, --remove and --undo")
    with console.bar("updating") as progress:
        if judgements is not None:
            updated = _apply(run, judgements, out, overwrite, command, progress, reading)
        else:
            updated = harmonium.update(
                run, add, remove, out=out, overwrite=overwrite, undo=undo, progress=progress, command=command, **reading
            )
    log = [update.to_json() for update in updated.updates]
    summary: dict[str, Any] = {"path": str(out), "undone": undo, "updates": log}
    if not undo:
        record = asdict(updated.updates[-1].record)
        summary |= {key: value for key, value in record.items() if key not in ("before", "sizes", "metrics", "made")}
    summary["metrics"] = updated.metrics

    def show(_: object) -> None:
        if undo:
            console.say(f"undone; {len(log):,} updates are left", "bold")
        else:
            console.show(updated.updates[-1])
        console.show(updated.display_metrics())
        console.say(f"run folder: {updated.path}")

    console.output(summary, output_format, show, lambda row: [row])


def _apply(
    run: Path,
    judgements: Path,
    out: Path,
    overwrite: bool,
    command: str,
    progress: Callable[[int], None],
    reading: dict[str, Any],
) -> harmonium.Run:
    """Update a run by the judgements of a review; nothing else is read."""
    from harmonium.review.apply import apply_judgements

    on_bad = reading.pop("on_bad", "error")
    if reading:
        raise HarmoniumError(f"judgements are not read as a table; drop {option_name(min(reading))}")
    return apply_judgements(
        run, judgements, out=out, overwrite=overwrite, on_bad=on_bad, command=command, progress=progress
    )


@command("Manage")
def export(
    run: options.RunFolder,
    out: Annotated[Path, argument("PATH", "File to write: .npz, .parquet or .faiss; folder with --to hub.")],
    to: Annotated[
        str | None,
        choice(("npz", "parquet", "faiss", "hub"), "Format; default: the suffix of PATH."),
    ] = None,
    overwrite: options.Overwrite = False,
    output_format: options.Format = "table",
) -> None:
    """Write the vectors of a run for other tools, or a folder for the Hugging Face Hub.

    A folder for the Hub is the run with a model card; every command opens it as
    a run.

    Example: harmonium export runs/demo vectors.parquet

    Example: harmonium export runs/demo my-model --to hub
    """
    with console.bar("exporting"):
        written = harmonium.export(run, out, to=to, overwrite=overwrite)
    files = {"written": [str(path) for path in written]}

    def show(_: object) -> None:
        for path in written:
            console.say(f"written: {path}")

    console.output(files, output_format, show, lambda _: [{"written": str(path)} for path in written])
