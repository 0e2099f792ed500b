"""A table that is read once: its column names, if any, and batches of rows that know their location."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import polars as pl

from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.values import text_of

ROWS_PER_BATCH = 1 << 17
SAMPLED_OBJECTS = 1000  # at the start of a file; the union of their keys are the columns

Row = tuple[str, Any]  # its name, such as ":7" or ": row 7", and its contents


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a table. Columns are identified by position; cells are text or, in frames, of any type."""

    cells: pl.DataFrame
    row_name: Callable[[int], str]  # of a row of this batch: ":7" in a text, ": row 7" elsewhere


@dataclass
class Table:
    """The cells of a file or of a value in memory."""

    location: str
    titles: list[str] | None  # column names; None: the first row may have them
    batches: Iterator[Batch]

    def peek(self) -> Batch | None:
        """The first batch, without consuming it."""
        first = next(self.batches, None)
        if first is not None:
            self.batches = chain([first], self.batches)
        return first


def table_of_lists(location: str, rows: Iterator[tuple[str, Sequence[Any]]], titles: list[str] | None = None) -> Table:
    """A table of rows of equal width."""

    def batches() -> Iterator[Batch]:
        while batch := list(islice(rows, ROWS_PER_BATCH)):
            names = [name for name, _ in batch]
            columns = zip(*(cells for _, cells in batch), strict=True)
            texts = {str(i): [text_of(cell) for cell in column] for i, column in enumerate(columns)}
            yield Batch(pl.DataFrame(texts, schema=dict.fromkeys(texts, pl.String)), names.__getitem__)

    return Table(location, titles, batches())


def table_of_values(location: str, rows: Iterator[Row], skipped: SkippedRows) -> Table:
    """A table of rows that are objects, whose keys are the column names, or lists of cells; others are rejected."""
    first_rows = list(islice(rows, SAMPLED_OBJECTS))
    titles = list(dict.fromkeys(str(key) for _, row in first_rows if isinstance(row, Mapping) for key in row))
    rows = chain(first_rows, rows)
    if titles:
        return table_of_lists(location, _cells_of_objects(rows, titles, location, skipped), titles)
    return table_of_lists(location, _cells_of_lists(rows, location, skipped))


def _cells_of_objects(
    rows: Iterator[Row], titles: Sequence[str], location: str, skipped: SkippedRows
) -> Iterator[tuple[str, list[Any]]]:
    for name, row in rows:
        if isinstance(row, Mapping):
            by_title = {str(key): value for key, value in row.items()}
            yield name, [by_title.get(title) for title in titles]
        else:
            skipped.reject(location, name, "not an object", '; expected {"head": "...", ...}', _shown(row))


def _cells_of_lists(rows: Iterator[Row], location: str, skipped: SkippedRows) -> Iterator[tuple[str, list[Any]]]:
    """The rows that have as many cells as the first one; others are rejected."""
    width = 0
    for name, row in rows:
        if not isinstance(row, Sequence) or isinstance(row, str | bytes):
            skipped.reject(location, name, "not a row of cells", '; expected ["head", "relation", "tail"]', _shown(row))
        elif len(row) != (width := width or len(row)):
            count = f"found {len(row)} column{'s' * (len(row) != 1)}, expected {width}"
            skipped.reject(location, name, count, text=_shown(row))
        else:
            yield name, list(row)


def _shown(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
