"""All formats and servers: chooses the one that reads a source, and writes a graph in any format."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path

from harmonium.data import formats, graph_file
from harmonium.data.compressed import create_file, find_file, strip_compression
from harmonium.data.formats import tab_files
from harmonium.data.formats.format import Format, Server
from harmonium.data.formats.neo4j import server as neo4j
from harmonium.data.formats.rdf import sparql
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.tables.columns import WEIGHT
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.separated_text import open_text
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import Table
from harmonium.errors import HarmoniumError
from harmonium.runtime.written_files import replace_files

TRIED_LAST = ("text",)  # reads nearly any file, so all other formats are tried first


def _declared() -> tuple[Format, ...]:
    """The `FORMAT` of every module in this folder that has one: the first that detects a path reads it."""
    names = (module.name for module in pkgutil.walk_packages(formats.__path__, f"{formats.__name__}."))
    modules = [importlib.import_module(name) for name in names if name != __name__]
    declared = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return tuple(sorted(declared, key=lambda format: (format.name in TRIED_LAST, format.name)))


FORMATS = _declared()
SERVERS: tuple[Server, ...] = (sparql.SERVER, neo4j.SERVER)
GRAPH_FORMAT = graph_file.SUFFIX.removeprefix(".")  # the binary format, which is one file
SPREADSHEETS = r"\.(xls[xbm]?|ods|numbers)"
UNSUPPORTED = r"json|jsonld|xlsx?|rdf|xml|owl|n3|trig|zip|tar|tgz|gexf|graphml"  # suffixes that are not read in folders
SPLIT_FILES = r"(train|valid|test|entity|relation)(2id|_ids|_names|_strings)?"  # in a folder, without suffixes


def server(source: object) -> Server | None:
    """The kind of server whose address this is, such as sparql:URL or bolt://HOST; None for anything else."""
    return next((kind for kind in SERVERS if kind.claims(source)), None) if isinstance(source, str) else None


def detect(path: Path, options: Options) -> Format:
    """The first format that recognises a file or folder."""
    if path.is_file() and re.fullmatch(SPREADSHEETS, path.suffix):
        raise HarmoniumError(f"{path}: spreadsheets are not read; save it as CSV in UTF-8")
    for format in FORMATS:
        if format.detects(path, options):
            return format
    content = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
    formats = ", ".join(dict.fromkeys(format.title for format in FORMATS))
    raise HarmoniumError(
        f"{path}: not a graph: expected a file of facts, or a folder with train.txt (.tsv, .csv, ...); found {content}. "
        f"Formats: {formats}"
    )


def read(path: Path, options: Options) -> Source:
    """Read a file or folder with the format that recognises it."""
    format = detect(path, options)
    if format.table_options is not None:
        options.refuse_table_options(path, format.table_options)
    source = format.source(path, options)
    source.notes.extend(_notes_of_unread_files(path, format))
    return source


def open_table(path: Path, options: Options, skipped: SkippedRows, notes: list[Note]) -> Table:
    """The rows of one file of facts or queries, by its suffix."""
    suffix = strip_compression(path).suffix
    openers = (format.open_table for format in FORMATS if suffix in format.suffixes)
    return (next((open for open in openers if open is not None), None) or open_text)(path, options, skipped, notes)


def _notes_of_unread_files(path: Path, format: Format) -> list[Note]:
    """A note if a folder has a split in files of several formats, of which only one is read."""
    if path.is_file() or not format.suffixes:
        return []
    suffixes = {suffix for each in FORMATS for suffix in each.suffixes}
    files = [file for file in path.iterdir() if strip_compression(file).suffix in suffixes]
    unread = []
    for split in SPLITS:
        named = sorted(file.name for file in files if strip_compression(file).stem == split)
        read_file = find_file(path, split, format.suffixes)
        unread += [name for name in named if read_file is None or name != read_file.name]
    if not unread:
        return []
    text = f"{path.name}: not read: {', '.join(unread)}, as the folder has its splits in files of another format too"
    return [Note(text, "unread files", "", len(unread))]


