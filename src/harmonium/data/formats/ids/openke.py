"""OpenKE ids: a folder with entity2id.txt, relation2id.txt and train2id.txt (valid2id.txt, test2id.txt).

Every file starts with a count line; triples are head tail relation (in that order), as ids.
"""

import io
from pathlib import Path

import polars as pl

from harmonium.data.compressed import MAX_LINE
from harmonium.data.formats.format import Format
from harmonium.data.formats.ids.id_tables import IdTables, names_by_id, read_integers
from harmonium.data.formats.tab_files import names_beside, write_names, write_table
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import exists_as_file, open_regular, refuse_pickle

MAX_COUNT_LINE = 1000  # characters of the first line, which has only a number


def detect(path: Path, options: Options) -> bool:
    return (path / "train2id.txt").is_file()


def read(path: Path, options: Options) -> Source:
    entities, relations = _vocabulary(path / "entity2id.txt"), _vocabulary(path / "relation2id.txt")
    files = {split: path / f"{split}2id.txt" for split in SPLITS}
    skipped, notes = SkippedRows(options.on_bad), list[Note]()
    ids = IdTables(entities, relations, skipped)
    splits = {split: _triples(file, ids, notes) for split, file in files.items() if exists_as_file(file)}
    return ids.source(path.name, splits, *names_beside(path), notes)


def _vocabulary(path: Path) -> list[str]:
    count, separator = _count_line(path)
    table = read_integers(path, ["name", "id"], 1, separator)
    _check_count(path, count, len(table))
    return names_by_id(path, table)


def _triples(path: Path, ids: IdTables, notes: list[Note]) -> pl.DataFrame:
    count, separator = _count_line(path)
    n_skipped = ids.skipped.total
    table = ids.read(path, ("head", "tail", "relation"), 1, separator)
    try:
        _check_count(path, count, len(table) + ids.skipped.total - n_skipped)
    except HarmoniumError as error:
        if not ids.skipped.skips:
            raise
        notes.append(Note(str(error), "count"))
    return table


def _check_count(path: Path, count: int, n_lines: int) -> None:
    if n_lines != count:
        raise HarmoniumError(f"{path}:1: announces {count:,} lines, {n_lines:,} follow; is the file complete?")


def _count_line(path: Path) -> tuple[int, str]:
    """The number in the first line, and the separator of the columns below it: a tab or a space."""
    refuse_pickle(path)
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", errors="replace") as file:
            count = int(file.readline(MAX_COUNT_LINE))
            separator = "\t" if "\t" in file.readline(MAX_LINE) else " "
    except FileNotFoundError:
        raise HarmoniumError(f"{path}: missing; an OpenKE folder has it beside train2id.txt") from None
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if isinstance(error, HarmoniumError):
            raise
        raise HarmoniumError(f"{path}:1: expected the number of lines that follow") from None
    return count, separator


def write(graph: Graph, folder: Path) -> None:
    """Write a folder that OpenKE can train on; labels go to entity_names.tsv and relation_names.tsv."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        _write(folder / f"{kind}2id.txt", pl.DataFrame({"name": list(vocabulary.ids), "id": range(len(vocabulary))}))
    for split, triples in graph.splits.items():
        if len(triples):
            _write(folder / f"{split}2id.txt", pl.DataFrame(triples.to_rows()[:, [0, 2, 1]].numpy()))
    write_names(graph, folder)


def _write(path: Path, table: pl.DataFrame) -> None:
    write_table(path, table, first_line=f"{len(table)}\n")


FORMAT = Format(
    "openke", "OpenKE", "Folders of OpenKE: facts as ids, and their names.", read=read, detect=detect, write_folder=write,
    beside=(), table_options=(), has_weights=False,
)  # fmt: skip
