"""Queries with one open slot, by name, and their answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harmonium.data.graph import Graph
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.fact_file import FactReader
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.runtime.displayed import Table, percent

WHOLE = "; `score` rates whole facts"


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

    @staticmethod
    def table(title: str, answers: Sequence["Answer"]) -> Table:
        """Answers as people read them."""
        rows = [
            [
                int(a.rank) if a.rank.is_integer() else a.rank, a.name, a.score, fact_status(a.known),
                "" if a.known else percent(a.probability),
            ]
            for a in answers
        ]  # fmt: skip
        caption = why_no_probabilities([answer.probability for answer in answers if not answer.known])
        return Table(f"({title})" if title else "", ["rank", "answer", "score", "fact", "probability"], rows, caption)

    def to_json(self) -> dict[str, Any]:
        """Everything but the index, which means nothing outside the model."""
        return {key: value for key, value in asdict(self).items() if key != "index"}


def fact_status(split: str | None) -> str:
    """Whether the graph has a fact, and in which split."""
    return f"known ({split})" if split else "new"


def why_no_probabilities(probabilities: Sequence[float | None]) -> str | None:
    """Why there are no probabilities, if there are none."""
    if probabilities and all(probability is None for probability in probabilities):
        return "no probabilities: switched off, or too few validation facts to fit them"
    return None


def ask(graph: Graph, head: str | None = None, relation: str | None = None, tail: str | None = None) -> Query:
    """A query from two names; exactly one of the three slots stays open."""
    names = {Slot.HEAD: head, Slot.RELATION: relation, Slot.TAIL: tail}
    n_given = 3 - list(names.values()).count(None)
    if n_given != 2:
        hint = WHOLE if n_given == 3 else ""
        raise HarmoniumError(f"give exactly two of head, relation and tail; {n_given} given{hint}")
    ids = [0 if name is None else vocabulary(graph, slot).index(name) for slot, name in names.items()]
    return _query(graph, names, ids)


def _query(graph: Graph, names: Mapping[Any, str | None], ids: Sequence[int]) -> Query:
    given = dict(zip(Slot, names.values(), strict=True))
    open_slot = next(slot for slot, name in given.items() if name is None)
    words = [
        "?" if name is None else vocabulary(graph, slot).name(index)
        for (slot, name), index in zip(given.items(), ids, strict=True)
    ]
    return Query(open_slot, Triples.from_rows([ids]), ", ".join(words))


def read_queries(source: Any, graph: Graph, on_bad: OnBad | SkippedRows = "error", **options: Any) -> Iterator[Query]:
    """The queries of a file or a table of head, relation, tail (data/tables/fact_file.py), one of them empty or '?'."""
    reader = FactReader(source, on_bad, **options)
    for row, cells in reader.rows(may_be_open=True):
        names = {column: None if cells[column] in ("", "?") else cells[column] for column in COLUMNS}
        n_given = 3 - list(names.values()).count(None)
        if n_given != 2:
            message = f"give exactly two of head, relation and tail; {n_given} given{WHOLE if n_given == 3 else ''}"
            reader.reject(row, message, ", ".join(cells.values()))
        elif (ids := reader.ids(graph, row, names)) is not None and not reader.skipped.first_error:
            yield _query(graph, names, ids)


def vocabulary(graph: Graph, slot: Slot) -> Vocabulary:
    """The names that can fill a slot."""
    return graph.relations if slot is Slot.RELATION else graph.entities


def identifiers(graph: Graph, triple: Sequence[int]) -> tuple[str, str, str]:
    """Head, relation and tail by identifier, which is unambiguous where names repeat."""
    head, relation, tail = triple
    return graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail]
