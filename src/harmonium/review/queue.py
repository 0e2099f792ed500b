"""The queue of a review: predicted facts in the order in which they are judged.

Two orders, with p the probability of a fact:

    use    p * log(2 + sqrt(h * t))   h, t = known facts of its head and of its tail: probable and far-reaching facts first,
                                      between entities that both are well connected
    teach  H(p) / sqrt(1 + j)         H = entropy, j = facts of its relation judged so far: what is most uncertain first,
                                      in relations of which least was judged

A fact that anyone accepted or rejected never comes back, nor does the other direction of a symmetric one. Where a
query has one answer, its best candidate is asked for; the next best follows when that was rejected, and none when it
was accepted. Facts that somebody was unsure of come last: first to other reviewers, then, the oldest first, to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from harmonium.answers.calibration.fact_probability import FactCalibration, uncalibrated_log_odds
from harmonium.answers.candidate_facts import CandidateFacts, CandidateSearch, Progress, one_per_slot
from harmonium.answers.complete import best_of
from harmonium.answers.prediction import identifiers
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.review.judgements import by_fact
from harmonium.review.store import FactIds, Judgement, ReviewStore, Shown

Order = Literal["use", "teach"]
ORDERS: tuple[Order, ...] = get_args(Order)
SPARE_CANDIDATES = (
    3  # candidates kept for each fact of the queue: those that answer the same query follow a rejected one
)


def use_value(probability: Tensor, of_head: Tensor, of_tail: Tensor) -> Tensor:
    """(n,): how useful it is to judge facts of this probability, whose heads and tails have so many known facts."""
    return probability * (2.0 + (of_head * of_tail).double().sqrt()).log()


def teach_value(probability: Tensor, judged: Tensor) -> Tensor:
    """(n,): how much is learned from facts of this probability, of whose relation so many were judged."""
    entropy: Tensor = torch.special.entr(probability) + torch.special.entr(1 - probability)
    return entropy / (1.0 + judged).sqrt()


@dataclass(frozen=True)
class Offer:
    """The fact that a reviewer is to judge, if there is one, and how many are left."""

    shown: Shown | None
    triple: tuple[int, int, int] | None
    known_facts: int  # of its head and of its tail
    earlier: list[Judgement]  # of this fact, all unsure
    left: int  # facts that nobody has judged, this one included
    waiting: int  # facts that other reviewers are judging now


@dataclass(frozen=True)
class ReviewQueue:
    """Predicted facts of a run, the most valuable first."""

    graph: Graph
    search: CandidateSearch
    facts: CandidateFacts
    log_odds: Tensor  # (n,); of no meaning without probabilities, except for their order
    probabilities: list[float | None]  # as shown
    uncorrected: list[float | None]
    known_facts: Tensor  # (n,) of head and tail
    shown: list[Shown]
    order: Order
    top: int
    judged_before: int  # facts of the queue that had been judged when it was made

    @classmethod
    def build(
        cls,
        graph: Graph,
        search: CandidateSearch,
        calibration: FactCalibration | None,
        run: str,
        order: Order = "use",
        top: int = 1000,
        judgements: Sequence[Judgement] = (),
        progress: Progress | None = None,
    ) -> ReviewQueue:
        """Search all relations for the `top` most valuable facts beside those of `judgements`.

        `run` is the checksum of the run.
        """
        if order not in ORDERS:
            raise HarmoniumError(f"the order of a queue is one of {', '.join(ORDERS)}, not '{order}'")
        if calibration is None and order == "teach":
            raise HarmoniumError(
                "the order 'teach' needs probabilities, and the graph has too few validation facts; use --order use"
            )
        all_facts = graph.facts()
        counts = torch.cat([all_facts.head, all_facts.tail]).bincount(minlength=graph.n_entities)
        size = SPARE_CANDIDATES * top + len(judgements)
        best = CandidateFacts.cat([]), torch.empty(0, dtype=torch.float64)
        for relation in search.relations():
            facts = search.of_relation(relation, size, progress=progress)
            best = best_of([best, (facts, _value(facts, calibration, order, counts))], size)
        queue = cls._of(graph, search, best[0], calibration, run, order, top, counts)
        return replace(queue, judged_before=queue.count_judged(judgements))

    @classmethod
    def _of(
        cls,
        graph: Graph,
        search: CandidateSearch,
        facts: CandidateFacts,
        calibration: FactCalibration | None,
        run: str,
        order: Order,
        top: int,
        counts: Tensor,
    ) -> ReviewQueue:
        probabilities: list[float | None] = [None] * len(facts)
        uncorrected, log_odds = probabilities, uncalibrated_log_odds(facts)
        if calibration is not None:
            log_odds = calibration.log_odds(facts)
            probabilities = list(log_odds.sigmoid().tolist())
            uncorrected = list(calibration.uncorrected().log_odds(facts).sigmoid().tolist())
        rows, shown = facts.triples.to_rows().tolist(), []
        texts = graph.names_of(facts.triples)
        for rank, (row, names) in enumerate(zip(rows, texts, strict=True), start=1):
            rated = probabilities[rank - 1], uncorrected[rank - 1]
            shown.append(Shown(identifiers(graph, row), " · ".join(names), *rated, rank, order, run))
        known_facts = counts[facts.triples.head] + counts[facts.triples.tail]
        return cls(graph, search, facts, log_odds, probabilities, uncorrected, known_facts, shown, order, top, 0)

    def next(self, store: ReviewStore, reviewer: str, first: FactIds | None = None) -> Offer:
        """The next fact for a reviewer, which no other one gets meanwhile: `first`, if it is open, such as after undoing."""
        judgements = store.judgements()
        fresh = self.open_facts(judgements)
        again = self._unsure(judgements, reviewer)
        wanted = [self.shown[position] for position in (*fresh, *again)]
        if first is not None and (earlier := self.of_fact(first)) is not None:
            wanted.insert(0, earlier)
        shown = store.claim(reviewer, wanted)
        if shown is None:
            return Offer(None, None, 0, [], 0, len(fresh) + len(again))
        assert shown.rank is not None, "facts of the queue have a rank"
        head, relation, tail = self.facts.triples[[shown.rank - 1]].to_rows()[0].tolist()
        before = [judgement for judgement in judgements if judgement.fact == shown.fact]
        known_facts = int(self.known_facts[shown.rank - 1])
        return Offer(shown, (head, relation, tail), known_facts, before, len(fresh), 0)

    def open_facts(self, judgements: Sequence[Judgement]) -> list[int]:
        """Positions of the facts that nobody has judged, in order; of a query with one answer the best candidate."""
        judged = {key for judgement in judgements for key in self.directions(judgement.fact)}
        positions = [i for i, shown in enumerate(self.shown) if shown.fact not in judged]
        facts, log_odds = self.facts[torch.tensor(positions, dtype=torch.int64)], self.log_odds[positions]
        accepted = self._accepted(judgements)
        first = torch.full((len(accepted),), torch.inf, dtype=torch.float64)
        features = facts.features.new_zeros(len(accepted), facts.features.shape[1])
        competing = CandidateFacts.cat([CandidateFacts(accepted, first, features), facts])
        listed = one_per_slot(competing, torch.cat([first, log_odds]), self.search.traits)[len(accepted) :]
        remaining = [position for position, kept in zip(positions, listed.tolist(), strict=True) if kept]
        done = self.count_judged(judgements) - self.judged_before
        return self._in_order(remaining, judgements)[: max(0, self.top - done)]

    def count_judged(self, judgements: Sequence[Judgement]) -> int:
        """How many facts of the queue were judged, unsure or not."""
        judged = {judgement.fact for judgement in judgements}
        return sum(shown.fact in judged for shown in self.shown)

    def _in_order(self, positions: list[int], judgements: Sequence[Judgement]) -> list[int]:
        """In the order of the queue as it was made; when it is to teach, as it is now."""
        if self.order == "use" or not positions:
            return positions
        judged = Counter(fact.fact[1] for fact in by_fact(judgements))
        counts = torch.tensor([judged[self.shown[position].fact[1]] for position in positions])
        values = teach_value(self.log_odds[positions].sigmoid(), counts)
        return [positions[i] for i in values.argsort(descending=True, stable=True).tolist()]

    def _unsure(self, judgements: Sequence[Judgement], reviewer: str) -> list[int]:
        """Positions of the facts of which all judgements are unsure: first those that this reviewer has not judged."""
        position = {shown.fact: i for i, shown in enumerate(self.shown)}
        others, mine = list[tuple[int, int]](), list[tuple[int, int]]()
        for fact in by_fact(judgements):
            if fact.verdict == "unsure" and fact.fact in position:
                of_reviewer = [judgement.id for judgement in fact.judgements if judgement.reviewer == reviewer]
                (mine if of_reviewer else others).append(
                    (max(of_reviewer, default=fact.judgements[0].id), position[fact.fact])
                )
        return [i for _, i in (*sorted(others), *sorted(mine))]

    def _accepted(self, judgements: Sequence[Judgement]) -> Triples:
        """Accepted facts whose names this graph has: they are answers to their queries."""
        rows = []
        for fact in by_fact(judgements):
            matches = [self.graph.entities.find(fact.fact[0]), self.graph.relations.find(fact.fact[1])]
            matches.append(self.graph.entities.find(fact.fact[2]))
            if fact.verdict == "accepted" and all(len(match) == 1 for match in matches):
                rows.append([match[0] for match in matches])
        return Triples.from_rows(rows)

    def directions(self, fact: FactIds) -> Iterable[FactIds]:
        """A fact, and its other direction if the relation is symmetric."""
        head, relation, tail = fact
        matches = self.graph.relations.find(relation)
        is_symmetric = len(matches) == 1 and bool(self.search.traits.symmetric[matches[0]])
        return (fact, (tail, relation, head)) if is_symmetric else (fact,)

    def of_fact(self, fact: FactIds) -> Shown | None:
        """A fact of the queue by its identifiers."""
        return next((shown for shown in self.shown if shown.fact == fact), None)


def _value(facts: CandidateFacts, calibration: FactCalibration | None, order: Order, counts: Tensor) -> Tensor:
    """(n,): what the order of the queue ranks candidates by before anything is judged."""
    if calibration is None:
        return uncalibrated_log_odds(facts)
    probability = calibration.log_odds(facts).sigmoid()
    if order == "teach":
        return teach_value(probability, torch.zeros_like(probability))
    return use_value(probability, counts[facts.triples.head], counts[facts.triples.tail])
