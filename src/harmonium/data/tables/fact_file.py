"""Facts or queries in terms of an existing graph, read row by row: from files (TSV, CSV, JSON, Parquet) or memory.

Rows that cannot be used, such as those with unknown names, are counted to the end of the file; then they are an error, or
skipped with a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from harmonium.data.graph import Graph, Note
from harmonium.data.names import clean_name
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.facts import open_facts
from harmonium.data.tables.in_memory import open_memory
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.reading_report import report_reading
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.tables.table import Table, table_of_lists
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

LABELS = {"1": True, "true": True, "-1": False, "0": False, "false": False}
FACTS_PER_CHUNK = 2048  # whose names are looked up at a time

Row = tuple[str, dict[str, str]]  # location in the source, such as ":7"; the cell of each column


class FactReader:
    """Reads rows of facts or queries from a path, a frame, a list of rows, an array, a dict of columns or a graph."""

    def __init__(self, source: Any, on_bad: OnBad | SkippedRows = "error", **options: Any) -> None:
        self.source, self.skipped = source, SkippedRows.of(on_bad)
        self.options = Options.of(options | {"on_bad": self.skipped.on_bad})
        self.path = Path(source) if isinstance(source, str | os.PathLike) else None
        self.name = str(self.path) if self.path else f"the {'graph' if isinstance(source, Graph) else 'facts'}"
        self.notes: list[Note] = []  # how the source was read

    def rows(self, columns: Sequence[str] = COLUMNS, may_be_open: bool = False) -> Iterator[Row]:
        """The rows with clean names (`clean_name`); an empty or missing cell is "".

        With `may_be_open` one of head, relation and tail may have no column, as in a table of queries.
        """
        table = self._open()
        if table.peek() is None:
            self.skipped.finish()
            raise self._nothing(columns)
        facts = open_facts(table, self.options, self.skipped, self.notes, (), columns, may_be_open, is_graph=False)
        if self.path is not None:
            report_reading(next((note.text for note in self.notes if note.kind == "reading"), ""))
        is_empty = True
        for batch in facts.batches(self.skipped):
            for row, cells in enumerate(batch.cells.iter_rows(named=True)):
                is_empty = False
                names = {column: clean_name(cell) if cell else "" for column, cell in cells.items()}
                yield batch.row_name(row), dict.fromkeys(columns, "") | names
        self.skipped.finish()
        if is_empty:
            raise self._nothing(columns)

    def _nothing(self, columns: Sequence[str]) -> HarmoniumError:
        return HarmoniumError(f"{self.name}: no facts in it; each line is {', '.join(columns)}")

    def _open(self) -> Table:
        if self.path is not None:
            from harmonium.data.formats.registry import open_table

            return open_table(self.path, self.options, self.skipped, self.notes)
        if isinstance(self.source, Graph):
            entities, relations, facts = self.source.entities.ids, self.source.relations.ids, self.source.facts()
            ids = enumerate(facts.to_rows().tolist(), start=1)
            rows = ((f": fact {n}", (entities[h], relations[r], entities[t])) for n, (h, r, t) in ids)
            return table_of_lists(self.name, rows, list(COLUMNS))
        table = open_memory(self.source, self.options, self.skipped)
        table.location = self.name
        return table

    def ids(self, graph: Graph, row: str, names: Mapping[str, str | None]) -> list[int] | None:
        """The ids of head, relation and tail, 0 for an open slot (None); None if a name is unknown and the row rejected."""
        ids = []
        for slot in Slot:
            vocabulary = graph.relations if slot is Slot.RELATION else graph.entities
            name = names[slot.value]
            index = 0 if name is None else self._id(vocabulary, name, slot, row)
            if index is None:
                return None
            ids.append(index)
        return ids

    def reject(self, row: str, reason: str, text: str = "", message: str | None = None) -> None:
        self.skipped.reject(self.name, row, reason, text=text, message=message)

    def _id(self, vocabulary: Vocabulary, name: str, slot: Slot, row: str) -> int | None:
        if not name:
            self.reject(row, f"the {slot.value} is empty")
            return None
        matches = vocabulary.find(name)
        if len(matches) == 1:
            return matches[0]
        reject_name(self.skipped, vocabulary, name, self.name, row)
        return None


def read_rows(source: Any, columns: Sequence[str] = COLUMNS, are_queries: bool = False) -> Iterator[Row]:
    """The rows of `FactReader`, with full locations such as "facts.tsv:7"."""
    reader = FactReader(source)
    return ((f"{reader.name}{row}", cells) for row, cells in reader.rows(columns, are_queries))


def reject_name(skipped: SkippedRows, vocabulary: Vocabulary, name: str, source: str, row: str) -> None:
    """Reject a row with an unknown or ambiguous name; rows shown as examples come with suggestions."""
    reason = f"{'ambiguous' if name in vocabulary else 'unknown'} {vocabulary.kind}"
    message, text = None, name
    if skipped.wants_example(source, reason):
        try:
            vocabulary.index(name)
        except HarmoniumError as error:
            message = str(error)
            text = f"{name}; {hint}" if (hint := message.partition("; ")[2]) else name
            if row in (":1", ": row 1"):
                message += "; if this row is a header, say --header (in Python: header=True)"
    skipped.reject(source, row, reason, text=text, message=message)


def read_triples(
    source: Any,
    graph: Graph,
    on_bad: OnBad | SkippedRows = "error",
    kept: list[int] | None = None,
    **options: Any,
) -> Iterator[Triples]:
    """Read facts as ids of a graph, in chunks; the numbers of the rows read, from 0, are appended to `kept`."""
    reader = FactReader(source, on_bad, **options)

    def usable() -> Iterator[list[int]]:
        for number, (row, names) in enumerate(reader.rows()):
            if (ids := reader.ids(graph, row, names)) is not None:
                if kept is not None:
                    kept.append(number)
                yield ids

    rows = usable()
    while chunk := list(islice(rows, FACTS_PER_CHUNK)):
        if not reader.skipped.first_error:  # after an error the remaining rows are only counted
            yield Triples.from_rows(chunk)


def read_labelled(
    source: Any, graph: Graph, on_bad: OnBad | SkippedRows = "error", **options: Any
) -> tuple[Triples, Tensor]:
    """Read labelled facts: the facts, and (n,) bool whether each is true. The label column has 1 or true; -1, 0 or false."""
    reader = FactReader(source, on_bad, **options)
    rows, labels = [], []
    for row, cells in reader.rows((*COLUMNS, "label")):
        label = cells["label"].lower().removesuffix(".0")
        if label not in LABELS:
            expected = "; expected 1 or true, or else -1, 0 or false"
            message = f"the label is '{cells['label']}'{expected}"
            reader.reject(row, "the label is not 1 or true, nor -1, 0 or false", cells["label"], message)
        elif (ids := reader.ids(graph, row, cells)) is not None:
            rows.append(ids)
            labels.append(LABELS[label])
    if not rows:
        raise reader.skipped.nothing_left(reader.name)
    return Triples.from_rows(rows), torch.tensor(labels)


def fact_table(data: Any, columns: Sequence[str] = COLUMNS, are_queries: bool = False) -> pl.DataFrame:
    """The columns of a file or of facts in memory, as text. Empty cells are null, as is a column that queries lack."""
    rows = [cells for _, cells in FactReader(data).rows(columns, may_be_open=are_queries)]
    texts = {column: [row[column] or None for row in rows] for column in columns}
    return pl.DataFrame(texts, schema=dict.fromkeys(columns, pl.String))
