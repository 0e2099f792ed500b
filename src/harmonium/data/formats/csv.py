"""Separated text with a header, quotes or more columns: .csv, or any text whose columns or separator are given.

A first line that names head, relation and tail is a header. Cells between tabs are taken as they are; others may be
quoted by ", and spaces around them are dropped.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

import polars as pl

from harmonium.data.columns import COLUMNS, choose_columns, is_header
from harmonium.data.compressed import create_file, find_file, read_lines, strip_compression
from harmonium.data.fact_file import read_cells
from harmonium.data.formats.source import Options, Source
from harmonium.data.formats.table import to_source, to_table
from harmonium.data.formats.tsv import names_beside, split_files
from harmonium.data.graph import Graph, Note
from harmonium.runtime.errors import HarmoniumError

ENDINGS = (".csv", ".tsv", ".txt")
ROWS = 1 << 17  # read at a time


def detect(path: Path, options: Options) -> bool:
    file = path if path.is_file() else find_file(path, "train", ENDINGS)
    if file is None:
        return False
    if strip_compression(file).suffix == ".csv" or options.columns or options.separator or options.header is not None:
        return True
    return is_header(next(read_lines(file), "").split("\t"))


def read(path: Path, options: Options) -> Source:
    notes: list[Note] = []
    name, folder, files = split_files(path, ENDINGS)
    tables = {split: partial(_tables, file, options, notes) for split, file in files.items()}
    return to_source(name, tables, str(path), names_beside(folder), notes)


def _tables(path: Path, options: Options, notes: list[Note]) -> Iterator[pl.DataFrame]:
    """The chosen columns of one file, in parts."""
    rows = read_cells(path, options.separator, options.quotes)
    number, first = next(rows, (0, []))
    if not first:
        raise HarmoniumError(f"{path}: no triples in it; fill it or remove it")
    header = options.header
    if header is None:
        header = is_header(first) or any(not name.isdecimal() for name in options.columns or ())
    titles = first if header else range(1, len(first) + 1)
    chosen = choose_columns(titles, options.columns, f"{path}:{number}")
    if not header:
        rows = chain([(number, first)], rows)
    count, suspicious = 0, not header and options.header is None  # the first line may be a header
    while batch := list(islice(rows, ROWS)):
        table = _select(path, batch, chosen, len(first))
        suspicious = suspicious and _shares_no_name([first[chosen[name]] for name in COLUMNS], table[not count :])
        count += len(table)
        yield table
    if not count:
        yield pl.DataFrame(schema=dict.fromkeys(chosen, pl.String))
    if suspicious and count > 2:
        shown = ", ".join(first[:3])
        notes.append(
            Note(f"{path.name}: the first line ({shown}) shares no name with any other; a header? Say --header")
        )


def _select(path: Path, rows: Sequence[tuple[int, list[str]]], chosen: dict[str, int], width: int) -> pl.DataFrame:
    """The chosen columns of rows as a table."""
    columns: dict[str, list[str]] = {name: [] for name in chosen}
    for number, row in rows:
        if len(row) != width:
            raise HarmoniumError(
                f"{path}:{number}: found {len(row)} columns, the first line has {width}; "
                "quote cells that contain the separator"
            )
        for name, position in chosen.items():
            if not row[position] and name in COLUMNS:
                raise HarmoniumError(f"{path}:{number}: the {name} is empty")
            columns[name].append(row[position])
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def _shares_no_name(first: Sequence[str], rest: pl.DataFrame) -> bool:
    """Whether no name of the first row is in any other."""
    head, relation, tail = first
    entities = pl.concat([rest["head"], rest["tail"]])
    return not ((rest["relation"] == relation).any() or entities.is_in([head, tail]).any())


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """A header and the facts of these splits."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_csv(file)
