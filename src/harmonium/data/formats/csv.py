"""Separated text with a header, quotes or more columns: .csv, or any text whose columns or delimiter are given.

A first line that names head, relation and tail is a header, and so is one that shares no name with any other; a note says
so, and also where a line might be one. Cells may be quoted by " unless tabs separate them. Where bad rows are skipped, all
separated text is read as described in this module.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

import polars as pl

from harmonium.data.compressed import create_file, find_file, read_lines, strip_compression
from harmonium.data.formats.format import Format
from harmonium.data.formats.tsv import facts_in, names_beside, split_files
from harmonium.data.graph import Graph, Note
from harmonium.data.tables.columns import check_titles, choose_columns, is_header
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.separated_text import guess_layout, read_cells
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import (
    choose_encoding,
    drop_unusable,
    first_row_is_header,
    line_name,
    note_columns,
    to_source,
    to_table,
)
from harmonium.data.tables.text_encoding import UTF_8, guess_encoding

ENDINGS = (".csv", ".tsv", ".txt")
ROWS = 1 << 17  # read at a time


def detect(path: Path, options: Options) -> bool:
    file = path if path.is_file() else find_file(path, "train", ENDINGS)
    if file is None:
        return False
    further = options.label_columns or options.type_columns or options.weight_column is not None
    is_told = options.columns or further or options.delimiter or options.encoding or options.header is not None
    if strip_compression(file).suffix == ".csv" or is_told or options.on_bad == "skip":
        return True
    if guess_encoding(file) != UTF_8:
        return True
    first = next(read_lines(file), "")
    if is_header(first.split("\t")):
        return True
    layout = guess_layout(file)
    return layout.is_quoted if "\t" in first else layout.separator != "\t" and layout.share == 1


def read(path: Path, options: Options) -> Source:
    notes: list[Note] = []
    skipped = SkippedRows(options.on_bad)
    name, folder, files = split_files(path, ENDINGS)
    tables = {
        split: partial(_tables, file, [other for other in files.values() if other != file], options, skipped, notes)
        for split, file in files.items()
    }
    return to_source(name, tables, str(path), names_beside(folder), notes, skipped)


def _tables(
    path: Path, others: Sequence[Path], options: Options, skipped: SkippedRows, notes: list[Note]
) -> Iterator[pl.DataFrame]:
    """The chosen columns of one file, in parts; the first line is compared with other files of the graph too."""
    skipped.restart(path)
    encoding = choose_encoding(path, options, notes)
    rows = read_cells(path, options.delimiter, options.quotes, skipped, encoding)
    number, first = next(rows, (0, []))
    if not first:
        raise skipped.nothing_left(path)
    header = options.header
    if header is None:
        if options.columns is None:
            check_titles(first, f"{path}:{number}")
        header = is_header(first) or options.names_columns
    titles: Sequence[str] = first if header else [str(position) for position in range(1, len(first) + 1)]
    chosen = choose_columns(titles, options, f"{path}:{number}", first)
    if not header:
        facts = facts_in([path, *others], options, chosen)
        first_fact = next(facts, None) if options.header is None else None
        if first_fact and first_row_is_header(first_fact, facts, f"{path.name}:{number}", notes):
            titles = first
        else:
            rows = chain([(number, first)], rows)
    else:
        rows = _without_header(rows, first, path, skipped)
    note_columns(titles, chosen, options, path, notes)
    empty = True
    while batch := list(islice(rows, ROWS)):
        empty = False
        columns = {name: [row[position] for _, row in batch] for name, position in chosen.items()}
        table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
        column_titles = {column: titles[position] for column, position in chosen.items()}
        yield drop_unusable(table, path, partial(line_name, batch), skipped, column_titles)
    skipped.finish()
    if empty:
        yield pl.DataFrame(schema=dict.fromkeys(chosen, pl.String))


def _without_header(
    rows: Iterator[tuple[int, list[str]]], titles: list[str], path: Path, skipped: SkippedRows
) -> Iterator[tuple[int, list[str]]]:
    """The rows but for repetitions of the header, as in files that were joined."""
    for number, row in rows:
        if row == titles:
            skipped.skip(path, f":{number}", "the header again", ", ".join(row))
        else:
            yield number, row


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """A header and the facts of these splits."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_csv(file)


FORMAT = Format(
    "csv",
    "CSV",
    "Separated text with a header, quotes or more columns.",
    read,
    ENDINGS,
    detect,
    write,
    written=(".csv",),
)
