"""The queue of known facts that may be wrong, the most likely first: "right" keeps a fact for good, "wrong" removes it.

Judgements are those of any review: an update by them removes rejected facts, and `audit` does not list accepted ones again.
They carry no probability of the run, as they say nothing about how right the probabilities of missing facts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from harmonium.answers.audit.audit import find_suspects
from harmonium.answers.audit.suspect import Suspect, in_words
from harmonium.answers.candidate_facts import FEATURES, CandidateFacts, Progress
from harmonium.answers.open_run import OpenRun
from harmonium.review.queue import ReviewQueue
from harmonium.review.store import SUSPECT, FactIds, Judgement, Shown
from harmonium.runtime.displayed import percent


@dataclass(frozen=True)
class SuspectQueue(ReviewQueue):
    """Known facts that may be wrong."""

    suspects: dict[FactIds, Suspect] = field(default_factory=dict)

    @classmethod
    def of(
        cls, opened: OpenRun, top: int, judgements: Sequence[Judgement] = (), progress: Progress | None = None
    ) -> SuspectQueue:
        """The `top` suspects of an audit that nobody has accepted or rejected."""
        decided = [each.fact for each in judgements if each.verdict != "unsure"]
        listed = in_words(opened, find_suspects(opened, progress), top, decided, progress).suspects
        by_fact = {(each.head, each.relation, each.tail): each for each in listed}
        triples = opened.graph.facts()[:0]
        if by_fact:
            triples = type(triples).cat([opened.graph.triple(*fact) for fact in by_fact])
        n, run = len(by_fact), opened.run.fingerprint
        nothing = torch.zeros(n, dtype=torch.float64)
        facts = CandidateFacts(triples, nothing, torch.zeros(n, len(FEATURES), dtype=torch.float64))
        everything = opened.graph.facts()
        counts = torch.cat([everything.head, everything.tail]).bincount(minlength=opened.graph.n_entities)
        shown = [
            Shown(fact, each.text, None, None, rank, SUSPECT, run)
            for rank, (fact, each) in enumerate(by_fact.items(), 1)
        ]
        known_facts = counts[triples.head] + counts[triples.tail]
        nobody: list[float | None] = [None] * n
        queue = opened.graph, opened.search(), facts, nothing, nobody, nobody, known_facts, shown
        return cls(*queue, order="use", top=top, judged_before=0, suspects=by_fact)

    def open_facts(self, judgements: Sequence[Judgement]) -> list[int]:
        """Positions of the facts that nobody has judged, in order."""
        judged = {judgement.fact for judgement in judgements}
        return [position for position, shown in enumerate(self.shown) if shown.fact not in judged]

    def why(self, fact: FactIds) -> str | None:
        """Why a fact of the queue is suspected, in words."""
        suspect = self.suspects.get(fact)
        return None if suspect is None else f"{percent(suspect.probability)} wrong, {suspect.status}: {suspect.reason}"
