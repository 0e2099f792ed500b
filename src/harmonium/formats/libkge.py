"""LibKGE ids: a folder with entity_ids.del, relation_ids.del and train.del (valid.del, test.del), tabs throughout.

entity_ids.del is index, identifier; triples are head, relation, tail as indices. entity_strings.del and
relation_strings.del, where they are, hold names by identifier or by index.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from harmonium.formats import COLUMNS, SPLITS, Options, Source
from harmonium.formats.files import create
from harmonium.formats.openke import check_ids, vocabulary_of, whole_numbers
from harmonium.formats.table import names
from harmonium.formats.tsv import read_columns
from harmonium.graph import Graph


def detect(path: Path, options: Options) -> bool:
    return (path / "train.del").is_file()


def read(path: Path, options: Options) -> Source:
    entities, relations = _vocabulary(path / "entity_ids.del"), _vocabulary(path / "relation_ids.del")
    sizes = {"head": len(entities), "relation": len(relations), "tail": len(entities)}
    splits = {split: _triples(file, sizes) for split in SPLITS if (file := path / f"{split}.del").is_file()}
    strings = {
        f"{kind}_names": _strings(path / f"{kind}_strings.del", ids)
        for kind, ids in (("entity", entities), ("relation", relations))
    }
    return Source(path.name, splits, entities, relations, **strings)


def _vocabulary(path: Path) -> list[str]:
    return vocabulary_of(path, whole_numbers(path, read_columns(path, ["id", "name"]), first_line=1))


def _triples(path: Path, sizes: dict[str, int]) -> pl.DataFrame:
    table = whole_numbers(path, read_columns(path, COLUMNS), first_line=1)
    return check_ids(path, table, sizes, first_line=1)


def _strings(path: Path, ids: list[str]) -> dict[str, str]:
    """identifier -> name."""
    if not path.is_file():
        return {}
    found = dict(read_columns(path, ["identifier", "name"]).unique("identifier", keep="first").iter_rows())
    if found.keys() & set(ids) or not all(key.isdecimal() for key in found):
        return found
    indices = {str(index): text for index, text in enumerate(ids)}
    return {indices[key]: name for key, name in found.items() if key in indices}


def write(graph: Graph, folder: Path) -> None:
    """The folder that LibKGE trains on, less its dataset.yaml."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        _save(folder / f"{kind}_ids.del", pl.DataFrame({"id": range(len(vocabulary)), "name": list(vocabulary.ids)}))
        if (named := names(vocabulary)) is not None:
            _save(folder / f"{kind}_strings.del", named)
    for split in SPLITS:
        if len(triples := getattr(graph, split)):
            _save(folder / f"{split}.del", pl.DataFrame(triples.rows().numpy()))


def _save(path: Path, table: pl.DataFrame) -> None:
    with create(path) as file:
        table.write_csv(file, include_header=False, separator="\t", quote_style="never")
