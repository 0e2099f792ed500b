"""Declaration of a format: its name, its files, and the functions that read and write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harmonium.data.compressed import find_file, strip_compression
from harmonium.data.formats.tab_files import names_beside, split_files
from harmonium.data.graph import Graph, Note
from harmonium.data.tables.facts import facts_of_tables
from harmonium.data.tables.graph_source import to_source
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import Table


@dataclass(frozen=True)
class Format:
    """A kind of file or folder that holds a graph.

    Everything else follows from this declaration: which format reads a path, the values of `convert --to`, help texts,
    errors, and the tests that write a graph and read it back. A module of this folder declares it as
    `FORMAT`, where registry.py finds it.
    """

    name: str  # one word: `--to NAME` for a folder format
    title: str  # its usual name, as shown to users
    help: str  # one line of help: what is read
    read: Callable[[Path, Options], Source] | None = None  # for a format that is not a table
    open_table: Callable[[Path, Options, SkippedRows, list[Note]], Table] | None = None  # for a table: reads one file
    suffixes: tuple[str, ...] = ()  # of its files; a folder has train.SUFFIX (and valid, test)
    detect: Callable[[Path, Options], bool] | None = None  # default: by the suffixes
    write: Callable[[Graph, Path, Sequence[str], bool], None] | None = (
        None  # writes splits to one file; last argument: whether it is the only file
    )
    written: tuple[str, ...] | None = None  # the suffixes it writes; default: all that it reads
    write_folder: Callable[[Graph, Path], None] | None = None  # for a format that is always a folder
    beside: tuple[str, ...] = ("*_names.tsv",)  # patterns of files beside a single file that are read with it
    table_options: tuple[str, ...] | None = None  # options of tables that it supports; None: all
    has_weights: bool = True
    has_labels: bool = False  # if false, a folder also gets entity_names.tsv

    def detects(self, path: Path, options: Options) -> bool:
        """Whether a file or folder is in this format."""
        if self.detect is not None:
            return self.detect(path, options)
        if path.is_file():
            return strip_compression(path).suffix in self.suffixes
        return find_file(path, "train", self.suffixes) is not None

    def source(self, path: Path, options: Options) -> Source:
        """The facts of a file or folder."""
        if self.open_table is None:
            assert self.read is not None, f"{self.name} reads tables or sources"
            return self.read(path, options)
        name, folder, files = split_files(path, self.suffixes)
        skipped, notes = SkippedRows(options.on_bad), list[Note]()
        tables = {split: self.open_table(file, options, skipped, notes) for split, file in files.items()}
        facts = facts_of_tables(tables, options, skipped, notes)
        source = to_source(name, facts, str(path), names_beside(folder), notes, skipped)
        return replace(source, is_guess=options.columns is None)

    @property
    def targets(self) -> tuple[str, ...]:
        """Values of `convert --to` for it: its name if it is a folder, else the suffixes that it writes, without the dot."""
        if self.write_folder is not None:
            return (self.name,)
        if self.write is None:
            return ()
        return tuple(suffix[1:] for suffix in (self.suffixes if self.written is None else self.written))


@dataclass(frozen=True)
class Server:
    """A kind of server that holds a graph, named by an address."""

    name: str
    title: str
    help: str
    claims: Callable[[str], bool]  # whether an address is one of these
    read: Callable[[str, Options], Source]
    graph_name: Callable[[str], str]  # short, for a run folder
