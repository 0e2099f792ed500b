"""OpenKE ids: a folder with entity2id.txt, relation2id.txt and train2id.txt (valid2id.txt, test2id.txt).

Every file starts with a count line; triples are head tail relation (in that order), as ids.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from harmonium.data.columns import COLUMNS
from harmonium.data.compressed import MAX_LINE
from harmonium.data.formats.source import Options, Source
from harmonium.data.formats.tsv import names_beside, read_columns, write_names, write_table
from harmonium.data.graph import SPLITS, Graph
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.untrusted import open_regular, refuse_pickle

MAX_NUMBER = 1000  # characters of the first line


def detect(path: Path, options: Options) -> bool:
    return (path / "train2id.txt").is_file()


def read(path: Path, options: Options) -> Source:
    entities, relations = _vocabulary(path / "entity2id.txt"), _vocabulary(path / "relation2id.txt")
    sizes = {"head": len(entities), "relation": len(relations), "tail": len(entities)}
    files = {split: path / f"{split}2id.txt" for split in SPLITS}
    splits = {split: _triples(file, sizes) for split, file in files.items() if file.is_file()}
    return Source(path.name, dict(splits), entities, relations, *names_beside(path))


def _vocabulary(path: Path) -> list[str]:
    return names_by_id(path, _read_counted(path, ["name", "id"]))


def _triples(path: Path, sizes: dict[str, int]) -> pl.DataFrame:
    return check_ids(path, _read_counted(path, ["head", "tail", "relation"]), sizes, first_line=2)


def _read_counted(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Columns separated by a tab or a space, checked against the count line."""
    refuse_pickle(path)
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", errors="replace") as file:
            count = int(file.readline(MAX_NUMBER))
            separator = "\t" if "\t" in file.readline(MAX_LINE) else " "
    except FileNotFoundError:
        raise HarmoniumError(f"{path}: missing; an OpenKE folder has it beside train2id.txt") from None
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if isinstance(error, HarmoniumError):
            raise
        raise HarmoniumError(f"{path}:1: expected the number of lines that follow") from None
    table = read_integers(path, columns, skip_lines=1, separator=separator)
    if len(table) != count:
        raise HarmoniumError(f"{path}:1: announces {count:,} lines, {len(table):,} follow; is the file complete?")
    return table


def read_integers(path: Path, columns: Sequence[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
    """A table whose columns, except `name`, are whole numbers; an error names the line of another value."""
    text = read_columns(path, columns, skip_lines, separator)
    table = text.with_columns(pl.all().exclude("name").cast(pl.Int64, strict=False))
    bad = table.with_row_index().filter(pl.any_horizontal(pl.all().is_null()))
    if len(bad):
        line = bad["index"][0] + skip_lines + 1
        raise HarmoniumError(f"{path}:{line}: expected whole numbers for {' '.join(columns)}")
    return table


def names_by_id(path: Path, table: pl.DataFrame) -> list[str]:
    """Names in the order of their ids, which must be 0, 1, 2, ... each once, as each name must."""
    table = table.sort("id")
    if table["id"].to_list() != list(range(len(table))):
        raise HarmoniumError(f"{path}: ids must be 0 to {len(table) - 1}, each once")
    repeated = table.filter(table["name"].is_duplicated())
    if len(repeated):
        name = repeated["name"][0]
        ids = repeated.filter(pl.col("name") == name)["id"].to_list()
        raise HarmoniumError(
            f"{path}: '{name}' has the ids {ids[0]} and {ids[1]}; each name needs one, rename or merge"
        )
    names: list[str] = table["name"].to_list()
    return names


def check_ids(path: Path, table: pl.DataFrame, sizes: dict[str, int], first_line: int) -> pl.DataFrame:
    """The triples; an id without a name is an error that names its line."""
    for column, size in sizes.items():
        bad = table.with_row_index().filter((pl.col(column) < 0) | (pl.col(column) >= size))
        if len(bad):
            value, line = bad[column][0], bad["index"][0] + first_line
            raise HarmoniumError(f"{path}:{line}: {column} {value} is not an id of the vocabulary (0 to {size - 1})")
    return table.select(COLUMNS)


def write(graph: Graph, folder: Path) -> None:
    """The folder that OpenKE trains on, and labels beside."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        _write(folder / f"{kind}2id.txt", pl.DataFrame({"name": list(vocabulary.ids), "id": range(len(vocabulary))}))
    for split, triples in graph.splits.items():
        if len(triples):
            _write(folder / f"{split}2id.txt", pl.DataFrame(triples.to_rows()[:, [0, 2, 1]].numpy()))
    write_names(graph, folder)


def _write(path: Path, table: pl.DataFrame) -> None:
    write_table(path, table, first_line=f"{len(table)}\n")
