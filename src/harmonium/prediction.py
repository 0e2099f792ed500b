"""Answers to open queries, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.calibration import Calibration, holds, scored
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Scorer, steady
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
    known, names = graph.answers(slot), vocabulary(graph, slot)
    by_split = {split: graph.answers(slot, (split,)) for split in SPLITS}
    fillers = graph.fillers(slot) if typed else None
    for part, scores in scored(steady(scorer), graph, slot, queries):
        total, own = scores.logsumexp(1, keepdim=True), known.of(part)
        outside = torch.zeros_like(scores, dtype=torch.bool)
        if allowed is not None:
            outside = torch.ones(scores.shape[1], dtype=torch.bool).index_fill(0, allowed, False).expand_as(scores)
        if fillers is not None:
            outside = outside | torch.ones_like(scores, dtype=torch.bool).index_put(
                fillers.lookup(part.relation), torch.tensor(False)
            )
        if new_only:
            outside = outside.index_put(own, torch.tensor(True))
        best = scores.masked_fill(outside, -torch.inf).topk(min(top, scores.shape[1]))
        marks = {split: holds(facts, slot, part, best.indices) for split, facts in by_split.items()}
        others = own[0].bincount(minlength=len(part))[:, None] - sum(marks.values()).clamp(max=1)
        chance = calibration and calibration.probabilities(slot, best.values, total, others)
        for row in range(len(part)):
            ids, values = best.indices[row].tolist(), best.values[row].tolist()
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
    splits = [(split, graph.answers(Slot.TAIL, (split,)).contain(triples).tolist()) for split in SPLITS]
    for row, ((h, r, t), text) in enumerate(zip(triples.rows().tolist(), graph.spell(triples), strict=True)):
        known = next((split for split, inside in splits if inside[row]), None)
        (score, chance, rank), (_, head_chance, head_rank) = (side[row] for side in sides)
        names = graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t]
        yield Scored(names, ", ".join(text), score, chance, rank, head_chance, head_rank, known)


def _own(
    scorer: Scorer, graph: Graph, slot: Slot, triples: Triples, calibration: Calibration | None
) -> list[tuple[float, float | None, float]]:
    """Score, probability and filtered rank of what stands in a slot of each triple."""
    known, found = graph.answers(slot), []
    for part, scores in scored(steady(scorer), graph, slot, triples):
        total, answered = scores.logsumexp(1), known.of(part)
        own = scores.gather(1, part[slot][:, None])
        others = answered[0].bincount(minlength=len(part)) - known.contain(part).long()
        scores[answered] = -torch.inf
        scores.scatter_(1, part[slot][:, None], -torch.inf)
        rank = 1 + (scores > own).sum(1) + (scores == own).sum(1) / 2
        chance = calibration and calibration.probabilities(slot, own[:, 0], total, others)
        chances = [None] * len(part) if chance is None else chance.tolist()
        found += zip(own[:, 0].tolist(), chances, rank.tolist(), strict=True)
    return found
