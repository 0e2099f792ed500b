"""Commands about graphs: info, doctor, convert."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.display.graphs import show_diagnosis, show_graph
from harmonium.cli.display.rows import finding_rows, relation_rows, run_rows
from harmonium.cli.display.training import show_model, show_run
from harmonium.cli.options import argument, graph_format, option
from harmonium.cli.reading import reads_graph
from harmonium.runtime.untrusted import is_file


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
    console.download(graph_or_run)
    contents = harmonium.info(graph_or_run, **reading)

    def show(_: object) -> None:
        if "run" in contents:
            show_model(contents["run"])
            show_run(harmonium.Run.load(graph_or_run))
        show_graph(contents["graph"], top)

    console.output(contents, output_format, show, run_rows if "run" in contents else relation_rows)


@command("Graphs")
@reads_graph
def doctor(
    graph: Annotated[str, argument("GRAPH|RUN", "Dataset name, folder or file of facts; or a run folder.")],
    clean: Annotated[Path | None, option("PATH", "Write a copy without leaks: a new folder or file.")] = None,
    unite: Annotated[
        str | None,
        option(
            "whitespace|case|punctuation|all",
            "With --clean: unite names that differ only in these (several: case,whitespace); the usual one stays.",
        ),
    ] = None,
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

    Example: harmonium doctor messy.csv --on-bad skip --clean clean --unite case,whitespace

    Example: harmonium doctor facts-2024.csv --since facts-2023.csv
    """
    console.download(graph)
    if since is not None:
        console.download(since)
    with console.bar("ranking by rules") as progress:
        diagnosis = harmonium.doctor(
            graph, clean=clean, unite=unite, since=since, top=top, progress=progress, **reading
        )
    console.output(diagnosis, output_format, partial(show_diagnosis, top=top), finding_rows)


@command("Graphs")
@reads_graph
def convert(
    source: Annotated[str, argument("GRAPH", "Dataset name, folder or file of facts, sparql:URL or bolt://HOST.")],
    out: Annotated[Path, argument("PATH", "Folder to write, or file whose ending is its format.")],
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
            source, out, to, valid, test, seed, overwrite, progress=lambda count: advance(count / 1e6), **reading
        )
    triples = {split: len(facts) for split, facts in graph.splits.items()}
    sizes = {"entities": graph.n_entities, "relations": graph.n_relations, "triples": triples}
    summary = {"name": graph.name, "out": str(out), **sizes, "notes": [str(note) for note in graph.notes]}

    def show(_: object) -> None:
        console.say(repr(graph), "bold")
        console.notes(graph.notes)
        console.say(f"written: {out}")

    console.output(summary, output_format, show, lambda row: [row])
