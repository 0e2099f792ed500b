"""Files of facts, one row at a time with its location: TSV, CSV, JSON lines or Parquet, compressed or not."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.data.columns import COLUMNS, check_titles, columns_by_title, is_header, title_words
from harmonium.data.compressed import read_lines, strip_compression
from harmonium.data.graph import Graph
from harmonium.data.names import clean_name
from harmonium.data.separated_text import read_cells
from harmonium.data.triples import Triples
from harmonium.runtime.errors import HarmoniumError, error_at

LABELS = {"1": True, "true": True, "-1": False, "0": False, "false": False}
CHUNK = 2048  # facts looked up at a time

Row = tuple[str, dict[str, str]]  # location ("file:line"), cell of each column


def read_rows(path: Path, columns: Sequence[str] = COLUMNS) -> Iterator[Row]:
    """The rows of a file, with clean names (`clean_name`); an empty or missing cell is "".

    Columns stand in the given order, or where a header (head, relation, tail) has them; it may have others too.
    """
    readers = {".jsonl": _json_rows, ".parquet": _parquet_rows}
    empty = True
    for location, cells in readers.get(strip_compression(path).suffix, _text_rows)(path, columns):
        empty = False
        yield location, {column: clean_name(cell) for column, cell in cells.items()}
    if empty:
        raise HarmoniumError(f"{path}: no facts in it; each line is {', '.join(columns)}")


def read_triples(path: str | Path, graph: Graph) -> Iterator[Triples]:
    """Facts by the names of a graph, in chunks."""
    ids = (_ids(graph, *row) for row in read_rows(Path(path)))
    while chunk := list(islice(ids, CHUNK)):
        yield Triples.from_rows(chunk)


def read_labelled(path: str | Path, graph: Graph) -> tuple[Triples, Tensor]:
    """Facts and whether each is true (n,) bool, from a fourth column: 1 or true; -1, 0 or false."""
    rows, labels = [], []
    for location, cells in read_rows(Path(path), (*COLUMNS, "label")):
        label = cells["label"]
        if label.lower() not in LABELS:
            raise HarmoniumError(f"{location}: the label is '{label}'; expected 1 or true, or else -1, 0 or false")
        rows.append(_ids(graph, location, cells))
        labels.append(LABELS[label.lower()])
    return Triples.from_rows(rows), torch.tensor(labels)


def _ids(graph: Graph, location: str, cells: dict[str, str]) -> list[int]:
    with error_at(location):
        return [
            graph.entities.index(cells["head"]),
            graph.relations.index(cells["relation"]),
            graph.entities.index(cells["tail"]),
        ]


def _text_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    separator = None if strip_compression(path).suffix == ".csv" else "\t"
    positions = {column: position for position, column in enumerate(columns)}
    width = len(columns)
    for index, (number, cells) in enumerate(read_cells(path, separator)):
        location = f"{path}:{number}"
        if index == 0 and is_header(cells):
            positions, width = _header(cells, columns, location), len(cells)
        elif len(cells) != width:
            count = f"found {len(cells)} column{'s' * (len(cells) != 1)}"
            raise HarmoniumError(f"{location}: {count}, expected {width}: {', '.join(columns)}")
        else:
            yield location, {column: cells[position] for column, position in positions.items()}


def _header(titles: Sequence[str], columns: Sequence[str], location: str) -> dict[str, int]:
    check_titles(titles, location)
    words = title_words(titles)
    missing = set(columns) - set(words) - set(COLUMNS)
    if missing:
        raise HarmoniumError(f"{location}: no column '{min(missing)}'; there are {', '.join(titles)}")
    return columns_by_title(titles) | {column: words.index(column) for column in columns if column in words}


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        location = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise HarmoniumError(f"{location}: not JSON ({error})") from error
        yield location, _text_cells(row, columns, location)


def _text_cells(row: object, columns: Sequence[str], location: str) -> dict[str, str]:
    """The cells of a JSON object: names are text or null, a label may also be a number or a boolean."""
    cells: dict[str, Any] = {column: row.get(column) for column in columns} if isinstance(row, dict) else {}
    if isinstance(cells.get("label"), int):
        cells["label"] = str(cells["label"]).lower()
    if not cells or not all(isinstance(cell, str | None) for cell in cells.values()):
        raise HarmoniumError(f'{location}: expected {{"head": "...", "relation": "...", "tail": null}}')
    return {column: cell or "" for column, cell in cells.items()}


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    from harmonium.data.formats.parquet import read_tables

    number = 0
    for table in read_tables(path):
        if not is_header(table.columns):
            raise HarmoniumError(f"{path}: expected columns {', '.join(columns)}, found {', '.join(table.columns)}")
        positions = _header(table.columns, columns, str(path))
        for cells in table.iter_rows():
            number += 1
            values = {column: cells[position] for column, position in positions.items()}
            yield f"{path}: row {number}", {column: "" if v is None else str(v) for column, v in values.items()}
