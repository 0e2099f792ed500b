"""Rows that are objects (keys are columns) or lists of cells, from JSON or from memory, as tables of facts."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import polars as pl

from harmonium.data.graph import Note
from harmonium.data.tables.columns import COLUMNS, check_titles, choose_columns, is_header
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.rows import text_of
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.table import drop_unusable, first_row_is_header, note_columns

ROWS = 1 << 17  # read at a time
COMPARED = 1000  # objects whose keys are the columns

Row = tuple[str, Any]  # its name, such as ":7" or ": row 7", and its contents
Cells = tuple[str, list[Any]]
RowReader = Callable[[SkippedRows], Iterator[Row]]  # reads from the start each time


def tables_of_rows(
    read: RowReader, options: Options, location: object, skipped: SkippedRows, notes: list[Note]
) -> Iterator[pl.DataFrame]:
    """The chosen columns of the rows, in parts."""
    rows = read(skipped)
    begin = list(islice(rows, COMPARED))
    objects = [row for _, row in begin if isinstance(row, Mapping)]
    if objects:
        titles = list(dict.fromkeys(str(key) for row in objects for key in row))
        cells = _cells_of_objects(chain(begin, rows), titles, location, skipped)
        chosen = choose_columns(titles, options, f"{location}{begin[0][0]}")
    else:
        cells = _cells_of_lists(chain(begin, rows), location, skipped)
        first = next(cells, None)
        if first is None:
            raise skipped.nothing_left(location)
        others = _cells_of_lists(read(SkippedRows("skip")), location, SkippedRows("skip"))
        titles, chosen, is_titled = _columns_of_lists(first, others, options, location, notes)
        cells = cells if is_titled else chain([first], cells)
    note_columns(titles, chosen, options, location, notes)
    keys, is_empty = {column: titles[position] for column, position in chosen.items()}, True
    while batch := list(islice(cells, ROWS)):
        columns = {column: [text_of(row[position]) for _, row in batch] for column, position in chosen.items()}
        table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
        names, is_empty = [name for name, _ in batch], False
        yield drop_unusable(table, location, names.__getitem__, skipped, keys)
    skipped.finish()
    if is_empty:
        yield pl.DataFrame(schema=dict.fromkeys(keys, pl.String))


def _cells_of_objects(
    rows: Iterator[Row], titles: Sequence[str], location: object, skipped: SkippedRows
) -> Iterator[Cells]:
    for name, row in rows:
        if isinstance(row, Mapping):
            by_title = {str(key): value for key, value in row.items()}
            yield name, [by_title.get(title) for title in titles]
        else:
            skipped.reject(location, name, "not an object", '; expected {"head": "...", ...}', _shown(row))


def _cells_of_lists(rows: Iterator[Row], location: object, skipped: SkippedRows) -> Iterator[Cells]:
    """Rows of the width of the first one."""
    width = 0
    for name, row in rows:
        if not isinstance(row, Sequence) or isinstance(row, str | bytes):
            skipped.reject(location, name, "not a row of cells", '; expected ["head", "relation", "tail"]', _shown(row))
        elif len(row) != (width := width or len(row)):
            count = f"found {len(row)} column{'s' * (len(row) != 1)}, expected {width}"
            skipped.reject(location, name, count, text=_shown(row))
        else:
            yield name, list(row)


def _columns_of_lists(
    first: Cells, others: Iterator[Cells], options: Options, location: object, notes: list[Note]
) -> tuple[list[str], dict[str, int], bool]:
    """Titles, column -> position, and whether the first row is a header."""
    name, cells = first
    texts = [text_of(cell) for cell in cells]
    is_titled = options.header
    if is_titled is None:
        if options.columns is None:
            check_titles(texts, f"{location}{name}")
        is_titled = is_header(texts) or options.names_columns
    titles = texts if is_titled else [str(number) for number in range(1, len(cells) + 1)]
    chosen = choose_columns(titles, options, f"{location}{name}", texts)
    if not is_titled and options.header is None:
        facts = ([text_of(row[chosen[column]]) for column in COLUMNS] for _, row in others)
        short_name = str(location).replace("\\", "/").rsplit("/", 1)[-1]
        if first_row_is_header(next(facts), facts, f"{short_name}{name}", notes):
            return texts, chosen, True
    return titles, chosen, bool(is_titled)


def _shown(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
