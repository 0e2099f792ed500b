"""OpenKE ids: a folder with entity2id.txt, relation2id.txt and train2id.txt (valid2id.txt, test2id.txt).

Every file starts with a count line; triples are head tail relation (in that order), as ids.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, SPLITS, Source
from harmonium.formats.tsv import _names_beside, read_columns


def detect(path: Path) -> bool:
    return (path / "train2id.txt").is_file()


def read(path: Path) -> Source:
    entities, relations = _vocabulary(path / "entity2id.txt"), _vocabulary(path / "relation2id.txt")
    sizes = {"head": len(entities), "relation": len(relations), "tail": len(entities)}
    files = {split: file for split in SPLITS if (file := path / f"{split}2id.txt").is_file()}
    splits = {split: _triples(file, sizes) for split, file in files.items()}
    return Source(path.name, splits, entities, relations, **_names_beside(path))


def _count(path: Path) -> int:
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return int(file.readline())
    except FileNotFoundError:
        raise HarmoniumError(f"{path}: missing; an OpenKE folder has it beside train2id.txt") from None
    except ValueError:
        raise HarmoniumError(f"{path}:1: expected the number of lines that follow") from None


def _integers(path: Path, columns: list[str]) -> pl.DataFrame:
    """Columns of whole numbers separated by a tab or a space, checked against the count line."""
    count = _count(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        file.readline()
        separator = "\t" if "\t" in file.readline() else " "
    text = read_columns(path, columns, skip_lines=1, separator=separator)
    table = text.with_columns(pl.all().exclude("name").cast(pl.Int64, strict=False))
    bad = table.with_row_index().filter(pl.any_horizontal(pl.all().is_null()))
    if len(bad):
        raise HarmoniumError(f"{path}:{bad['index'][0] + 2}: expected whole numbers for {' '.join(columns)}")
    if len(table) != count:
        raise HarmoniumError(f"{path}:1: announces {count:,} lines, {len(table):,} follow; is the file complete?")
    return table


def _vocabulary(path: Path) -> list[str]:
    table = _integers(path, ["name", "id"]).sort("id")
    if table["id"].to_list() != list(range(len(table))):
        raise HarmoniumError(f"{path}: ids must be 0 to {len(table) - 1}, each once")
    return table["name"].to_list()


def _triples(path: Path, sizes: dict[str, int]) -> pl.DataFrame:
    table = _integers(path, ["head", "tail", "relation"])
    for column, size in sizes.items():
        bad = table.with_row_index().filter((pl.col(column) < 0) | (pl.col(column) >= size))
        if len(bad):
            value, line = bad[column][0], bad["index"][0] + 2
            raise HarmoniumError(f"{path}:{line}: {column} {value} is not an id of the vocabulary (0 to {size - 1})")
    return table.select(COLUMNS)
