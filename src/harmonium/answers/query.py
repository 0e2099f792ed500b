"""Queries by name: a fact of which one slot is open, or two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harmonium.answers.prediction import vocabulary
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    from harmonium.data.tables.skipped_rows import OnBad, SkippedRows

WHOLE = "; `score` rates whole facts"


@dataclass(frozen=True)
class Query:
    """A triple with one open slot; or with two, which asks for the facts with the one given name that the graph lacks."""

    open: tuple[Slot, ...]
    triple: Triples  # one row; open slots hold 0
    text: str  # such as "Switzerland, official language, ?"
    row: int = 0  # in the table of queries

    @property
    def slot(self) -> Slot:
        """The open slot of a query that has one."""
        return self.open[0]


def ask(graph: Graph, head: Any = None, relation: Any = None, tail: Any = None) -> Query:
    """A query from one or two names."""
    names = {Slot.HEAD: head, Slot.RELATION: relation, Slot.TAIL: tail}
    n_given = 3 - list(names.values()).count(None)
    if n_given not in (1, 2):
        raise HarmoniumError(
            f"give two of head, relation and tail, or one of them for its most probable missing facts; {n_given} given"
            f"{WHOLE if n_given == 3 else ''}"
        )
    ids = [0 if name is None else vocabulary(graph, slot).index(name) for slot, name in names.items()]
    return _query(graph, names, ids)


def _query(graph: Graph, names: Mapping[Slot, Any], ids: Sequence[int], row: int = 0) -> Query:
    words = [
        "?" if name is None else vocabulary(graph, slot).name(index)
        for (slot, name), index in zip(names.items(), ids, strict=True)
    ]
    is_open = tuple(slot for slot, name in names.items() if name is None)
    return Query(is_open, Triples.from_rows([list(ids)]), ", ".join(words), row)


def read_queries(source: Any, graph: Graph, on_bad: OnBad | SkippedRows = "error", **options: Any) -> Iterator[Query]:
    """The queries of a file or a table of head, relation, tail (data/tables/fact_file.py), one of them empty or '?'."""
    from harmonium.data.tables.columns import COLUMNS  # imports polars, which a query by name does not need
    from harmonium.data.tables.fact_file import FactReader

    reader = FactReader(source, on_bad, **options)
    for number, (row, cells) in enumerate(reader.rows(may_be_open=True)):
        names = {column: None if cells[column] in ("", "?") else cells[column] for column in COLUMNS}
        n_given = 3 - list(names.values()).count(None)
        if n_given != 2:
            message = f"give exactly two of head, relation and tail; {n_given} given{WHOLE if n_given == 3 else ''}"
            reader.reject(row, message, ", ".join(cells.values()))
        elif (ids := reader.ids(graph, row, names)) is not None and not reader.skipped.first_error:
            yield _query(graph, dict(zip(Slot, names.values(), strict=True)), ids, number)
