"""What a format declares of itself: its name, its files, and the functions that read and write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmonium.data.compressed import find_file, strip_compression
from harmonium.data.graph import Graph
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.source import Source


@dataclass(frozen=True)
class Format:
    """A kind of file or folder that holds a graph.

    Everything else follows from this declaration: which format reads a path, the values of `convert --to`, help texts,
    errors, and the tests that write a graph and read it back. A module of this folder declares it as
    `FORMAT`, where registry.py finds it.
    """

    name: str  # one word: `--to NAME` for a folder format
    title: str  # as people call it
    help: str  # what is read, in a line
    read: Callable[[Path, Options], Source]
    suffixes: tuple[str, ...] = ()  # of its files; a folder has train.SUFFIX (and valid, test)
    detect: Callable[[Path, Options], bool] | None = None  # default: by the suffixes
    write: Callable[[Graph, Path, Sequence[str], bool], None] | None = (
        None  # splits to one file; whether it stands alone
    )
    written: tuple[str, ...] | None = None  # the suffixes it writes; default: all that it reads
    write_folder: Callable[[Graph, Path], None] | None = None  # of a format that is always a folder
    beside: tuple[str, ...] = ("*_names.tsv",)  # patterns of files beside a single file that are read with it
    table_options: tuple[str, ...] | None = None  # options of tables that it has; None: all
    has_weights: bool = True
    has_labels: bool = False  # in its files of a folder, so that no entity_names.tsv is written beside them

    def detects(self, path: Path, options: Options) -> bool:
        """Whether a file or folder is in this format."""
        if self.detect is not None:
            return self.detect(path, options)
        if path.is_file():
            return strip_compression(path).suffix in self.suffixes
        return find_file(path, "train", self.suffixes) is not None

    @property
    def targets(self) -> tuple[str, ...]:
        """What `convert --to` calls it: its name if it is a folder, else the suffixes that it writes, without the dot."""
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
