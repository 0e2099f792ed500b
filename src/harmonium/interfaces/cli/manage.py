"""Commands that make something new of a run: add, export."""

from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.interfaces.cli import console, options
from harmonium.interfaces.cli.display.training import show_run
from harmonium.interfaces.cli.options import argument, option


def add(
    run: options.RunFolder,
    facts: Annotated[Path, argument("FACTS", "File of facts about the new entities.")],
    out: Annotated[Path, option("RUN", "Run folder to write.")],
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Add new entities to a run from a few facts about them, without training again; all other vectors stay the same.

    Example: harmonium add runs/demo facts.tsv --out runs/more
    """
    with console.bar("solving") as progress:
        extended, added = harmonium.add(run, facts, out, overwrite, progress)
    if as_json:
        summary = {"path": str(out), "entities": added.names, "facts": len(added.facts), "notes": added.notes}
        evaluation = extended.evaluation.to_json() if extended.evaluation else {}
        console.print_json(summary | {key: evaluation.get(key) for key in ("metrics", "estimate")})
    else:
        names = ", ".join(added.names[:10]) + (", ..." if len(added.names) > 10 else "")
        console.say(f"{len(added.names):,} new entities from {len(added.facts):,} facts: {names}", "bold")
        console.notes(added.notes)
        show_run(extended)
        console.say(f"run folder: {extended.path}")


def export(
    run: options.RunFolder,
    out: Annotated[Path, argument("OUT", "File: .npz, .parquet or .faiss; folder with --to pykeen.")],
    to: Annotated[str | None, option("npz|parquet|faiss|pykeen", "Format; default: the ending of OUT.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write the vectors of a run for other tools, or a plain model for PyKEEN, where it has the same scores.

    Example: harmonium export runs/demo vectors.parquet

    Example: harmonium export runs/distmult for-pykeen --to pykeen
    """
    with console.bar("exporting"):
        written = harmonium.export(run, out, to, overwrite)
    if as_json:
        console.print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        console.say(f"written: {path}")
