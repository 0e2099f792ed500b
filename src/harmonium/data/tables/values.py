"""Convert values to names: the cells of JSON files, lists and arrays as text."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harmonium.data.compressed import (
    BYTES_PER_BLOCK,
    MAX_LINE,
    READ_ERRORS,
    numbered_lines,
    open_bytes,
    strip_compression,
)
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.text_encoding import UTF_8, reject_bytes
from harmonium.errors import HarmoniumError

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0+$")  # written as a float
_SURROGATES = re.compile("[\ud800-\udfff]")
MAX_ARRAY = 1 << 32  # bytes of a line in a .json file
ACCEPTED = (
    "a name, a path, a pandas or polars frame, a list of (head, relation, tail), an array of three columns, "
    "a dict of columns, or a directed networkx graph"
)


def text_of(cell: Any) -> str:
    """A cell as text; "" for a missing value, and for values that cannot be names (lists, bytes that are not UTF-8).

    Whole floats are written without their .0, so that 2 and 2.0 are one entity.
    """
    if isinstance(cell, str):
        return _SURROGATES.sub("\ufffd", cell)  # JSON can escape what is not Unicode text
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return ""
    if cell is None or isinstance(cell, list | tuple | set | dict) or _is_missing(cell):
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()  # as JSON writes it
    if isinstance(cell, float | np.floating) and cell.is_integer():
        return str(int(cell))  # whole numbers with a missing value among them are floats: 2.0 is 2
    return str(cell)


def _is_missing(cell: Any) -> bool:
    """Whether a value is missing: not equal to itself (NaN, NaT), or without a truth value (pandas.NA)."""
    try:
        return bool(cell != cell)
    except (TypeError, ValueError):
        return True


def read_json(text: str) -> Any:
    """The value of a JSON text, with numbers as they are written; a ValueError if a name in it could not be kept."""
    value = json.loads(
        text,
        parse_float=_written_number,
        parse_int=str,
        parse_constant=lambda _: None,
        object_pairs_hook=_without_repeated_keys,
    )
    if _ESCAPED_SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # an unpaired surrogate raises UnicodeEncodeError
    return value


def _written_number(text: str) -> str:
    """A decimal number as it is written, except that whole numbers lose their .0: 2.0 is 2."""
    return WHOLE_NUMBER.sub(r"\1", text)


def _unusable(error: Exception) -> str:
    return "an unpaired surrogate (\\ud800 ...)" if isinstance(error, UnicodeError) else str(error)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key is repeated")
    return row


def to_rows(data: Any) -> list[Any]:
    """The rows of a list, an array or any other iterable; a single fact is one row."""
    if hasattr(data, "shape") and hasattr(data, "tolist"):
        if len(data.shape) != 2:
            raise HarmoniumError(f"an array of facts has three columns; this one has the shape {tuple(data.shape)}")
        return list(data.tolist())
    if isinstance(data, Mapping):  # one object; columns by name are a frame
        return [data]
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise HarmoniumError(f"facts cannot be read from a {type(data).__name__}; give {ACCEPTED}")
    if isinstance(data, tuple) and len(data) == 3 and all(isinstance(cell, str) for cell in data):
        return [data]
    return [row.tolist() if hasattr(row, "tolist") else row for row in data]


def read_values(path: Path, encoding: str, skipped: SkippedRows) -> Iterator[tuple[int, Any]]:
    """Line number and value of each line that is JSON, or the values of one array over all lines, numbered."""
    is_array = strip_compression(path).suffix == ".json"
    max_line = MAX_LINE
    if is_array and encoding == UTF_8:  # perhaps in one long line
        max_line = MAX_ARRAY
        _refuse_zero_bytes(path)
    lines = numbered_lines(path, partial(reject_bytes, path, encoding, skipped), encoding, max_line)
    if is_array:
        text = "".join(line for _, line in lines)
        try:
            rows = read_json(text)
        except (ValueError, RecursionError):
            rows = None
        if isinstance(rows, list):
            yield from enumerate(rows, start=1)
            return
        lines = enumerate(text.split("\n"), start=1)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = read_json(line)
        except (ValueError, RecursionError) as error:
            is_json = not isinstance(error, json.JSONDecodeError | RecursionError)
            reason, advice = (_unusable(error), "") if is_json else ("not JSON", "; each line is an object")
            skipped.reject(path, f":{number}", reason, advice, line)
            continue
        yield number, row


def _refuse_zero_bytes(path: Path) -> None:
    """Refuse a file with zero bytes, which JSON never has, before all of it is in memory."""
    try:
        with open_bytes(path) as file:
            while block := file.read(BYTES_PER_BLOCK):
                if b"\0" in block:
                    raise HarmoniumError(f"{path}: not JSON: it has zero bytes; is the file damaged?")
    except READ_ERRORS as error:
        raise HarmoniumError(f"{path}: cannot be read ({error})") from error
