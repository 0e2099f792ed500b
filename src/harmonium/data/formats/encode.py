"""A Source as a Graph: names become ids in order of first appearance, a part at a time and in little memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.data.columns import COLUMNS
from harmonium.data.formats.source import LINE_BREAKS, Source
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.growing_column import CHUNK, GrowingColumn, select_triples
from harmonium.data.index import hash_ids
from harmonium.data.name_column import NameColumn
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.errors import HarmoniumError

ODD = 0x2545F4914F6CDD1D


def encode(source: Source) -> Graph:
    """A Graph of a Source: ids count from train on; repeated triples are dropped and noted."""
    encoders = (NameEncoder(), NameEncoder()) if source.entities is None or source.relations is None else None
    splits, notes = {}, []
    for split in SPLITS:
        triples = _encode_split(source.splits.get(split, ()), encoders)
        if split == "train" and not len(triples):
            raise HarmoniumError(f"{source.name}: no facts to train on; some must be in the split train")
        repeated = find_repeats(triples)
        count = int(repeated.sum())
        if count:
            text = f"{split}: dropped {count:,} repeated triples of {len(triples):,}"
            notes.append(Note(text, "repeated", split, count))
        splits[split] = select_triples(triples, ~repeated) if count else triples
    entities: Sequence[str] = encoders[0].names() if encoders else source.entities or ()
    relations: Sequence[str] = encoders[1].names() if encoders else source.relations or ()
    graph = Graph(
        Vocabulary(entities, _labels(entities, source.entity_names), "entity"),
        Vocabulary(relations, _labels(relations, source.relation_names), "relation"),
        splits["train"],
        splits["valid"],
        splits["test"],
        source.name,
    )
    return replace(graph, notes=(*source.notes, *notes, *_notes_of_leaks(graph)))


def _notes_of_leaks(graph: Graph) -> list[Note]:
    """A note for each evaluation split that has training triples in it."""
    notes = []
    for split in SPLITS[1:]:
        facts = graph.splits[split]
        count = int(graph.known_answers(Slot.TAIL, ("train",), facts).contain(facts).sum())
        if count:
            text = f"{split}: {count:,} of {len(facts):,} triples are in train too (kept): its metrics are too good"
            notes.append(Note(text, "in train", split, count))
    return notes


def _encode_split(
    tables: pl.DataFrame | Iterable[pl.DataFrame], encoders: tuple[NameEncoder, NameEncoder] | None
) -> Triples:
    """Tables of names, or without encoders of ids, as columns of ids."""
    columns = {name: GrowingColumn() for name in COLUMNS}
    for table in [tables] if isinstance(tables, pl.DataFrame) else tables:
        ids: Any = _encode_names(table, *encoders) if encoders else table
        for name, column in columns.items():
            column.append(np.asarray(ids[name], np.int64))
    return Triples(*(column.tensor() for column in columns.values()))


def _encode_names(table: pl.DataFrame, entities: NameEncoder, relations: NameEncoder) -> dict[str, NDArray[np.int64]]:
    if table.select(pl.any_horizontal(pl.all().str.contains(LINE_BREAKS).any())).item():
        table = table.with_columns(pl.all().str.replace_all(LINE_BREAKS, " "))
    order = np.arange(2 * len(table)).reshape(2, -1).T.ravel()  # head, tail, head, tail, ...
    ids = entities.encode(pl.concat([table["head"], table["tail"]]).gather(order))
    return {"head": ids[::2], "relation": relations.encode(table["relation"]), "tail": ids[1::2]}


def _labels(ids: Sequence[str], labels: dict[str, str]) -> list[str] | None:
    """A label for each identifier, the identifier itself where it has none."""
    if not labels:
        return None
    clean = {re.sub(LINE_BREAKS, " ", name): re.sub(LINE_BREAKS, " ", label) for name, label in labels.items()}
    return [clean.get(name, name) for name in ids]


class NameEncoder:
    """Ids for names in order of first appearance, by a 64-bit hash: 24 bytes a name, no Python objects."""

    def __init__(self) -> None:
        self.keys = np.empty(0, np.uint64)  # hashes of the names, ascending
        self.ids = np.empty(0, np.int64)  # id of each key
        self.checks = np.empty(0, np.uint64)  # a second hash of each name, by id
        self.content, self.lengths = GrowingColumn(), [np.zeros(1, np.int64)]

    def encode(self, names: pl.Series) -> NDArray[np.int64]:
        keys, first, inverse = np.unique(names.hash(0).to_numpy(), return_index=True, return_inverse=True)
        position = np.searchsorted(self.keys, keys)
        is_new = np.append(self.keys, ~keys[-1:])[position] != keys
        ids = np.append(self.ids, 0)[position]
        order = np.argsort(first[is_new])
        ids[np.flatnonzero(is_new)[order]] = len(self.ids) + np.arange(len(order))
        self.keys = np.insert(self.keys, position[is_new], keys[is_new])
        self.ids = np.insert(self.ids, position[is_new], ids[is_new])
        if len(order):
            new_names = names.gather(first[is_new][order])
            self.content.append(np.frombuffer((new_names.str.join("").item() or "").encode(), np.uint8))
            self.lengths.append(new_names.str.len_bytes().to_numpy())
            self.checks = np.append(self.checks, new_names.hash(1).to_numpy())
        ids = ids[inverse]
        if (self.checks[ids] != names.hash(1).to_numpy()).any():
            raise HarmoniumError("two names have the same 64-bit hash, as happens among billions of them; rename one")
        return ids

    def names(self) -> NameColumn:
        offsets = np.concatenate(self.lengths).cumsum(dtype=np.int64)
        return NameColumn(self.content.tensor(np.uint8), torch.from_numpy(offsets))


def find_repeats(triples: Triples) -> Tensor:
    """(n,) bool: whether a triple stands earlier too.

    Hashes are sorted one range of them at a time; triples with equal hashes are compared.
    """
    hashes, repeated = GrowingColumn(), torch.zeros(len(triples), dtype=torch.bool)
    for chunk in triples.chunks(CHUNK):
        hashes.append(hash_ids((chunk.head * ODD + chunk.relation) * ODD + chunk.tail).numpy())
    keys, bits = hashes.tensor(), (len(triples) // CHUNK).bit_length()
    for leading_bits in range(1 << bits):
        in_range = ((chunk >> 63 - bits == leading_bits).nonzero()[:, 0] for chunk in keys.split(CHUNK))
        rows = torch.cat([chunk + CHUNK * number for number, chunk in enumerate(in_range)])
        key, order = keys[rows].sort()
        equal = torch.zeros(len(key), dtype=torch.bool)
        equal[1:] = key[1:] == key[:-1]
        equal[:-1] |= equal[1:].clone()
        candidates = rows[order[equal]].sort().values
        again = pl.DataFrame(triples[candidates].to_rows().numpy()).select(~pl.struct(pl.all()).is_first_distinct())
        repeated[candidates[torch.from_numpy(again.to_series().to_numpy())]] = True
    return repeated
