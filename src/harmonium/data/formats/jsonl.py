"""JSON lines: each line is an object, whose keys are columns, or an array of cells; .json may be one array of them."""

from collections.abc import Sequence
from pathlib import Path

from harmonium.data.compressed import create_file
from harmonium.data.formats.format import Format
from harmonium.data.graph import Graph, Note
from harmonium.data.tables.graph_source import to_table
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.table import Table, table_of_values
from harmonium.data.tables.text_encoding import choose_encoding
from harmonium.data.tables.values import read_values


def open_table(path: Path, options: Options, skipped: SkippedRows, notes: list[Note]) -> Table:
    values = read_values(path, choose_encoding(path, options.encoding, skipped.skips, notes), skipped)
    return table_of_values(str(path), ((f":{number}", value) for number, value in values), skipped)


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """One object per fact; a single file also has splits and labels."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_ndjson(file)


FORMAT = Format(
    "jsonl", "JSON lines", "JSON lines, or one JSON array, of objects or of rows.", open_table=open_table,
    suffixes=(".jsonl", ".ndjson", ".json"), write=write, written=(".jsonl",),
)  # fmt: skip
