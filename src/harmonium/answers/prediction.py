"""A prediction: the one kind of result of `predict`, `score` and `complete`, in Python, in tables and in files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.displayed import Table, percent


@dataclass(frozen=True)
class Prediction:
    """One fact as a run rates it: an answer to a query, a fact that was given, or one that the graph lacks.

    head, relation and tail are identifiers, which are unambiguous; `names` and `text` are to be read. Of an answer `id`
    and `name` are the entity (or relation) that fills the `open` slot.

    >>> answer = harmonium.predict("runs/demo", head="Austria", relation="borders")[0]
    >>> answer.name, answer.probability, answer.known
    """

    head: str
    relation: str
    tail: str
    score: float  # of what fills the open slot; larger is better, comparable among the answers to one query
    rank: float  # among the answers to the query, or in the list of missing facts; equal ones share the middle
    probability: float | None  # that the fact is true; None where not asked for or not fitted
    known: str | None  # the split in which this is already a fact, if any
    reason: str | None = None  # the strongest evidence in words, where it was asked for
    open: Slot = Slot.TAIL  # the slot that was asked for
    names: tuple[str, str, str] = ("", "", "")  # of head, relation and tail

    @property
    def id(self) -> str:
        """The identifier of what fills the open slot."""
        return str(getattr(self, self.open.value))

    @property
    def name(self) -> str:
        """The name of what fills the open slot."""
        return self.names[list(Slot).index(self.open)]

    @property
    def text(self) -> str:
        """The fact by name."""
        return ", ".join(self.names)

    @staticmethod
    def table(title: str, predictions: Sequence[Prediction]) -> Table:
        """As people read them: the answers to one query, or facts each for itself."""
        queries = {tuple(part for part in (p.head, p.relation, p.tail) if part != p.id) for p in predictions}
        if title and len(queries) == 1:
            return answer_table(title, predictions)
        columns = ["fact", "score", "probability", "rank", ""]
        rows: list[list[Any]] = [
            [p.text, p.score, percent(p.probability), f"{p.rank:g}", fact_status(p.known)] for p in predictions
        ]
        if any(p.reason for p in predictions):
            columns.append("reason")
            rows = [[*row, p.reason] for row, p in zip(rows, predictions, strict=True)]
        return Table(title, columns, rows, why_no_probabilities(predictions))

    def to_json(self) -> dict[str, Any]:
        return {
            "head": self.head,
            "relation": self.relation,
            "tail": self.tail,
            "probability": self.probability,
            "reason": self.reason,
            "known": self.known,
            "rank": self.rank,
            "score": self.score,
            "open": self.open.value,
            "name": self.name,
            "text": self.text,
        }


def answer_table(query: str, answers: Sequence[Prediction]) -> Table:
    """The answers to one query."""
    rows = [
        [
            int(a.rank) if a.rank.is_integer() else a.rank, a.name, a.score, fact_status(a.known),
            "" if a.known else percent(a.probability),
        ]
        for a in answers
    ]  # fmt: skip
    caption = why_no_probabilities([answer for answer in answers if not answer.known])
    return Table(f"({query})", ["rank", "answer", "score", "fact", "probability"], rows, caption)


def fact_status(split: str | None) -> str:
    """Whether the graph has a fact, and in which split."""
    return f"known ({split})" if split else "new"


def why_no_probabilities(predictions: Sequence[Prediction]) -> str | None:
    """Why there are no probabilities, if there are none."""
    if predictions and all(prediction.probability is None for prediction in predictions):
        return "no probabilities: switched off, or too few validation facts to fit them"
    return None


def vocabulary(graph: Graph, slot: Slot) -> Vocabulary:
    """The names that can fill a slot."""
    return graph.relations if slot is Slot.RELATION else graph.entities


def identifiers(graph: Graph, triple: Sequence[int]) -> tuple[str, str, str]:
    """Head, relation and tail by identifier, which is unambiguous where names repeat."""
    head, relation, tail = triple
    return graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail]


def to_predictions(
    graph: Graph, rows: Iterable[Sequence[int]], open_slot: Slot, *columns: Iterable[Any]
) -> list[Prediction]:
    """Triples of ids as predictions; the columns are score, rank, probability, known and, where there are any, reason."""
    predictions = []
    for row, score, rank, probability, known, *reason in zip(rows, *columns, strict=True):
        head, relation, tail = row
        ids = identifiers(graph, row)
        names = graph.entities.name(head), graph.relations.name(relation), graph.entities.name(tail)
        why = reason[0] if reason else None
        predictions.append(Prediction(*ids, score, rank, probability, known, why, open_slot, names))
    return predictions


def optional_floats(probabilities: Tensor | None, count: int) -> list[float | None]:
    """The probabilities of `count` facts, None for those that have none."""
    if probabilities is None:
        return [None] * count
    return [None if math.isnan(value) else value for value in probabilities.tolist()]
