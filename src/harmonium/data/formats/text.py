"""Separated text: .csv, .tsv, .txt, or any file that no other format claims; a folder with train (valid, test), or one file.

The separator is detected in the first lines (or given as an option), as is a header. In tab-separated text quotes belong
to the cells, unless most cells are quoted or a cell was quoted because it contains a quote. In other text cells may be
quoted. `entity_names.tsv` and `relation_names.tsv` beside them hold identifier TAB label.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from harmonium.data.compressed import create_file, find_file, strip_compression
from harmonium.data.formats.format import Format
from harmonium.data.formats.tab_files import write_table
from harmonium.data.graph import Graph, Note
from harmonium.data.tables.facts import open_facts
from harmonium.data.tables.graph_source import to_table
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.separated_text import QUOTED, SAMPLED_LINES, open_text
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.table import Batch, Table
from harmonium.errors import HarmoniumError

SUFFIXES = (".csv", ".txt", ".tsv")  # in a folder, the first one present is read
ROWS_COMPARED = 10_000  # with the first row; fewer than a reader compares


def detect(path: Path, options: Options) -> bool:
    return path.is_file() or find_file(path, "train", SUFFIXES) is not None


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """Write the facts of these splits; with `alone` (no folder around the file), splits and labels are columns too.

    CSV is written with a header; tab-separated text gets a header or quotes only if it would be misread without them.
    """
    table = to_table(graph, splits, alone)
    if strip_compression(path).suffix == ".csv":
        with create_file(path) as file:
            table.write_csv(file)
        return
    texts = table.select(column for column in table.columns if table.schema[column] == pl.String)
    quoted = [texts.to_series(i).str.contains(QUOTED).any() for i in range(texts.width)]
    rows = texts.head(SAMPLED_LINES).rows()
    n_quoted = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for row in rows for cell in row)
    quotes = any(quoted) or 2 * n_quoted > len(rows) * table.width
    has_header = table.width > 3 or _needs_header(Table("", None, iter([Batch(table.head(ROWS_COMPARED), str)])))
    write_table(path, table, header=has_header, quotes=quotes)


def _needs_header(table: Table) -> bool:
    """Whether a reader of a file without a header would take its first fact for one, or be in doubt."""
    notes: list[Note] = []
    try:
        has_header = open_facts(table, Options(), SkippedRows(), notes).has_header
    except HarmoniumError:
        return True
    return has_header or any(note.kind == "header" for note in notes)


FORMAT = Format(
    "text", "CSV and TSV", "Separated text, with or without a header.", suffixes=SUFFIXES, detect=detect,
    open_table=open_text, write=write,
)  # fmt: skip
