"""JSON lines: a folder with train.jsonl (valid, test), or one file; each line is an object, whose keys are columns, or
an array of cells. A .json file may hold one array of them instead.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from harmonium.data.columns import choose_columns
from harmonium.data.compressed import (
    BLOCK,
    MAX_LINE,
    READ_ERRORS,
    create_file,
    find_file,
    numbered_lines,
    open_bytes,
    strip_compression,
)
from harmonium.data.formats.source import Options, Source
from harmonium.data.formats.table import choose_encoding, drop_unusable, line_name, to_source, to_table
from harmonium.data.formats.tsv import names_beside, split_files
from harmonium.data.graph import Graph, Note
from harmonium.data.skipped_rows import SkippedRows
from harmonium.data.text_encoding import UTF_8
from harmonium.runtime.errors import HarmoniumError

ENDINGS = (".jsonl", ".ndjson", ".json")
ROWS = 1 << 17  # read at a time
MAX_ARRAY = 1 << 32  # bytes of a line in a .json file


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
    rows = _objects(path, choose_encoding(path, options, notes), skipped)
    keys: dict[str, str] = {}  # column -> key
    while batch := list(islice(rows, ROWS)):
        if not keys:
            number, first = batch[0]
            titles = list(first)
            chosen = choose_columns(titles, options.columns, f"{path}:{number}")
            keys = {column: titles[position] for column, position in chosen.items()}
        columns = {column: [_text(row.get(key)) for _, row in batch] for column, key in keys.items()}
        table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
        yield drop_unusable(table, path, partial(line_name, batch), skipped)
    if not keys:
        raise skipped.nothing_left(path)


def _objects(path: Path, encoding: str, skipped: SkippedRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and contents of each object; the cells of an array are numbered from 1."""
    for number, row in _values(path, encoding, skipped):
        if isinstance(row, list):
            row = {str(position): cell for position, cell in enumerate(row, start=1)}
        if isinstance(row, dict):
            yield number, row
        else:
            skipped.reject(path, f":{number}", "not an object", '; expected {"head": "...", ...}', json.dumps(row))


def _values(path: Path, encoding: str, skipped: SkippedRows) -> Iterator[tuple[int, Any]]:
    """Line number and value of each line that is JSON, or the values of one array over all lines, numbered."""

    def reject(number: int, raw: bytes) -> None:
        skipped.reject(path, f":{number}", "not UTF-8 text", text=raw.decode("utf-8", "replace"))

    is_array = strip_compression(path).suffix == ".json"
    max_line = MAX_LINE
    if is_array and encoding == UTF_8:  # perhaps in one long line
        max_line = MAX_ARRAY
        _refuse_zero_bytes(path)
    lines = numbered_lines(path, reject if skipped.skips else None, encoding, max_line)
    if is_array:
        text = "".join(line for _, line in lines)
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError):
            rows = None
        if isinstance(rows, list):
            yield from enumerate(rows, start=1)
            return
        lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            skipped.reject(path, f":{number}", "not JSON", "; each line is an object", line)
            continue
        yield number, row


def _refuse_zero_bytes(path: Path) -> None:
    """Refuse a file with zero bytes, which JSON never has, before all of it is in memory."""
    try:
        with open_bytes(path) as file:
            while block := file.read(BLOCK):
                if b"\0" in block:
                    raise HarmoniumError(f"{path}: not JSON: it has zero bytes; is the file damaged?")
    except READ_ERRORS as error:
        raise HarmoniumError(f"{path}: cannot be read ({error})") from error


def _text(value: Any) -> str:
    """Text or a number as text; anything else is empty."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # JSON can escape what is not Unicode text
    return str(value) if isinstance(value, int | float) else ""


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """One object per fact; a single file also has splits and labels."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_ndjson(file)
