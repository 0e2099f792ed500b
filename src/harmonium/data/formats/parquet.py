"""Parquet: a folder with train.parquet (valid, test), or one file; columns are chosen as in other tables."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import polars as pl

from harmonium.data.compressed import create_file
from harmonium.data.formats.source import Options, Source
from harmonium.data.formats.table import select_facts, to_source, to_table
from harmonium.data.formats.tsv import names_beside, split_files
from harmonium.data.graph import Graph
from harmonium.data.skipped_rows import SkippedRows
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.untrusted import refuse_pickle

ROWS = 1 << 20  # read at a time


def detect(path: Path, options: Options) -> bool:
    return path.suffix == ".parquet" if path.is_file() else (path / "train.parquet").is_file()


def read(path: Path, options: Options) -> Source:
    name, folder, files = split_files(path, (".parquet",))
    skipped = SkippedRows(options.on_bad)
    tables = {split: partial(_facts, file, options, skipped) for split, file in files.items()}
    return to_source(name, tables, str(path), names_beside(folder), skipped=skipped)


def _facts(path: Path, options: Options, skipped: SkippedRows) -> Iterator[pl.DataFrame]:
    skipped.restart(path)
    first_row = 1
    for table in read_tables(path):
        yield select_facts(table, options, str(path), skipped, first_row)
        first_row += len(table)


def read_tables(path: Path) -> Iterator[pl.DataFrame]:
    """The table in a file, in parts; at least one, which may be empty."""
    refuse_pickle(path)
    try:
        frame, start = read_frame(path), 0
        table = frame.slice(0, ROWS).collect()
        while len(table) or start == 0:
            yield table
            start += ROWS
            table = frame.slice(start, ROWS).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise HarmoniumError(f"{path}: not a Parquet file that can be read ({error})") from error


def read_frame(path: Path) -> pl.LazyFrame:
    """The table in a file, read in another process first: some damaged files abort the process that reads them."""
    _try_in_subprocess(path, path.stat().st_mtime_ns)
    return pl.scan_parquet(path)


@cache
def _try_in_subprocess(path: Path, changed: int) -> None:
    script = "import sys, polars; any(part is None for part in polars.scan_parquet(sys.argv[1]).collect_batches())"
    result = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, errors="replace")
    if result.returncode:
        message = result.stderr.strip().splitlines()
        raise OSError(message[-1] if message and result.returncode > 0 else "polars aborts on it")


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """The facts of these splits."""
    with create_file(path) as file:
        to_table(graph, splits, alone).write_parquet(file)