# Writing -------------------------------------------------------------------------------------------------------------


def targets() -> tuple[str, ...]:
    """All values of `convert --to`: suffixes of files, without the dot, and names of folders."""
    order = ("tsv", "txt", "csv")  # listed first, as most users want a table
    names = dict.fromkeys(target for format in FORMATS for target in format.targets)
    return (*order, *(name for name in names if name not in order), GRAPH_FORMAT)


def writer(target: str) -> Format:
    """The format that writes `target`, one of `targets` other than graph."""
    return next(format for format in FORMATS if target in format.targets)


def output_format(out: Path, to: str | None = None) -> str:
    """The target that a file's suffix or `to` asks for; default for a folder: tsv."""
    suffix = strip_compression(out).suffix.removeprefix(".")
    folders = [format.name for format in FORMATS if format.write_folder is not None]
    files = [target for target in targets() if target not in folders]
    is_file = suffix in files
    to = to or (suffix if is_file else "tsv")
    if to not in targets():
        raise HarmoniumError(f"cannot write '{to}'; there are {', '.join(targets())}")
    if (is_file and to != suffix) or (not is_file and to == GRAPH_FORMAT):
        raise HarmoniumError(f"'{out.name}' and --to {to} disagree; name a folder, or a file that ends in .{to}")
    if suffix and not is_file and not out.is_dir() and re.fullmatch(UNSUPPORTED, suffix):
        raise HarmoniumError(f"cannot write .{suffix}; a file ends in .{', .'.join(files)}, or name a folder")
    if suffix in ("parquet", GRAPH_FORMAT) and strip_compression(out) != out:
        raise HarmoniumError(f"'{out.name}': a .{suffix} file is not compressed again; drop {out.suffix}")
    return to


def write(graph: Graph, out: Path, to: str) -> list[Note]:
    """Write a graph as one file or as a folder of splits; returns notes for the user.

    In a folder, files that an earlier call wrote are replaced; other files are left alone, or are an error if in the way.
    """
    if to == GRAPH_FORMAT:
        with create_file(out) as file:
            file.writelines(graph_file.parts(graph))
        return []
    splits, format = [split for split, triples in graph.splits.items() if len(triples)], writer(to)
    notes = _notes_of_weights(graph, out, format)
    if strip_compression(out).suffix == f".{to}":
        assert format.write is not None, "it writes files"
        format.write(graph, out, splits, True)
        if len(splits) > 1 and to in ("nt", "ttl"):
            notes.append(Note(f"{out.name}: {', '.join(splits)} are merged; a folder or .nq keeps them apart"))
    else:
        with replace_files(out) as folder:
            _write_folder(graph, folder, to, splits)
    return notes


def _notes_of_weights(graph: Graph, out: Path, format: Format) -> list[Note]:
    """A note that says which option reads the weights back, or that the format cannot hold weights."""
    if all(triples.weight is None for triples in graph.splits.values()):
        return []
    if not format.has_weights:
        return [
            Note(f"{out.name}: {format.name} has no weights of facts, so they are left out; other formats keep them")
        ]
    if format.table_options is not None:
        return []
    return [Note(f"{out.name}: the column {WEIGHT} has the weights of facts; --weight-column {WEIGHT} reads them")]


def _write_folder(graph: Graph, folder: Path, to: str, splits: Sequence[str]) -> None:
    format = writer(to)
    if format.write_folder is not None:
        format.write_folder(graph, folder)
        return
    assert format.write is not None, "it writes files"
    for split in splits:
        format.write(graph, folder / f"{split}.{to}", [split], False)
    if not format.has_labels:
        tab_files.write_names(graph, folder)


def is_graph_file(name: str) -> bool:
    """Whether a file of this name would be read as part of a graph in its folder."""
    path = strip_compression(Path(name))
    suffixes = {".del", *(suffix for format in FORMATS for suffix in format.suffixes)}
    return path.suffix in suffixes and bool(re.fullmatch(SPLIT_FILES, path.stem))
