"""Encode a Source as a Graph: names become ids in order of first appearance, batch by batch and in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.growing_column import GrowingColumn
from harmonium.data.name_column import NameColumn
from harmonium.data.names import LINE_BREAKS, NEEDS_CLEANING, PLACEHOLDERS, WHITESPACE, clean_name, has_line_break
from harmonium.data.repeats import drop_repeated
from harmonium.data.tables.columns import COLUMNS, WEIGHT
from harmonium.data.tables.source import Source
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

NAMES_IN_NOTE = 3
PLURALS = {"entity": "entities", "relation": "relations"}


def encode(source: Source) -> Graph:
    """Build a Graph from a Source: repeated triples are dropped and spellings united. Names of train get the first ids."""
    encoders = None
    if source.entities is None or source.relations is None:
        encoders = NameEncoder("entity"), NameEncoder("relation")
    splits = {split: _encode_split(source.splits.get(split, ()), encoders) for split in SPLITS}
    source.skipped.finish()
    if not len(splits["train"]):
        raise HarmoniumError(f"{source.name}: no facts to train on; the split train must not be empty")
    source.skipped.check(sum(map(len, splits.values())), source.name)
    entities: Sequence[str] = encoders[0].names() if encoders else source.entities or ()
    relations: Sequence[str] = encoders[1].names() if encoders else source.relations or ()
    notes = [note for encoder in encoders or () for note in encoder.notes()] + _notes_of_broken_labels(source)
    n_facts = sum(map(len, splits.values()))
    repeated = drop_repeated(splits)
    notes += repeated + _notes_of_weights(splits)
    notes += source.skipped.note_of_losses(source.name, n_facts, repeated, is_error=source.is_guess)
    graph = Graph(
        Vocabulary(entities, _labels(entities, source.entity_names), "entity"),
        Vocabulary(relations, _labels(relations, source.relation_names), "relation"),
        splits["train"],
        splits["valid"],
        splits["test"],
        source.name,
    )
    if encoders:
        notes += _notes_of_odd_names(graph)
    reading = next((note.text for note in source.notes if note.kind == "reading"), "")
    other_notes = [note for note in source.notes if note.kind != "reading"]
    return replace(
        graph, notes=(*other_notes, *source.skipped.notes(), *notes, *_notes_of_leaks(graph)), reading=reading
    )


def _notes_of_weights(splits: dict[str, Triples]) -> list[Note]:
    weights = [triples.weight for triples in splits.values() if triples.weight is not None and len(triples)]
    if not weights:
        return []
    if not any(bool(weight.any()) for weight in weights):
        raise HarmoniumError(
            "all facts have the weight 0, so there is nothing to learn; is it the right weight column?"
        )
    low, high = min(float(weight.min()) for weight in weights), max(float(weight.max()) for weight in weights)
    text = f"facts have weights from {low:g} to {high:g}: training and evaluation count them accordingly"
    return [Note(text, "weights", "", sum(map(len, weights)))]


def _notes_of_odd_names(graph: Graph) -> list[Note]:
    """Notes for a graph whose names suggest that it was misread."""
    notes, n_facts = [], sum(map(len, graph.splits.values()))
    if graph.n_relations > max(20, n_facts / 4):
        text = f"{graph.n_relations:,} relations for {n_facts:,} facts: is the relation in another column?"
        notes.append(Note(text, "many relations", "", graph.n_relations))
    spellings = {spelling for word in PLACEHOLDERS for spelling in (word, word.upper(), word.title(), "NaN")}
    placeholders = sorted(name for name in spellings if name in graph.entities.ids)
    if placeholders:
        shown = ", ".join(placeholders)
        text = f"read as entities: {shown}; --on-bad skip (load: on_bad='skip') leaves out rows with such placeholders"
        notes.append(Note(text, "placeholders", "", len(placeholders)))
    return notes


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
    """Tables of names (or of ids, if there are no encoders) as columns of ids."""
    columns, weights, is_weighted = {name: GrowingColumn() for name in COLUMNS}, GrowingColumn(), False
    for table in [tables] if isinstance(tables, pl.DataFrame) else tables:
        ids: Any = _encode_names(table, *encoders) if encoders else table
        for name, column in columns.items():
            column.append(np.asarray(ids[name], np.int64))
        is_weighted = is_weighted or WEIGHT in table.columns
        if is_weighted:
            weights.append(table[WEIGHT].to_numpy() if WEIGHT in table.columns else np.ones(len(table)))
    weight = weights.tensor(np.float64) if is_weighted else None
    head, relation, tail = (column.tensor() for column in columns.values())
    return Triples(head, relation, tail, weight)


def _encode_names(table: pl.DataFrame, entities: NameEncoder, relations: NameEncoder) -> dict[str, NDArray[np.int64]]:
    order = np.arange(2 * len(table)).reshape(2, -1).T.ravel()  # head, tail, head, tail, ...
    ids = entities.encode(pl.concat([table["head"], table["tail"]]).gather(order))
    return {"head": ids[::2], "relation": relations.encode(table["relation"]), "tail": ids[1::2]}


def _labels(ids: Sequence[str], labels: dict[str, str]) -> list[str] | None:
    """A label for each identifier, the identifier itself where it has none."""
    if not labels:
        return None
    by_id = {clean_name(name): label for name, label in labels.items()} | labels
    return [clean_name(by_id.get(name, "")) or name for name in ids]


def _notes_of_broken_labels(source: Source) -> list[Note]:
    """A note if labels have tabs or line breaks."""
    labels = (
        label.strip(WHITESPACE) for names in (source.entity_names, source.relation_names) for label in names.values()
    )
    broken = [clean_name(label) for label in labels if has_line_break(label)]
    return _notes_of_line_breaks("labels", len(broken), broken)


def _notes_of_line_breaks(kind: str, count: int, names: list[str]) -> list[Note]:
    if not count:
        return []
    examples = ", ".join(names[:NAMES_IN_NOTE]) + ", ..." * (count > NAMES_IN_NOTE)
    text = f"tabs and line breaks in {count:,} {kind} became spaces: {examples}"
    return [Note(text, "line breaks", "", count)]


class NameEncoder:
    """Ids for names in order of first appearance, by a 64-bit hash: 25 bytes a name, no Python objects.

    Spellings that become equal when cleaned (`clean_name`) get one id.
    """

    def __init__(self, kind: str = "entity") -> None:
        self.kind = kind
        self.n_broken, self.broken = 0, pl.Series(dtype=pl.String)  # spellings with tabs or line breaks; examples
        self.n_cleaned, self.cleaned = 0, pl.Series(dtype=pl.String)  # spellings that were changed; examples
        self.keys = np.empty(0, np.uint64)  # hashes of spellings, ascending
        self.checks = np.empty(0, np.uint64)  # a second hash of each
        self.ids = np.empty(0, np.int64)  # id of each
        self.is_read = np.empty(0, bool)  # whether it was read; otherwise it is only the clean form of others
        self.content, self.lengths, self.n_names = GrowingColumn(), [np.zeros(1, np.int64)], 0

    def encode(self, names: pl.Series) -> NDArray[np.int64]:
        """(n,) the id of each name."""
        keys, first, inverse = np.unique(names.hash(0).to_numpy(), return_index=True, return_inverse=True)
        is_new = ~self._contains(keys)
        if is_new.any():
            self._add(names.gather(np.sort(first[is_new])))
        position = np.searchsorted(self.keys, keys)
        self.is_read[position] = True
        if (self.checks[position][inverse] != names.hash(1).to_numpy()).any():
            raise HarmoniumError("two names have the same 64-bit hash, as happens among billions of them; rename one")
        return self.ids[position][inverse]

    def _contains(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        at = np.searchsorted(self.keys, keys)
        return np.asarray(np.append(self.keys, ~keys[-1:])[at] == keys)

    def _add(self, spellings: pl.Series) -> None:
        """Add spellings in the order in which they were first read: new names, or other spellings of known ones."""
        names = clean_names(spellings)
        broken = names.filter(spellings.str.strip_chars(WHITESPACE).str.contains(LINE_BREAKS))
        self.n_broken, self.broken = self.n_broken + len(broken), self.broken.append(broken.head(NAMES_IN_NOTE))
        new_names = names.unique(maintain_order=True)
        new_names = new_names.filter(~pl.Series(self._contains(new_names.hash(0).to_numpy())))
        if len(new_names):
            self._insert(new_names, self.n_names + np.arange(len(new_names)))
            self.content.append(np.frombuffer((new_names.str.join("").item() or "").encode(), np.uint8))
            self.lengths.append(new_names.str.len_bytes().to_numpy())
            self.n_names += len(new_names)
        changed = spellings != names
        if changed.any():
            cleaned = names.filter(changed)
            self.n_cleaned, self.cleaned = (
                self.n_cleaned + len(cleaned),
                self.cleaned.append(cleaned.head(NAMES_IN_NOTE)),
            )
            ids = self.ids[np.searchsorted(self.keys, names.filter(changed).hash(0).to_numpy())]
            self._insert(spellings.filter(changed), ids)

    def _insert(self, spellings: pl.Series, ids: NDArray[np.int64]) -> None:
        keys = spellings.hash(0).to_numpy()
        order = np.argsort(keys)
        position = np.searchsorted(self.keys, keys[order])
        self.keys = np.insert(self.keys, position, keys[order])
        self.checks = np.insert(self.checks, position, spellings.hash(1).to_numpy()[order])
        self.ids = np.insert(self.ids, position, ids[order])
        self.is_read = np.insert(self.is_read, position, False)

    def names(self) -> NameColumn:
        offsets = np.concatenate(self.lengths).cumsum(dtype=np.int64)
        return NameColumn(self.content.tensor(np.uint8), torch.from_numpy(offsets))

    def notes(self) -> list[Note]:
        """Notes of names that were changed: cleaned, line breaks removed, spellings united."""
        return (
            self._notes_of_cleaning()
            + _notes_of_line_breaks(f"names of {PLURALS[self.kind]}", self.n_broken, self.broken.to_list())
            + self._notes_of_spellings()
        )

    def _notes_of_cleaning(self) -> list[Note]:
        if not self.n_cleaned:
            return []
        examples = ", ".join(self.cleaned.unique(maintain_order=True)[:NAMES_IN_NOTE])
        kind = f"{self.n_cleaned:,} spelling{'s' * (self.n_cleaned != 1)} of {PLURALS[self.kind]}"
        text = f"cleaned {kind} (whitespace, Unicode form): {examples}{', ...' * (self.n_cleaned > 3)}"
        return [Note(text, "cleaned", "", self.n_cleaned)]

    def _notes_of_spellings(self) -> list[Note]:
        spellings = np.bincount(self.ids[self.is_read], minlength=self.n_names)  # of each name
        united = np.flatnonzero(spellings > 1)
        if not len(united):
            return []
        names, count = self.names(), int(spellings[united].sum())
        examples = ", ".join(names[index] for index in united[:NAMES_IN_NOTE].tolist()) + ", ..." * (
            len(united) > NAMES_IN_NOTE
        )
        kind = f"{len(united):,} {PLURALS[self.kind]}"
        text = f"united {count:,} spellings of {kind} that differ in whitespace or Unicode form: {examples}"
        return [Note(text, "united", "", count - len(united))]


def clean_names(names: pl.Series) -> pl.Series:
    """`clean_name`, vectorised."""
    rows = names.str.contains(NEEDS_CLEANING).arg_true()
    if not len(rows):
        return names
    return names.clone().scatter(rows, [clean_name(name) for name in names.gather(rows)])
