"""Queries with one open slot, by name, and their answers."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harmonium.data.columns import COLUMNS
from harmonium.data.fact_file import read_rows
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.errors import HarmoniumError, error_at


@dataclass(frozen=True)
class Query:
    """A triple with exactly one open slot."""

    slot: Slot
    triple: Triples  # one row; the open slot holds 0
    text: str  # such as "Switzerland, official language, ?"


@dataclass(frozen=True)
class Answer:
    """One candidate for the open slot."""

    rank: float  # among the answers to the query; equal ones share the middle of their ranks
    index: int  # the entity id in the model's tables (for an open relation: the relation id)
    id: str
    name: str
    score: float  # harmony above that of the zero triplet
    known: str | None  # the split in which this is already a fact, if any
    probability: float | None = None  # calibrated (probability.py); None where not asked for or not fitted

    def to_json(self) -> dict[str, Any]:
        """Everything but the index, which means nothing outside the model."""
        return {key: value for key, value in asdict(self).items() if key != "index"}


def ask(graph: Graph, head: str | None = None, relation: str | None = None, tail: str | None = None) -> Query:
    """A query from two names; exactly one of the three slots stays open."""
    names = {Slot.HEAD: head, Slot.RELATION: relation, Slot.TAIL: tail}
    missing = [slot for slot, name in names.items() if name is None]
    if len(missing) != 1:
        raise HarmoniumError(f"give exactly two of head, relation and tail; {3 - len(missing)} given")
    row, words = [], []
    for slot, name in names.items():
        index = 0 if name is None else vocabulary(graph, slot).index(name)
        row.append(index)
        words.append("?" if name is None else vocabulary(graph, slot).name(index))
    return Query(missing[0], Triples.from_rows([row]), ", ".join(words))


def read_queries(path: str | Path, graph: Graph) -> Iterator[Query]:
    """The queries of a file of head, relation, tail (data/fact_file.py), one of them empty or '?'."""
    for location, cells in read_rows(Path(path)):
        names = {column: None if cells[column] in ("", "?") else cells[column] for column in COLUMNS}
        with error_at(location):
            query = ask(graph, **names)
        yield query


def vocabulary(graph: Graph, slot: Slot) -> Vocabulary:
    """The names that can fill a slot."""
    return graph.relations if slot is Slot.RELATION else graph.entities


def identifiers(graph: Graph, triple: Sequence[int]) -> tuple[str, str, str]:
    """Head, relation and tail by identifier, which is unambiguous where names repeat."""
    head, relation, tail = triple
    return graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail]
