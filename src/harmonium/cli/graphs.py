"""Commands about graphs: info, doctor, convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import argument, graph_format, option
from harmonium.cli.reading import reads_graph
from harmonium.runtime.displayed import Line, notes
from harmonium.runtime.untrusted import is_file

if TYPE_CHECKING:
    from harmonium.data.graph import Graph


@command("Graphs")
@reads_graph
def info(
    graph_or_run: Annotated[str, argument("GRAPH|RUN", "Dataset name, folder or file of facts; or a run folder.")],
    top: options.Top = 20,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Show what is in a graph (counts, splits, relations with an example) or a run (model, training, metrics, graph).

    Example: harmonium info atlas

    Example: harmonium info runs/demo
    """
    from harmonium.answers.calibration.completeness import completeness_of
    from harmonium.answers.open_run import open_run
    from harmonium.data.checks.completeness import completeness_table
    from harmonium.run.run import Run, is_run_folder, open_graph

    console.download(graph_or_run)
    source = Run.of(graph_or_run) if is_run_folder(graph_or_run) else graph_or_run
    graph = open_graph(source, **reading)

    def show(source: Run | Graph) -> None:
        if isinstance(source, Run):
            console.show([*display.model(source), *source.display_training(), *source.display_metrics()])
            console.show(completeness_table(completeness_of(open_run(source))))
        console.show(graph.display(top))

    rows = display.run_rows if isinstance(source, Run) else display.relation_rows
    opened = source if isinstance(source, Run) else graph
    console.output(opened, output_format, show, lambda source: rows(harmonium.info(source)), harmonium.info)


@command("Graphs")
@reads_graph
def doctor(
    graph: Annotated[str, argument("GRAPH|RUN", "Dataset name, folder or file of facts; or a run folder.")],
    clean: Annotated[Path | None, option("PATH", "Write a copy without leaks: a new folder or file.")] = None,
    since: Annotated[
        str | None, option("GRAPH", "Older version of the graph, or a run on it: also list facts that contradict it.")
    ] = None,
    top: Annotated[int, option("N", "Number of relations and, with --since, of contradictions.", min=0)] = 10,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Check a graph for repeated facts, leaks into test, redundant relations and odd names, with a verdict.

    Example: harmonium doctor atlas

    Example: harmonium doctor messy.csv --clean clean

    Example: harmonium doctor facts-2024.csv --since facts-2023.csv
    """
    console.download(graph)
    if since is not None:
        console.download(since)
    with console.bar("ranking by rules") as progress:
        diagnosis = harmonium.doctor(graph, clean=clean, since=since, top=top, progress=progress, **reading)
    console.output(diagnosis, output_format, lambda diagnosis: console.show(diagnosis.display(top)))


@command("Graphs")
@reads_graph
def convert(
    source: Annotated[str, argument("GRAPH", "Dataset name, folder or file of facts, sparql:URL or bolt://HOST.")],
    out: Annotated[Path, argument("PATH", "Folder to write, or file whose suffix is its format.")],
    to: Annotated[
        str | None,
        graph_format("Format of the files in a folder; default: tsv."),
    ] = None,
    valid: Annotated[float, option("X", "Share of the facts for valid, if GRAPH has no splits.")] = 0.0,
    test: Annotated[float, option("X", "Share of the facts for test, if GRAPH has no splits.")] = 0.0,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Write a graph in another format: TSV, CSV, Parquet, RDF, OpenKE, LibKGE or .graph; also as .gz, .xz or .zst.

    Example: harmonium convert dump.nt.gz facts --valid 0.05 --test 0.05

    Example: harmonium convert messy.csv facts.parquet --columns person,knows,friend --delimiter ";"
    """
    is_text = Path(source).suffix in (".tsv", ".txt") and is_file(source)
    megabytes = Path(source).stat().st_size // 10**6 if is_text else None
    with console.bar("reading and writing, MB", megabytes) as advance:
        graph = harmonium.convert(
            source, out, to, valid=valid, test=test, seed=seed, overwrite=overwrite,
            progress=lambda count: advance(count / 1e6), **reading,
        )  # fmt: skip
    triples = {split: len(facts) for split, facts in graph.splits.items()}
    sizes = {"entities": graph.n_entities, "relations": graph.n_relations, "triples": triples}
    summary = {"name": graph.name, "out": str(out), **sizes, "notes": [str(note) for note in graph.notes]}

    def show(_: object) -> None:
        console.show([Line(repr(graph), "bold"), *notes(graph.notes), Line(f"written: {out}")])

    console.output(summary, output_format, show, lambda row: [row])
