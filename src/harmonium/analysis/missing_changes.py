"""How the list of the most probable missing facts changed between two runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.analysis.answer_changes import ProbabilityChanges, probability_changes
from harmonium.analysis.graph_changes import Listed
from harmonium.answers.calibration.fact_probability import FactCalibration, fact_calibration_for
from harmonium.answers.candidate_facts import CandidateSearch
from harmonium.answers.complete import find_missing
from harmonium.data.graph import Graph
from harmonium.data.joint_facts import JointFacts
from harmonium.data.triples import Slot, Triples
from harmonium.run.run import Run

LISTED = 100  # missing facts
MAX_PAIRS = 1 << 24  # of heads and tails that could be missing facts: of more, lists are made only if asked for
Progress = Callable[[int], None]
Fact = tuple[int, int, int]  # in joint ids


@dataclass(frozen=True)
class MissingChanges:
    """The most probable missing facts of both runs."""

    top: int  # length of the lists
    common: int  # facts in both
    entered: Listed
    left: Listed
    changed: ProbabilityChanges  # of the facts in either list that both runs can rate


def n_pairs(graph: Graph) -> int:
    """How many pairs of a head and a tail could be missing facts, about: the work of listing them."""
    heads, tails = (graph.slot_candidates(slot).offsets.diff() for slot in (Slot.HEAD, Slot.TAIL))
    return int((heads * tails).sum())


def compare_missing(
    facts: JointFacts, runs: tuple[Run, Run], length: int, top: int, progress: Progress | None = None
) -> MissingChanges:
    """The lists of the `length` most probable missing facts, as `complete` makes them."""
    raters = [_Rater.of(run, progress) for run in runs]
    symmetric = _symmetric_relations(facts, raters)
    lists = [rater.listed(facts, side, length, symmetric, progress) for side, rater in enumerate(raters)]
    union = {key: fact for listed in lists for key, (fact, _) in listed.items()}
    position = {key: number for number, key in enumerate(union)}
    triples = Triples.from_rows(list(union.values()))
    values = torch.stack(
        [
            rater.rate(facts, side, triples, [listed[key][1] if key in listed else None for key in union])
            for side, (rater, listed) in enumerate(zip(raters, lists, strict=True))
        ]
    )
    splits = _splits_of(facts, triples, symmetric)
    rejected = facts.joint.to_joint(1, facts.joint.graphs[1].rejected).to_rows().tolist()
    false = {_key(fact, symmetric) for fact in rejected}

    def rows(keys: list[Fact]) -> Listed:
        listed = []
        for key in keys:
            before, after = (None if value != value else value for value in values[:, position[key]].tolist())
            why = "recorded as false" if key in false else _reason(facts, splits.get(key, (0, 0)), union[key])
            listed.append(facts.joint.row(*union[key]) | {"before": before, "after": after, "why": why})
        return Listed.of(listed, top)

    entered = [key for key in lists[1] if key not in lists[0]]
    left = [key for key in lists[0] if key not in lists[1]]
    common = len(lists[0]) - len(left)
    return MissingChanges(length, common, rows(entered), rows(left), probability_changes(facts, triples, values, top))


def _symmetric_relations(facts: JointFacts, raters: Sequence[_Rater]) -> set[int]:
    """Relations, in joint ids, that are symmetric in either graph: both directions are one fact."""
    relations = set()
    for side, rater in enumerate(raters):
        ids = rater.search.traits.symmetric.nonzero()[:, 0]
        relations |= set((ids if side == 0 else facts.joint.relations.joint_of_second[ids]).tolist())
    return relations


def _key(fact: Sequence[int], symmetric: set[int]) -> Fact:
    """A fact, or the same for both directions of one of a symmetric relation."""
    head, relation, tail = fact
    return (min(head, tail), relation, max(head, tail)) if relation in symmetric else (head, relation, tail)


def _splits_of(facts: JointFacts, triples: Triples, symmetric: set[int]) -> dict[Fact, tuple[int, int]]:
    """Of facts that a graph has: the splits (bits) before and after, by key."""
    n = len(facts.joint.entities)
    pairs = torch.cat([triples.head * n + triples.tail, triples.tail * n + triples.head])
    rows = torch.isin(facts.triples.head * n + facts.triples.tail, pairs).nonzero()[:, 0]
    splits: dict[Fact, tuple[int, int]] = {}
    for fact, (before, after) in zip(
        facts.triples[rows].to_rows().tolist(), facts.splits[:, rows].T.tolist(), strict=True
    ):
        key = _key(fact, symmetric)
        earlier = splits.get(key, (0, 0))
        splits[key] = earlier[0] | before, earlier[1] | after
    return splits


def _reason(facts: JointFacts, splits: tuple[int, int], fact: list[int]) -> str:
    """Why a fact is in one list alone, if the graphs say so."""
    if splits[0] or splits[1]:
        return "now in the graph" if not splits[0] else "no longer in the graph" if not splits[1] else "in the graph"
    names = ((facts.joint.entities, fact[0]), (facts.joint.relations, fact[1]), (facts.joint.entities, fact[2]))
    if any(index >= len(vocabulary.first) for vocabulary, index in names):
        return "a new name"
    return "a removed name" if any(int(v.second_of_joint[index]) < 0 for v, index in names) else ""


@dataclass(frozen=True)
class _Rater:
    """Rates missing facts of one run as `complete` does."""

    search: CandidateSearch
    calibration: FactCalibration | None

    @classmethod
    def of(cls, run: Run, progress: Progress | None) -> _Rater:
        return cls(CandidateSearch.prepare(run.model, run.graph), fact_calibration_for(run, True, progress))

    def listed(
        self, facts: JointFacts, side: int, length: int, symmetric: set[int], progress: Progress | None
    ) -> dict[Fact, tuple[list[int], float]]:
        """The most probable missing facts in joint ids, by key, with their probability (NaN without a calibration)."""
        missing = find_missing(self.search, None, length, self.calibration, progress=progress)
        rows = facts.joint.to_joint(side, missing.triples).to_rows().tolist()
        ratings = [math.nan] * len(rows) if missing.probabilities is None else missing.probabilities.tolist()
        return {_key(row, symmetric): (row, rating) for row, rating in zip(rows, ratings, strict=True)}

    def rate(self, facts: JointFacts, side: int, triples: Triples, ratings: Sequence[float | None]) -> Tensor:
        """(n,) float64: probabilities of facts in joint ids, some of which are rated already.

        NaN for facts that are known, excluded or about other names, and without a calibration.
        """
        values = [math.nan if rating is None else rating for rating in ratings]
        of_side, expressible = facts.joint.from_joint(side, triples)
        for row, fact in zip(expressible.nonzero()[:, 0].tolist(), of_side.to_rows().tolist(), strict=True):
            if ratings[row] is None and self.calibration is not None:
                candidate = self.search.of_pair(*fact)
                values[row] = float(self.calibration.log_odds(candidate).sigmoid()[0]) if len(candidate) else math.nan
        return torch.tensor(values, dtype=torch.float64)
