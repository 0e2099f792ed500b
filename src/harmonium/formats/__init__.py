"""Graphs in: each format is one module with `detect(path)` and `read(path)`; strings become ids here, once.

A format returns a `Source`: tables of names (or of ids, when it brings its own vocabulary), one per split.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import polars as pl
import torch

from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary

COLUMNS = [slot.value for slot in Slot]
FORMATS = ("openke", "tsv")  # the first that recognises a path reads it


@dataclass(frozen=True)
class Source:
    """What a format found: `splits` are tables head, relation, tail of String, or of ids into the vocabularies."""

    name: str
    splits: dict[str, pl.DataFrame]
    entities: list[str] | None = None
    relations: list[str] | None = None
    entity_names: dict[str, str] = field(default_factory=dict)  # identifier -> name for people
    relation_names: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> Source:
    """Read a file or folder with the first format that recognises it."""
    if not path.exists():
        raise HarmoniumError(f"{path}: no such file or folder; give a dataset name, a folder or a file of triples")
    for name in FORMATS:
        module = import_module(f"{__name__}.{name}")
        if module.detect(path):
            return module.read(path)
    found = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
    raise HarmoniumError(f"{path}: not a graph: expected train.txt or train.tsv (or train2id.txt), found {found}")


def encode(source: Source) -> Graph:
    """Names to ids, in order of first appearance (train first); repeated triples are dropped and counted."""
    tables = {split: source.splits.get(split, source.splits["train"].clear()) for split in SPLITS}
    entities, relations = source.entities, source.relations
    if entities is None or relations is None:
        everything = pl.concat(tables.values())
        interleaved = everything.select(pl.concat_list("head", "tail").explode()).to_series()
        entities = interleaved.unique(maintain_order=True).to_list()
        relations = everything["relation"].unique(maintain_order=True).to_list()
        kinds = {"head": pl.Enum(entities), "relation": pl.Enum(relations), "tail": pl.Enum(entities)}
        tables = {
            split: table.select(pl.col(c).cast(kinds[c]).to_physical() for c in COLUMNS)
            for split, table in tables.items()
        }
    notes, splits = [], {}
    for split, table in tables.items():
        distinct = table.unique(maintain_order=True)
        if len(distinct) < len(table):
            notes.append(f"{split}: dropped {len(table) - len(distinct):,} repeated triples of {len(table):,}")
        seen = len(distinct.join(tables["train"].unique(), on=COLUMNS, how="semi")) if split != "train" else 0
        if seen:
            notes.append(f"{split}: {seen:,} of {len(distinct):,} triples are in train too (kept): its metrics flatter")
        splits[split] = Triples(*(torch.from_numpy(distinct[c].cast(pl.Int64).to_numpy().copy()) for c in COLUMNS))
    return Graph(
        Vocabulary(entities, _labels(entities, source.entity_names), "entity"),
        Vocabulary(relations, _labels(relations, source.relation_names), "relation"),
        **splits,
        name=source.name,
        notes=tuple(notes),
    )


def _labels(ids: list[str], names: dict[str, str]) -> list[str] | None:
    return [names.get(text, text) for text in ids] if names else None
