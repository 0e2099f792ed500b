"""Separated text with a header, quotes or more columns: .csv, or any text whose columns or separator are given.

A first line that names head, relation and tail is a header. Between tabs cells are as they are; otherwise they may be
quoted by ", and spaces around them do not count.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, SPLITS, Options, Source
from harmonium.formats.files import bare, create, find, lines
from harmonium.formats.table import looks_like_header, pick, to_source, to_table
from harmonium.formats.tsv import names_beside
from harmonium.graph import Graph

ENDINGS = (".csv", ".tsv", ".txt")
ROWS = 1 << 17  # read at a time
SEPARATORS = (",", ";", "\t", "|")


def detect(path: Path, options: Options) -> bool:
    file = path if path.is_file() else find(path, "train", ENDINGS)
    if file is None:
        return False
    if bare(file).suffix == ".csv" or options.columns or options.separator or options.header is not None:
        return True
    return looks_like_header(next(lines(file), "").split("\t"))


def read(path: Path, options: Options) -> Source:
    files = {"train": path} if path.is_file() else {s: f for s in SPLITS if (f := find(path, s, ENDINGS))}
    notes: list[str] = []
    parts = {split: partial(_tables, file, options, notes) for split, file in files.items()}
    name, beside = (path.name.split(".")[0], path.parent) if path.is_file() else (path.name, path)
    return to_source(name, parts, str(path), names_beside(beside), notes)


def _tables(path: Path, options: Options, notes: list[str]) -> Iterator[pl.DataFrame]:
    """The chosen columns of one file, one part after the other."""
    rows = _rows(path, options)
    number, first = next(rows, (0, []))
    if not first:
        raise HarmoniumError(f"{path}: no triples in it; fill it or remove it")
    header = options.header
    if header is None:
        header = looks_like_header(first) or any(not name.isdecimal() for name in options.columns or ())
    chosen = pick(first if header else range(1, len(first) + 1), options, f"{path}:{number}")
    if not header:
        rows = chain([(number, first)], rows)
    apart, count = not header and options.header is None, 0
    while batch := list(islice(rows, ROWS)):
        columns: dict[str, list[str]] = {name: [] for name in chosen}
        for number, row in batch:
            if len(row) != len(first):
                raise HarmoniumError(
                    f"{path}:{number}: found {len(row)} columns, the first line has {len(first)}; "
                    "quote cells that contain the separator"
                )
            for name, position in chosen.items():
                if not row[position] and name in COLUMNS:
                    raise HarmoniumError(f"{path}:{number}: the {name} is empty")
                columns[name].append(row[position])
        table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
        apart = apart and _stands_apart([first[chosen[name]] for name in COLUMNS], table[not count :])
        count += len(table)
        yield table
    if not count:
        yield pl.DataFrame(schema=dict.fromkeys(chosen, pl.String))
    if apart and count > 2:
        shown = ", ".join(first[:3])
        notes.append(
            f"{path.name}: the first line ({shown}) shares no name with any other; a header? harmonium convert --header"
        )


def _stands_apart(first: Sequence[str], rest: pl.DataFrame) -> bool:
    """Whether no name of the first row occurs again."""
    head, relation, tail = first
    entities = pl.concat([rest["head"], rest["tail"]])
    return not ((rest["relation"] == relation).any() or entities.is_in([head, tail]).any())


def _rows(path: Path, options: Options) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line that is not blank."""
    separator = options.separator or _separator(path)
    quoting = options.quotes if options.quotes is not None else separator != "\t"
    text = lines(path)
    if quoting:  # spaces between a closing quote and the separator
        loose = re.compile(rf'" +(?={re.escape(separator)}|\r?\n?$)')
        text = (loose.sub('"', line) for line in text)
    reader = csv.reader(
        text, delimiter=separator, skipinitialspace=separator != "\t", strict=True,
        quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
    )  # fmt: skip
    started = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise HarmoniumError(
                f"{path}:{started}: {error}; is a quote open? harmonium convert --no-quotes takes them as they are"
            ) from None
        if row is None:
            return
        if any(cells := row if separator == "\t" else [cell.strip() for cell in row]):
            yield started, cells
        started = reader.line_num + 1


def _separator(path: Path) -> str:
    """What cuts the first line into most cells."""
    first = next((line for line in lines(path) if line.strip()), "")

    def cells(separator: str) -> int:
        try:
            return len(next(csv.reader([first], delimiter=separator)))
        except csv.Error:
            return 0

    return max(SEPARATORS, key=cells)


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """A header and the facts of these splits."""
    with create(path) as file:
        to_table(graph, splits, alone).write_csv(file)
