"""Parquet: a folder with train.parquet (valid, test), or one file; columns are found as in other tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import SPLITS, Options, Source
from harmonium.formats.files import create
from harmonium.formats.table import from_frame, to_source, to_table
from harmonium.formats.tsv import names_beside
from harmonium.graph import Graph
from harmonium.suspicion import refuse_pickle


def detect(path: Path, options: Options) -> bool:
    return path.suffix == ".parquet" if path.is_file() else (path / "train.parquet").is_file()


def read(path: Path, options: Options) -> Source:
    files = {split: path / f"{split}.parquet" for split in SPLITS} if path.is_dir() else {"train": path}
    tables = {split: _table(file, options) for split, file in files.items() if file.is_file()}
    source = to_source(path.stem if path.is_file() else path.name, tables, str(path))
    for kind, names in names_beside(path if path.is_dir() else path.parent).items():
        getattr(source, kind).update(names)
    return source


def _table(path: Path, options: Options) -> pl.DataFrame:
    refuse_pickle(path)
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise HarmoniumError(f"{path}: not a Parquet file that can be read ({error})") from error
    return from_frame(frame, options, str(path))


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """The facts of these splits."""
    with create(path) as file:
        to_table(graph, splits, alone).write_parquet(file)
