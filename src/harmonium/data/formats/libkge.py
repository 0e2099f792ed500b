"""LibKGE ids: a folder with entity_ids.del, relation_ids.del and train.del (valid.del, test.del), tabs throughout.

entity_ids.del is index, identifier; triples are head, relation, tail as indices. entity_strings.del and
relation_strings.del, if they exist, hold labels by identifier or by index.
"""

from pathlib import Path

import polars as pl

from harmonium.data.columns import COLUMNS
from harmonium.data.formats.openke import check_ids, names_by_id, read_integers
from harmonium.data.formats.source import Options, Source
from harmonium.data.formats.table import names_table
from harmonium.data.formats.tsv import read_names, write_table
from harmonium.data.graph import SPLITS, Graph


def detect(path: Path, options: Options) -> bool:
    return (path / "train.del").is_file()


def read(path: Path, options: Options) -> Source:
    entities, relations = _vocabulary(path / "entity_ids.del"), _vocabulary(path / "relation_ids.del")
    sizes = {"head": len(entities), "relation": len(relations), "tail": len(entities)}
    files = {split: path / f"{split}.del" for split in SPLITS}
    return Source(
        path.name,
        {split: _triples(file, sizes) for split, file in files.items() if file.is_file()},
        entities,
        relations,
        _labels(path / "entity_strings.del", entities),
        _labels(path / "relation_strings.del", relations),
    )


def _vocabulary(path: Path) -> list[str]:
    return names_by_id(path, read_integers(path, ["id", "name"]))


def _triples(path: Path, sizes: dict[str, int]) -> pl.DataFrame:
    return check_ids(path, read_integers(path, COLUMNS), sizes, first_line=1)


def _labels(path: Path, ids: list[str]) -> dict[str, str]:
    """identifier -> label."""
    labels = read_names(path)
    if labels.keys() & set(ids) or not all(key.isdecimal() for key in labels):
        return labels
    indices = {str(index): name for index, name in enumerate(ids)}
    return {indices[key]: label for key, label in labels.items() if key in indices}


def write(graph: Graph, folder: Path) -> None:
    """The folder that LibKGE trains on, except its dataset.yaml."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        table = pl.DataFrame({"id": range(len(vocabulary)), "name": list(vocabulary.ids)})
        write_table(folder / f"{kind}_ids.del", table)
        labels = names_table(vocabulary)
        if labels is not None:
            write_table(folder / f"{kind}_strings.del", labels)
    for split, triples in graph.splits.items():
        if len(triples):
            write_table(folder / f"{split}.del", pl.DataFrame(triples.to_rows().numpy()))
