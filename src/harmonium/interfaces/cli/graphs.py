"""Commands about graphs: info, doctor, convert."""

from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.interfaces.cli import console, options
from harmonium.interfaces.cli.display.graphs import show_diagnosis, show_graph
from harmonium.interfaces.cli.display.training import show_run
from harmonium.interfaces.cli.options import argument, flag, option
from harmonium.runtime.untrusted import is_file


def info(
    graph_or_run: Annotated[str, argument("GRAPH_OR_RUN", "Dataset name, folder or file of triples, or run folder.")],
    top: options.Top = 20,
    as_json: options.AsJson = False,
) -> None:
    """Show what is in a graph or a run: counts, splits, relations with an example.

    Example: harmonium info atlas
    """
    console.download(graph_or_run)
    contents = harmonium.info(graph_or_run)
    if as_json:
        console.print_json(contents)
        return
    show_graph(contents["graph"], top)
    if "run" in contents:
        show_run(harmonium.Run.load(graph_or_run))


def doctor(
    graph: Annotated[str, argument("GRAPH", "Dataset name, folder or file of triples.")],
    clean: Annotated[Path | None, option("OUT", "Write a copy without leaks: a new folder or file.")] = None,
    top: options.Top = 10,
    markdown: Annotated[bool, flag("Print Markdown.", "--markdown")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check a graph for repeated facts, leaks into test, redundant relations and odd names, with a verdict.

    Example: harmonium doctor atlas
    """
    console.download(graph)
    with console.bar("ranking by rules") as progress:
        diagnosis = harmonium.doctor(graph, clean, progress)
    if as_json:
        console.print_json(diagnosis.to_json())
    elif markdown:
        print(diagnosis.to_markdown(top), end="")
    else:
        show_diagnosis(diagnosis, top)


def convert(
    source: Annotated[str, argument("IN", "Dataset name, folder, file or sparql:URL.")],
    out: Annotated[Path, argument("OUT", "Folder, or file whose ending is its format.")],
    to: Annotated[
        str | None, option("FORMAT", "Format of a folder: tsv (default), csv, parquet, nt, ttl, nq, openke, libkge.")
    ] = None,
    columns: options.Columns = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    header: Annotated[
        bool | None, flag("Whether line 1 is a header; default: if it names the columns.", "--header/--no-header")
    ] = None,
    quotes: Annotated[
        bool | None, flag('Whether " quotes cells; default: unless separated by tabs.', "--quotes/--no-quotes")
    ] = None,
    on_bad: Annotated[
        str, option("error|skip", "Rows that cannot be used: an error, or skipped with a note.")
    ] = "error",
    literals: Annotated[str, option("skip|keep", "RDF literals: skip, or keep as entities.")] = "skip",
    language: Annotated[str, option("CODE", "Preferred language of RDF labels.")] = "en",
    query: Annotated[
        str | None, option("SPARQL", "For sparql:URL: a SELECT of ?head ?relation ?tail, best with ORDER BY.")
    ] = None,
    allow_internal: Annotated[
        bool, flag("Allow sparql:URL an address of this machine or of its network.", "--allow-internal")
    ] = False,
    valid: Annotated[float, option("X", "Fraction for valid, if IN has no splits.")] = 0.0,
    test: Annotated[float, option("X", "Fraction for test, if IN has no splits.")] = 0.0,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a graph in another format: TSV, CSV, Parquet, RDF, OpenKE, LibKGE or .graph; also as .gz, .xz or .zst.

    Example: harmonium convert dump.nt.gz facts --valid 0.05 --test 0.05

    Example: harmonium convert messy.csv facts.parquet --columns person,knows,friend --separator ";"
    """
    is_text = Path(source).suffix in (".tsv", ".txt") and is_file(source)
    megabytes = Path(source).stat().st_size // 10**6 if is_text else None
    with console.bar("reading and writing, MB", megabytes) as advance:
        graph = harmonium.convert(
            source, out, to, valid, test, seed, overwrite,
            columns=columns, separator=separator, encoding=encoding, header=header, quotes=quotes, query=query,
            literals=literals, language=language, on_bad=on_bad, allow_internal=allow_internal,
            progress=lambda count: advance(count / 1e6),
        )  # fmt: skip
    if as_json:
        triples = {split: len(facts) for split, facts in graph.splits.items()}
        sizes = {"entities": graph.n_entities, "relations": graph.n_relations, "triples": triples}
        console.print_json({"name": graph.name, "out": str(out), **sizes, "notes": [str(note) for note in graph.notes]})
        return
    console.say(repr(graph), "bold")
    console.notes(graph.notes)
    console.say(f"written: {out}")
