"""Facts by the names of a graph, one row at a time with its location: from files (TSV, CSV, JSON, Parquet) or memory.

Rows that cannot be used, such as those with unknown names, are counted to the end of the file: an error, or skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harmonium.data.compressed import numbered_lines, strip_compression
from harmonium.data.graph import Graph
from harmonium.data.names import clean_name
from harmonium.data.tables.columns import ALIASES, COLUMNS, LABEL_ALIASES, choose_columns, is_header, title_words
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.rows import JSON_ENDINGS, read_values, text_of, to_rows
from harmonium.data.tables.separated_text import read_cells
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.tables.text_encoding import guess_encoding
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    import polars as pl

LABELS = {"1": True, "true": True, "-1": False, "0": False, "false": False}
CHUNK = 2048  # facts looked up at a time
COMPARED = 1000  # objects whose keys are the columns

Row = tuple[str, dict[str, str]]  # location in the source, such as ":7"; the cell of each column
Cells = tuple[str, Sequence[Any]]


class FactReader:
    """Reads rows of facts or queries from a path, a frame, a list of rows, an array, a dict of columns or a graph."""

    def __init__(self, source: Any, on_bad: OnBad | SkippedRows = "error", **options: Any) -> None:
        self.source, self.skipped = source, SkippedRows.of(on_bad)
        self.options = Options.of(options | {"on_bad": self.skipped.on_bad})
        self.path = Path(source) if isinstance(source, str | os.PathLike) else None
        self.name = str(self.path) if self.path else f"the {'graph' if isinstance(source, Graph) else 'facts'}"

    def rows(self, columns: Sequence[str] = COLUMNS, may_be_open: bool = False) -> Iterator[Row]:
        """The rows with clean names (`clean_name`); an empty or missing cell is "".

        Columns stand in the given order, or where a header has them; it may have others too. Queries `may_be_open`:
        one of head, relation and tail may have no column.
        """
        titles, cells = self._titled_cells(columns)
        if titles is None:
            positions = self._positions_by_order(columns)
        else:
            positions = self._positions_by_title(titles, columns, may_be_open)
        width = len(columns) if titles is None else len(titles)
        is_empty = True
        for row, values in cells:
            is_numbered = titles is None and self.options.columns is not None
            if len(values) <= max(positions.values()) or (len(values) != width and not is_numbered):
                count = f"found {len(values)} column{'s' * (len(values) != 1)}"
                expected = f"expected {width}: {', '.join(titles or columns)}"
                self.reject(row, f"{count}, {expected}", ", ".join(map(text_of, values)))
                continue
            is_empty = False
            texts = {column: clean_name(text_of(values[position])) for column, position in positions.items()}
            yield row, dict.fromkeys(columns, "") | texts
        self.skipped.finish()
        if is_empty:
            raise HarmoniumError(f"{self.name}: no facts in it; each line is {', '.join(columns)}")

    def ids(self, graph: Graph, row: str, names: Mapping[str, str | None]) -> list[int] | None:
        """The ids of head, relation and tail, 0 for an open one (None); None if a name is unknown: a rejected row."""
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

    def _titled_cells(self, columns: Sequence[str]) -> tuple[list[str] | None, Iterator[Cells]]:
        """The titles of the columns, if there are any, and the rows."""
        if self.path is None:
            return self._in_memory()
        ending = strip_compression(self.path).suffix
        if ending == ".parquet":
            return self._parquet()
        if ending in JSON_ENDINGS:
            encoding = self.options.encoding or guess_encoding(self.path, self.skipped.skips)
            values = read_values(self.path, encoding, self.skipped)
            return self._from_values((f":{number}", value) for number, value in values)
        return self._split_header(self._text())

    def _text(self) -> Iterator[Cells]:
        assert self.path is not None
        delimiter = self.options.delimiter
        if delimiter is None and strip_compression(self.path).suffix != ".csv":
            encoding = self.options.encoding or guess_encoding(self.path, self.skipped.skips)
            first_lines = numbered_lines(self.path, lambda number, raw: None, encoding)
            delimiter = "\t" if any("\t" in line for _, line in islice(first_lines, 10)) else None
        reading = delimiter, self.options.quotes, self.skipped, self.options.encoding
        return ((f":{number}", cells) for number, cells in read_cells(self.path, *reading))

    def _parquet(self) -> tuple[list[str], Iterator[Cells]]:
        from harmonium.data.formats.parquet import read_tables

        assert self.path is not None
        tables = read_tables(self.path)
        first = next(tables)
        rows = (row for table in chain([first], tables) for row in table.iter_rows())
        return first.columns, ((f": row {number}", row) for number, row in enumerate(rows, start=1))

    def _in_memory(self) -> tuple[list[str] | None, Iterator[Cells]]:
        if isinstance(self.source, Graph):
            entities, relations, facts = self.source.entities.ids, self.source.relations.ids, self.source.facts()
            ids = enumerate(facts.to_rows().tolist(), start=1)
            return None, ((f": fact {n}", (entities[h], relations[r], entities[t])) for n, (h, r, t) in ids)
        if hasattr(type(self.source), "columns") or isinstance(self.source, Mapping):
            from harmonium.data.tables.in_memory import is_untitled, to_frame

            frame = to_frame(self.source)
            if frame is not None:
                rows = ((f": row {number}", row) for number, row in enumerate(frame.iter_rows(), start=1))
                return self._split_header(rows) if is_untitled(frame) else (frame.columns, rows)
        return self._from_values((f": row {number}", row) for number, row in enumerate(to_rows(self.source), start=1))

    def _from_values(self, values: Iterator[tuple[str, Any]]) -> tuple[list[str] | None, Iterator[Cells]]:
        """Rows that are objects, by their keys, or lists."""
        begin = list(islice(values, COMPARED))
        titles = list(dict.fromkeys(str(key) for _, row in begin if isinstance(row, Mapping) for key in row))
        if not titles:
            return self._split_header(self._lists(chain(begin, values)))
        return titles, self._objects(chain(begin, values), titles)

    def _objects(self, values: Iterator[tuple[str, Any]], titles: Sequence[str]) -> Iterator[Cells]:
        for row, value in values:
            if isinstance(value, Mapping):
                by_title = {str(key): cell for key, cell in value.items()}
                yield row, [by_title.get(title) for title in titles]
            else:
                self.reject(row, 'expected {"head": "...", "relation": "...", "tail": null}')

    def _lists(self, values: Iterator[tuple[str, Any]]) -> Iterator[Cells]:
        for row, value in values:
            if isinstance(value, Sequence) and not isinstance(value, str | bytes):
                yield row, value
            else:
                self.reject(row, 'expected {"head": "...", "relation": "...", "tail": null}')

    def _split_header(self, rows: Iterator[Cells]) -> tuple[list[str] | None, Iterator[Cells]]:
        """The titles in the first row, if it is a header, and the other rows."""
        first = next(rows, None)
        if first is None:
            return None, iter(())
        titles = [text_of(cell) for cell in first[1]]
        has_header = self.options.header
        if has_header is None:
            has_header = is_header(titles) or self.options.names_columns
        return (titles, rows) if has_header else (None, chain([first], rows))

    def _positions_by_order(self, columns: Sequence[str]) -> dict[str, int]:
        if self.options.columns is None:
            return {column: position for position, column in enumerate(columns)}
        numbers = {column: int(title) - 1 for column, title in zip(COLUMNS, self.options.fact_titles, strict=True)}
        if min(numbers.values()) < 0:
            raise HarmoniumError(
                f"{self.name}: columns are numbered from 1; given: {','.join(self.options.fact_titles)}"
            )
        rest = [column for column in columns if column not in COLUMNS]
        return numbers | {column: max(numbers.values()) + 1 + index for index, column in enumerate(rest)}

    def _positions_by_title(self, titles: list[str], columns: Sequence[str], may_be_open: bool) -> dict[str, int]:
        words, location = title_words(titles), self.name if self.path is None else f"{self.name}:1"
        if self.options.columns is not None or is_header(words):
            chosen = choose_columns(titles, self.options, location)
            positions = {column: chosen[column] for column in COLUMNS}
        else:
            aliases = {column: (*ALIASES[column], *LABEL_ALIASES[column]) for column in COLUMNS}
            known = {column: [words.index(word) for word in aliases[column] if word in words] for column in COLUMNS}
            positions = {column: indices[0] for column, indices in known.items() if indices}
            if self.options.header and len(titles) == len(columns) and len(positions) < 2:
                return self._positions_by_order(columns)
            if len(positions) < 2 or (len(positions) < 3 and not may_be_open):
                raise HarmoniumError(
                    f"{self.name}: expected columns {', '.join(columns)}, found {', '.join(titles)}; rename them, or "
                    "choose them by name or number (--columns 1,2,3; in Python: columns=...)"
                )
        for column in columns:
            if column not in COLUMNS:
                if column not in words:
                    raise HarmoniumError(f"{location}: no column '{column}'; there are {', '.join(titles)}")
                positions[column] = words.index(column)
        return positions


def read_rows(source: Any, columns: Sequence[str] = COLUMNS, are_questions: bool = False) -> Iterator[Row]:
    """The rows of `FactReader`, with full locations such as "facts.tsv:7"."""
    reader = FactReader(source)
    return ((f"{reader.name}{row}", cells) for row, cells in reader.rows(columns, are_questions))


def reject_name(skipped: SkippedRows, vocabulary: Vocabulary, name: str, source: str, row: str) -> None:
    """Reject a row with a name that is not in a vocabulary, or there more than once; examples come with suggestions."""
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
    """Facts by the names of a graph, in chunks; the numbers of their rows, from 0, are added to `kept`."""
    reader = FactReader(source, on_bad, **options)

    def usable() -> Iterator[list[int]]:
        for number, (row, names) in enumerate(reader.rows()):
            if (ids := reader.ids(graph, row, names)) is not None:
                if kept is not None:
                    kept.append(number)
                yield ids

    rows = usable()
    while chunk := list(islice(rows, CHUNK)):
        if not reader.skipped.first_error:  # otherwise the rest is only counted
            yield Triples.from_rows(chunk)


def read_labelled(
    source: Any, graph: Graph, on_bad: OnBad | SkippedRows = "error", **options: Any
) -> tuple[Triples, Tensor]:
    """Facts and whether each is true (n,) bool, from a fourth column: 1 or true; -1, 0 or false."""
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


def fact_table(data: Any, columns: Sequence[str] = COLUMNS, are_questions: bool = False) -> pl.DataFrame:
    """These columns of facts in memory or of a file as text; one that questions lack is null, as empty cells are."""
    import polars as pl

    rows = [cells for _, cells in FactReader(data).rows(columns, may_be_open=are_questions)]
    texts = {column: [row[column] or None for row in rows] for column in columns}
    return pl.DataFrame(texts, schema=dict.fromkeys(columns, pl.String))
