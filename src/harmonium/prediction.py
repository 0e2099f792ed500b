"""Answers to open queries, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

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

    def to_json(self) -> dict[str, Any]:
        return {"rank": self.rank, "id": self.id, "name": self.name, "score": self.score, "known": self.known}


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


def answer(scorer: Scorer, graph: Graph, query: Query, top: int = 10, new_only: bool = False) -> list[Answer]:
    """The best candidates for the open slot, with those that are already facts marked (or left out)."""
    known = {}
    for split in SPLITS:
        for filler in graph.answers(query.slot, (split,)).of(query.triple)[1].tolist():
            known.setdefault(filler, split)
    with torch.no_grad():
        scores = steady(scorer).score_slot(query.slot, query.triple)[0]  # (n_candidates,)
    if new_only and known:
        scores[torch.tensor(list(known), device=scores.device)] = -torch.inf
    best = scores.topk(min(top, len(scores)))
    names = vocabulary(graph, query.slot)
    return [
        Answer(place, names.ids[index], names.name(index), score, known.get(index))
        for place, (index, score) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True), start=1)
        if score > -torch.inf
    ]
