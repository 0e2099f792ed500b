"""Answers to open queries, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.calibration import Calibration, count_others, holds
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Scorer, best, chunk_size, inside, rank, steady, weigh
from harmonium.graph import SPLITS, Graph, Slot, Triples


@dataclass(frozen=True)
class Query:
    """A triple with exactly one slot open."""

    slot: Slot
    triple: Triples  # one row; the open slot holds 0
    text: str  # such as "Switzerland, official language, ?"


@dataclass(frozen=True)
class Answer:
    """One candidate for the open slot."""

    rank: int
    id: str
    name: str
    score: float  # harmony above that of the zero triplet
    known: str | None  # the split in which this is already a fact, if any
    probability: float | None = None  # that it is true (calibration.py), where that was asked for and can be told

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ask(graph: Graph, head: str | None = None, relation: str | None = None, tail: str | None = None) -> Query:
    """A query from names; leave exactly one of the three out."""
    given = {Slot.HEAD: head, Slot.RELATION: relation, Slot.TAIL: tail}
    missing = [slot for slot, name in given.items() if name is None]
    if len(missing) != 1:
        raise HarmoniumError(f"give exactly two of head, relation and tail; {3 - len(missing)} given")
    row = [0 if name is None else vocabulary(graph, slot).index(name) for slot, name in given.items()]
    names = [
        "?" if name is None else vocabulary(graph, slot).name(row[i]) for i, (slot, name) in enumerate(given.items())
    ]
    return Query(missing[0], Triples.from_rows([row]), ", ".join(names))


def vocabulary(graph: Graph, slot: Slot):
    """The names that can stand in a slot."""
    return graph.relations if slot is Slot.RELATION else graph.entities


def answer(
    scorer: Scorer,
    graph: Graph,
    query: Query,
    top: int = 10,
    new_only: bool = False,
    calibration: Calibration | None = None,
    allowed: Tensor | None = None,
) -> list[Answer]:
    """The best candidates for the open slot, with those that are already facts marked (or left out)."""
    return next(answer_all(scorer, graph, query.slot, query.triple, top, new_only, calibration, allowed))


def answer_all(
    scorer: Scorer,
    graph: Graph,
    slot: Slot,
    queries: Triples,
    top: int = 10,
    new_only: bool = False,
    calibration: Calibration | None = None,
    allowed: Tensor | None = None,
    typed: bool = False,
) -> Iterator[list[Answer]]:
    """The answers to each query with that slot open, one after the other; memory holds one chunk of them.

    `allowed` (m,) are the only candidates; `typed` leaves those seen in that slot of the query's relation.
    """
    if typed and slot is Slot.RELATION:
        raise HarmoniumError("a relation has no type; ask for the head or the tail, or leave the type filter out")
    known, names = graph.answers(slot, queries=queries), vocabulary(graph, slot)
    by_split = {split: graph.answers(slot, (split,), queries) for split in SPLITS}
    scorer, fillers = steady(scorer), graph.fillers(slot) if typed else None
    barred = None if allowed is None else torch.ones(len(names), dtype=torch.bool).index_fill(0, allowed, False)
    for part in queries.chunks(chunk_size(scorer, slot, queries) if len(queries) else 1):
        own, typed_pairs = known.of(part), fillers.lookup(part.relation) if typed else None

        def sink(start: int, scores: Tensor, own: tuple = own, typed_pairs: tuple | None = typed_pairs) -> None:
            if barred is not None:
                scores.masked_fill_(barred[start : start + scores.shape[1]], -torch.inf)
            if typed_pairs is not None:
                outside = torch.ones_like(scores, dtype=torch.bool)
                outside[inside(typed_pairs, start, scores.shape[1])] = False
                scores.masked_fill_(outside, -torch.inf)
            if new_only:
                scores[inside(own, start, scores.shape[1])] = -torch.inf

        found = best(scorer, slot, part, top, sink)
        marks = {split: holds(facts, slot, part, found.indices) for split, facts in by_split.items()}
        others = own[0].bincount(minlength=len(part))[:, None] - sum(marks.values()).clamp(max=1)
        chance = calibration and calibration.probabilities(slot, found.values, found.total, others)
        for row in range(len(part)):
            ids, values = found.indices[row].tolist(), found.values[row].tolist()
            chances = [None] * len(ids) if chance is None else chance[row].tolist()
            splits = [next((s for s in SPLITS if marks[s][row, column]), None) for column in range(len(ids))]
            yield [
                Answer(place, names.ids[index], names.name(index), score, split, probability)
                for place, (index, score, split, probability) in enumerate(
                    zip(ids, values, splits, chances, strict=True), start=1
                )
                if score > -torch.inf
            ]


@dataclass(frozen=True)
class Scored:
    """A closed triple: what the model thinks of it, as the answer to (head, relation, ?) and to (?, relation, tail)."""

    triple: tuple[str, str, str]  # identifiers
    text: str
    score: float
    probability: float | None  # as the tail of its head
    rank: float  # likewise, among those that are not known facts; equals share the middle
    head_probability: float | None
    head_rank: float
    known: str | None

    def to_json(self) -> dict[str, Any]:
        names = dict(zip((slot.value for slot in Slot), self.triple, strict=True))
        return names | {key: value for key, value in asdict(self).items() if key != "triple"}


def score_all(
    scorer: Scorer, graph: Graph, triples: Triples, calibration: Calibration | None = None
) -> Iterator[Scored]:
    """Each triple with its score, probabilities and ranks, one after the other."""
    sides = [_own(scorer, graph, slot, triples, calibration) for slot in (Slot.TAIL, Slot.HEAD)]
    splits = [(split, graph.answers(Slot.TAIL, (split,), triples).contain(triples).tolist()) for split in SPLITS]
    for row, ((h, r, t), text) in enumerate(zip(triples.rows().tolist(), graph.spell(triples), strict=True)):
        known = next((split for split, inside in splits if inside[row]), None)
        (score, chance, rank), (_, head_chance, head_rank) = (side[row] for side in sides)
        names = graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t]
        yield Scored(names, ", ".join(text), score, chance, rank, head_chance, head_rank, known)


def _own(
    scorer: Scorer, graph: Graph, slot: Slot, triples: Triples, calibration: Calibration | None
) -> list[tuple[float, float | None, float]]:
    """Score, probability and filtered rank of what stands in a slot of each triple."""
    if not len(triples):
        return []
    scorer, known = steady(scorer), graph.answers(slot, queries=triples)
    own, total = weigh(scorer, slot, triples)
    chance = calibration and calibration.probabilities(slot, own, total, count_others(known, triples))
    chances = [None] * len(triples) if chance is None else chance.tolist()
    return list(zip(own.tolist(), chances, rank(scorer, triples, slot, known).values().tolist(), strict=True))
