"""Parquet: a folder with train.parquet (valid, test), or one file; columns are chosen as for other tables."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from harmonium.data.compressed import create_file
from harmonium.data.formats.format import Format
from harmonium.data.graph import Graph, Note
from harmonium.data.tables.graph_source import to_table
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.table import Batch, Table
from harmonium.errors import HarmoniumError
from harmonium.runtime.limited_process import Limits, stream
from harmonium.runtime.untrusted import refuse_pickle

ROWS_PER_BATCH = 1 << 20  # read at a time
READER_MEMORY = 1 << 29  # bytes that the reading process may use, however small the file is


def open_table(path: Path, options: Options, skipped: SkippedRows, notes: list[Note]) -> Table:
    batches = _batches(path)
    first = next(batches)
    return Table(str(path), first.cells.columns, (batch for part in ([first], batches) for batch in part))


def _batches(path: Path) -> Iterator[Batch]:
    n_rows = 0
    for table in read_tables(path):
        yield Batch(table, partial(_row_name, n_rows + 1))
        n_rows += len(table)


def _row_name(first: int, row: int) -> str:
    return f": row {first + row}"


def read_tables(path: Path) -> Iterator[pl.DataFrame]:
    """The table in batches, at least one (perhaps empty). Read in another process, as a bad file can abort polars."""
    try:
        refuse_pickle(path)
        limits = Limits.of([path], READER_MEMORY)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be read ({error.strerror or error})") from error
    arguments = {"file": str(path), "rows": ROWS_PER_BATCH}
    for (content,) in stream("harmonium.data.formats.parquet_tables:read_tables", arguments, limits, str(path)):
        yield pl.read_ipc_stream(content)


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """The facts of these splits."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_parquet(file)


FORMAT = Format("parquet", "Parquet", "Parquet tables.", open_table=open_table, suffixes=(".parquet",), write=write)
