"""LibKGE ids: a folder with entity_ids.del, relation_ids.del and train.del (valid.del, test.del), tabs throughout.

entity_ids.del is index, identifier; triples are head, relation, tail as indices. entity_strings.del and
relation_strings.del, if they exist, hold labels by identifier or by index.
"""

from pathlib import Path

import polars as pl

from harmonium.data.formats.format import Format
from harmonium.data.formats.ids.id_tables import IdTables, names_by_id, read_integers
from harmonium.data.formats.tab_files import read_names, write_table
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.graph_source import names_table
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.runtime.untrusted import exists_as_file


def detect(path: Path, options: Options) -> bool:
    return (path / "train.del").is_file()


def read(path: Path, options: Options) -> Source:
    entities, relations = _vocabulary(path / "entity_ids.del"), _vocabulary(path / "relation_ids.del")
    ids = IdTables(entities, relations, SkippedRows(options.on_bad))
    files = {split: path / f"{split}.del" for split in SPLITS}
    splits = {split: ids.read(file, COLUMNS) for split, file in files.items() if exists_as_file(file)}
    labels = _labels(path / "entity_strings.del", entities), _labels(path / "relation_strings.del", relations)
    return ids.source(path.name, splits, *labels)


def _vocabulary(path: Path) -> list[str]:
    return names_by_id(path, read_integers(path, ["id", "name"]))


def _labels(path: Path, ids: list[str]) -> dict[str, str]:
    """identifier -> label."""
    labels = read_names(path)
    if labels.keys() & set(ids) or not all(key.isdecimal() for key in labels):
        return labels
    indices = {str(index): name for index, name in enumerate(ids)}
    return {indices[key]: label for key, label in labels.items() if key in indices}


def write(graph: Graph, folder: Path) -> None:
    """Write a folder that LibKGE can train on, except its dataset.yaml."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        table = pl.DataFrame({"id": range(len(vocabulary)), "name": list(vocabulary.ids)})
        write_table(folder / f"{kind}_ids.del", table)
        labels = names_table(vocabulary)
        if labels is not None:
            write_table(folder / f"{kind}_strings.del", labels)
    for split, triples in graph.splits.items():
        if len(triples):
            write_table(folder / f"{split}.del", pl.DataFrame(triples.to_rows().numpy()))


FORMAT = Format(
    "libkge", "LibKGE", "Folders of LibKGE: facts as ids, and their names.", read=read, detect=detect, write_folder=write,
    beside=(), table_options=(), has_weights=False,
)  # fmt: skip
