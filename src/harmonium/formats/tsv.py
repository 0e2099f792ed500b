"""Tab-separated triples: a folder with train (and valid, test) as .txt or .tsv, .gz too, or one file.

Each line is head TAB relation TAB tail; blank lines are skipped. `entity_names.tsv` and `relation_names.tsv`
beside them hold identifier TAB name.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, SPLITS, Source

ENDINGS = (".txt", ".tsv", ".txt.gz", ".tsv.gz")
BROKEN = (OSError, EOFError, zlib.error)  # what reading a damaged file raises


def detect(path: Path) -> bool:
    return path.is_file() or _file_of(path, "train") is not None


def read(path: Path) -> Source:
    if path.is_file():
        return Source(path.name.split(".")[0], {"train": read_columns(path, COLUMNS)}, **_names_beside(path.parent))
    files = {split: file for split in SPLITS if (file := _file_of(path, split))}
    return Source(path.name, {s: read_columns(f, COLUMNS) for s, f in files.items()}, **_names_beside(path))


def read_columns(path: Path, columns: list[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
    """A table of strings; a line of another width is an error that names it."""
    try:
        table = pl.read_csv(
            path, separator=separator, has_header=False, quote_char=None, skip_lines=_first_filled(path, skip_lines),
            schema=dict.fromkeys(columns, pl.String),
        )  # fmt: skip
    except (pl.exceptions.PolarsError, *BROKEN) as error:
        raise _explain(path, columns, skip_lines, separator, error) from error
    table = table.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
    if table.null_count().sum_horizontal().item():
        raise _explain(path, columns, skip_lines, separator, None)
    if table.is_empty():
        raise HarmoniumError(f"{path}: no triples in it; fill it or remove it")
    return table


def _first_filled(path: Path, skip_lines: int) -> int:
    """How many lines come before the first that is not blank: polars takes the number of columns from there."""
    number = 0
    with _open(path) as file:
        for number, raw in enumerate(file):
            if number >= skip_lines and raw.strip(b"\r\n"):
                return number
    return number + 1


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")


def _explain(
    path: Path, columns: list[str], skip_lines: int, separator: str, error: Exception | None
) -> HarmoniumError:
    """Read slowly, once something is wrong, to say which line it is."""
    shown = {"\t": "TAB", " ": "space"}[separator]
    wanted = f" {shown} ".join(columns)
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, start=1):
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as bad:
                    return HarmoniumError(f"{path}:{number}: not UTF-8 text (byte {bad.start}); save the file as UTF-8")
                fields = line.split(separator)
                if number <= skip_lines or not line:
                    continue
                if len(fields) != len(columns):
                    found = f"found {len(fields)} column{'s' * (len(fields) != 1)}"
                    return HarmoniumError(f"{path}:{number}: {found}, expected {len(columns)}: {wanted}")
                if "" in fields:
                    return HarmoniumError(
                        f"{path}:{number}: the {columns[fields.index('')]} is empty; expected {wanted}"
                    )
    except BROKEN as broken:
        return HarmoniumError(f"{path}: cannot be read ({broken})")
    return HarmoniumError(f"{path}: cannot be read as {wanted} ({error})")


def _file_of(folder: Path, split: str) -> Path | None:
    return next((file for ending in ENDINGS if (file := folder / f"{split}{ending}").is_file()), None)


def _names_beside(folder: Path) -> dict[str, dict[str, str]]:
    names = {}
    for kind in ("entity", "relation"):
        file = folder / f"{kind}_names.tsv"
        if file.is_file():
            table = read_columns(file, ["identifier", "name"]).unique("identifier", keep="first")
            names[f"{kind}_names"] = dict(table.iter_rows())
    return names
