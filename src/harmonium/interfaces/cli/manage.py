"""Commands that make something new of a run: add, export."""

from pathlib import Path
from typing import Annotated, Any

import harmonium
from harmonium.interfaces.cli import console, options
from harmonium.interfaces.cli.display.training import show_run
from harmonium.interfaces.cli.options import argument, choice, option
from harmonium.interfaces.cli.reading import reads_graph


@reads_graph
def add(
    run: options.RunFolder,
    facts: Annotated[Path, argument("FILE", "File of facts about the new entities: .tsv, .csv, .jsonl or .parquet.")],
    out: Annotated[Path, option("RUN", "Run folder to write.")],
    overwrite: options.Overwrite = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Add new entities to a run from a few facts about them, without training again; all other vectors stay the same.

    Example: harmonium add runs/demo facts.tsv --out runs/more
    """
    with console.bar("solving") as progress:
        extended, added = harmonium.add(run, facts, out, overwrite, progress, **reading)
    summary = {"path": str(out), "entities": added.names, "facts": len(added.facts), "notes": added.notes}
    evaluation = extended.evaluation.to_json() if extended.evaluation else {}
    summary |= {key: evaluation.get(key) for key in ("metrics", "estimate")}

    def show(_: object) -> None:
        names = ", ".join(added.names[:10]) + (", ..." if len(added.names) > 10 else "")
        console.say(f"{len(added.names):,} new entities from {len(added.facts):,} facts: {names}", "bold")
        console.notes(added.notes)
        show_run(extended)
        console.say(f"run folder: {extended.path}")

    console.output(summary, output_format, show, lambda row: [row])


def export(
    run: options.RunFolder,
    out: Annotated[
        Path, argument("PATH", "File to write: .npz, .parquet or .faiss; folder with --to pykeen, gds or hub.")
    ],
    to: Annotated[
        str | None,
        choice(("npz", "parquet", "faiss", "pykeen", "gds", "hub"), "Format; default: the ending of PATH."),
    ] = None,
    overwrite: options.Overwrite = False,
    output_format: options.Format = "table",
) -> None:
    """Write the vectors of a run for other tools, or a folder for PyKEEN, Neo4j's GDS or the Hugging Face Hub.

    PyKEEN and GDS take plain models, and give them the same scores. A folder for
    the Hub is the run with a model card; every command opens it as a run.

    Example: harmonium export runs/demo vectors.parquet

    Example: harmonium export runs/distmult for-pykeen --to pykeen

    Example: harmonium export runs/demo my-model --to hub
    """
    with console.bar("exporting"):
        written = harmonium.export(run, out, to, overwrite)
    files = {"written": [str(path) for path in written]}

    def show(_: object) -> None:
        for path in written:
            console.say(f"written: {path}")

    console.output(files, output_format, show, lambda _: [{"written": str(path)} for path in written])
