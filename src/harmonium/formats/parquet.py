"""Parquet: a folder with train.parquet (valid, test), or one file; columns are found as in other tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import SPLITS, Options, Source
from harmonium.formats.files import create
from harmonium.formats.table import from_frame, to_source, to_table
from harmonium.formats.tsv import names_beside
from harmonium.graph import Graph
from harmonium.suspicion import refuse_pickle

ROWS = 1 << 20  # read at a time


def detect(path: Path, options: Options) -> bool:
    return path.suffix == ".parquet" if path.is_file() else (path / "train.parquet").is_file()


def read(path: Path, options: Options) -> Source:
    files = {split: path / f"{split}.parquet" for split in SPLITS} if path.is_dir() else {"train": path}
    parts = {split: partial(_tables, file, options) for split, file in files.items() if file.is_file()}
    beside = names_beside(path if path.is_dir() else path.parent)
    return to_source(path.stem if path.is_file() else path.name, parts, str(path), beside)


def _tables(path: Path, options: Options) -> Iterator[pl.DataFrame]:
    refuse_pickle(path)
    try:
        frame, start = read_frame(path).lazy(), 0
        while len(part := frame.slice(start, ROWS).collect()) or start == 0:
            yield from_frame(part, options, str(path), start)
            start += ROWS
    except (pl.exceptions.PolarsError, OSError) as error:
        raise HarmoniumError(f"{path}: not a Parquet file that can be read ({error})") from error


def read_frame(path: Path) -> pl.LazyFrame:
    """The table in a file, tried in a process of its own first: some damaged files make polars end its process."""
    _try(path, path.stat().st_mtime_ns)
    return pl.scan_parquet(path)


@cache
def _try(path: Path, changed: int) -> None:
    script = "import sys, polars; any(part is None for part in polars.scan_parquet(sys.argv[1]).collect_batches())"
    tried = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, errors="replace")
    if tried.returncode:
        said = tried.stderr.split() and tried.stderr.strip().splitlines()[-1]
        raise OSError(said if said and tried.returncode > 0 else "polars cannot go on after it")


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """The facts of these splits."""
    with create(path) as file:
        to_table(graph, splits, alone).write_parquet(file)
