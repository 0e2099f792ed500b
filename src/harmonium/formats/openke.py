"""OpenKE ids: a folder with entity2id.txt, relation2id.txt and train2id.txt (valid2id.txt, test2id.txt).

Every file starts with a count line; triples are head tail relation (in that order), as ids.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, SPLITS, Options, Source
from harmonium.formats.files import create
from harmonium.formats.tsv import names_beside, read_columns, write_names
from harmonium.graph import Graph
from harmonium.suspicion import refuse_pickle


def detect(path: Path, options: Options) -> bool:
    return (path / "train2id.txt").is_file()


def read(path: Path, options: Options) -> Source:
    entities, relations = _vocabulary(path / "entity2id.txt"), _vocabulary(path / "relation2id.txt")
    sizes = {"head": len(entities), "relation": len(relations), "tail": len(entities)}
    files = {split: file for split in SPLITS if (file := path / f"{split}2id.txt").is_file()}
    splits = {split: _triples(file, sizes) for split, file in files.items()}
    return Source(path.name, splits, entities, relations, **names_beside(path))


def _count(path: Path) -> int:
    refuse_pickle(path)
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
    table = whole_numbers(path, read_columns(path, columns, skip_lines=1, separator=separator), first_line=2)
    if len(table) != count:
        raise HarmoniumError(f"{path}:1: announces {count:,} lines, {len(table):,} follow; is the file complete?")
    return table


def whole_numbers(path: Path, text: pl.DataFrame, first_line: int) -> pl.DataFrame:
    """All columns but `name` as numbers; a line where one is not is an error that names it."""
    table = text.with_columns(pl.all().exclude("name").cast(pl.Int64, strict=False))
    bad = table.with_row_index().filter(pl.any_horizontal(pl.all().is_null()))
    if len(bad):
        line = bad["index"][0] + first_line
        raise HarmoniumError(f"{path}:{line}: expected whole numbers for {' '.join(text.columns)}")
    return table


def vocabulary_of(path: Path, table: pl.DataFrame) -> list[str]:
    """Names in the order of their ids, which are 0, 1, 2, ... each once, as each name is."""
    table = table.sort("id")
    if table["id"].to_list() != list(range(len(table))):
        raise HarmoniumError(f"{path}: ids must be 0 to {len(table) - 1}, each once")
    twice = table.filter(table["name"].is_duplicated())
    if len(twice):
        name, ids = twice["name"][0], twice.filter(pl.col("name") == twice["name"][0])["id"].to_list()
        raise HarmoniumError(
            f"{path}: '{name}' has the ids {ids[0]} and {ids[1]}; each name needs one, rename or merge"
        )
    return table["name"].to_list()


def check_ids(path: Path, table: pl.DataFrame, sizes: dict[str, int], first_line: int) -> pl.DataFrame:
    """The triples; an id that no name has is an error that names its line."""
    for column, size in sizes.items():
        bad = table.with_row_index().filter((pl.col(column) < 0) | (pl.col(column) >= size))
        if len(bad):
            value, line = bad[column][0], bad["index"][0] + first_line
            raise HarmoniumError(f"{path}:{line}: {column} {value} is not an id of the vocabulary (0 to {size - 1})")
    return table.select(COLUMNS)


def _vocabulary(path: Path) -> list[str]:
    return vocabulary_of(path, _integers(path, ["name", "id"]))


def _triples(path: Path, sizes: dict[str, int]) -> pl.DataFrame:
    return check_ids(path, _integers(path, ["head", "tail", "relation"]), sizes, first_line=2)


def write(graph: Graph, folder: Path) -> None:
    """The folder that OpenKE trains on, and names beside."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        _save(folder / f"{kind}2id.txt", pl.DataFrame({"name": list(vocabulary.ids), "id": range(len(vocabulary))}))
    for split in SPLITS:
        if len(triples := getattr(graph, split)):
            _save(folder / f"{split}2id.txt", pl.DataFrame(triples.rows()[:, [0, 2, 1]].numpy()))
    write_names(graph, folder)


def _save(path: Path, table: pl.DataFrame) -> None:
    with create(path) as file:
        file.write(f"{len(table)}\n".encode())
        table.write_csv(file, include_header=False, separator="\t", quote_style="never")
