"""JSON lines: a folder with train.jsonl (valid, test), or one file; each line is an object, whose keys are columns, or
an array of cells. A .json file may hold one array of them instead.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from harmonium.data.compressed import create_file, find_file, strip_compression
from harmonium.data.formats.format import Format
from harmonium.data.formats.tsv import names_beside, split_files
from harmonium.data.graph import Graph, Note
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.rows import JSON_ENDINGS, read_values
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import choose_encoding, to_source, to_table
from harmonium.data.tables.table_rows import tables_of_rows

ENDINGS = JSON_ENDINGS


def detect(path: Path, options: Options) -> bool:
    if path.is_file():
        return strip_compression(path).suffix in ENDINGS
    return find_file(path, "train", ENDINGS) is not None


def read(path: Path, options: Options) -> Source:
    name, folder, files = split_files(path, ENDINGS)
    notes: list[Note] = []
    skipped = SkippedRows(options.on_bad)
    tables = {split: partial(_tables, file, options, skipped, notes) for split, file in files.items()}
    return to_source(name, tables, str(path), names_beside(folder), notes, skipped)


def _tables(path: Path, options: Options, skipped: SkippedRows, notes: list[Note]) -> Iterator[pl.DataFrame]:
    """The chosen keys of the objects in one file, in parts."""
    skipped.restart(path)
    encoding = choose_encoding(path, options, notes)

    def rows(skipped: SkippedRows) -> Iterator[tuple[str, Any]]:
        return ((f":{number}", row) for number, row in read_values(path, encoding, skipped))

    return tables_of_rows(rows, options, path, skipped, notes)


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """One object per fact; a single file also has splits and labels."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_ndjson(file)


FORMAT = Format(
    "jsonl", "JSON lines", "JSON lines, or one JSON array, of objects or of rows.", read, ENDINGS, detect, write,
    written=(".jsonl",),
)  # fmt: skip
