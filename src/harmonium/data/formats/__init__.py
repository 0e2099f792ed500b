"""Graphs in other formats: each format is a module with `detect`, `read` and `write`.

`read` gives a `Source` of names, which encode.py turns into a Graph.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from harmonium.data import graph_file
from harmonium.data.compressed import create_file, find_file, strip_compression
from harmonium.data.formats import (
    csv,
    entity_json,
    graphml,
    graphrag,
    jsonl,
    libkge,
    neo4j_csv,
    openke,
    parquet,
    rdf,
    tsv,
)
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.tables.columns import WEIGHT
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.source import Source
from harmonium.errors import HarmoniumError
from harmonium.runtime.written_files import replace_files

FOLDERS: dict[str, ModuleType] = {"openke": openke, "libkge": libkge}  # always a folder
TABLES: dict[str, ModuleType] = {"parquet": parquet, "jsonl": jsonl, "csv": csv, "tsv": tsv}
OF_TOOLS: dict[str, ModuleType] = {  # only read
    "graphrag": graphrag, "graphml": graphml, "entity_json": entity_json, "neo4j_csv": neo4j_csv,
}  # fmt: skip
FORMATS = FOLDERS | {"rdf": rdf} | OF_TOOLS | TABLES  # the first that detects a path reads it
WRITERS = {"tsv": tsv, "txt": tsv, "csv": csv} | TABLES | {"nt": rdf, "ttl": rdf, "nq": rdf}  # file or folder
SPREADSHEETS = r"\.(xls[xbm]?|ods|numbers)"
NO_TABLES = (rdf, openke, libkge)  # they have no columns to choose
UNSUPPORTED = r"json|jsonld|xlsx?|rdf|xml|owl|n3|trig|zip|tar|tgz|gexf|graphml"  # endings of files, not of folders
PARTS = r"(train|valid|test|entity|relation)(2id|_ids|_names|_strings)?"  # files of a folder, without endings
ENDINGS = {*tsv.ENDINGS, *csv.ENDINGS, *jsonl.ENDINGS, *rdf.ENDINGS, ".parquet", ".del"}


def read(path: Path, options: Options) -> Source:
    """Read a file or folder with the first format that recognises it."""
    if path.is_file() and re.fullmatch(SPREADSHEETS, path.suffix):
        raise HarmoniumError(f"{path}: spreadsheets are not read; save it as CSV in UTF-8")
    for module in FORMATS.values():
        if module.detect(path, options):
            if module in NO_TABLES:
                options.refuse_table_options(path, ("weight_column",) if module is rdf else ())
            source: Source = module.read(path, options)
            source.notes.extend(_notes_of_unread_files(path, module))
            return source
    content = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
    expected = "train.txt, .tsv, .csv, .jsonl, .parquet or .nt (or train2id.txt, train.del)"
    raise HarmoniumError(f"{path}: not a graph: expected {expected}, found {content}")


def _notes_of_unread_files(path: Path, module: ModuleType) -> list[Note]:
    """A note if a folder has a split in several files, of which one is read."""
    if path.is_file() or module not in (*TABLES.values(), rdf):
        return []
    endings = getattr(module, "ENDINGS", (".parquet",))
    files = [file for file in path.iterdir() if strip_compression(file).suffix in ENDINGS - {".del"}]
    unread = []
    for split in SPLITS:
        named = sorted(file.name for file in files if strip_compression(file).stem == split)
        read_file = find_file(path, split, endings)
        unread += [name for name in named if read_file is None or name != read_file.name]
    if not unread:
        return []
    text = f"{path.name}: not read: {', '.join(unread)}, as the folder has its splits in files of another format too"
    return [Note(text, "unread files", "", len(unread))]


def output_format(out: Path, to: str | None = None) -> str:
    """The format that a file's ending or `to` asks for; default for a folder: tsv."""
    ending = strip_compression(out).suffix.removeprefix(".")
    is_file = ending in (*WRITERS, "graph")
    to = to or (ending if is_file else "tsv")
    known = (*WRITERS, *FOLDERS, "graph")
    if to not in known:
        raise HarmoniumError(f"cannot write '{to}'; there are {', '.join(known)}")
    if (is_file and to != ending) or (not is_file and to == "graph"):
        raise HarmoniumError(f"'{out.name}' and --to {to} disagree; name a folder, or a file that ends in .{to}")
    if ending and not is_file and not out.is_dir() and re.fullmatch(UNSUPPORTED, ending):
        raise HarmoniumError(
            f"cannot write .{ending}; a file ends in .{', .'.join((*WRITERS, 'graph'))}, or name a folder"
        )
    if ending in ("parquet", "graph") and strip_compression(out) != out:
        raise HarmoniumError(f"'{out.name}': a .{ending} file is not compressed again; drop {out.suffix}")
    return to


def write(graph: Graph, out: Path, to: str) -> list[Note]:
    """Write a graph as one file or as a folder of splits; returns notes for the user.

    In a folder the files of an earlier graph are replaced, and those of anyone else are an error or stay.
    """
    splits, notes = (
        [split for split, triples in graph.splits.items() if len(triples)],
        _notes_of_weights(graph, out, to),
    )
    if to == "graph":
        with create_file(out) as file:
            file.writelines(graph_file.parts(graph))
    elif strip_compression(out).suffix == f".{to}":
        WRITERS[to].write(graph, out, splits, alone=True)
        if len(splits) > 1 and to in ("nt", "ttl"):
            notes.append(Note(f"{out.name}: {', '.join(splits)} are merged; a folder or .nq keeps them apart"))
    else:
        with replace_files(out) as folder:
            _write_folder(graph, folder, to, splits)
    return notes


def _notes_of_weights(graph: Graph, out: Path, to: str) -> list[Note]:
    """How the weights of facts are read again, where that needs an option; or that the format has none."""
    if to == "graph" or all(triples.weight is None for triples in graph.splits.values()):
        return []
    if to in FOLDERS:
        return [Note(f"{out.name}: {to} has no weights of facts, so they are left out; other formats keep them")]
    if WRITERS[to] is rdf:
        return []
    return [Note(f"{out.name}: the column {WEIGHT} has the weights of facts; --weight-column {WEIGHT} reads them")]


def _write_folder(graph: Graph, folder: Path, to: str, splits: Sequence[str]) -> None:
    if to in FOLDERS:
        FOLDERS[to].write(graph, folder)
        return
    for split in splits:
        WRITERS[to].write(graph, folder / f"{split}.{to}", [split], alone=False)
    if WRITERS[to] is not rdf:
        tsv.write_names(graph, folder)


def is_graph_file(name: str) -> bool:
    """Whether a file of this name would be read as part of a graph in its folder."""
    path = strip_compression(Path(name))
    return path.suffix in ENDINGS and bool(re.fullmatch(PARTS, path.stem))
