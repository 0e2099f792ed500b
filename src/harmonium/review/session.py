"""A review of one run: its queue, its judgements, and the evidence for each fact that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harmonium.answers.calibration.fact_probability import FactCalibration
from harmonium.answers.candidate_facts import Progress
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import identifiers
from harmonium.answers.reasons import find_reasons
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.review import facts_by_hand
from harmonium.review.judgements import by_fact, default_path
from harmonium.review.pending import PendingFacts, pending_facts
from harmonium.review.precision import ReviewSummary
from harmonium.review.queue import Offer, Order, ReviewQueue
from harmonium.review.store import BY_HAND, FactIds, Judgement, ReviewStore, Shown, Verdict
from harmonium.review.suspects import SuspectQueue
from harmonium.run.run import Run


@dataclass(frozen=True, eq=False)
class Review:
    """Reviewers judge the predicted facts of a run; threads may share it."""

    opened: OpenRun
    store: ReviewStore
    queue: ReviewQueue
    calibration: FactCalibration | None

    @classmethod
    def open(
        cls,
        run: Run | OpenRun,
        path: str | Path | None = None,
        *,
        order: Order = "use",
        top: int = 1000,
        suspects: bool = False,
        progress: Progress | None = None,
    ) -> Review:
        """Open or make a file of judgements (default: beside the run folder), and search for facts to judge.

        `suspects`: known facts that may be wrong, instead of facts that the graph lacks.
        """
        opened = open_run(run)
        store = ReviewStore.open(default_path(opened.run) if path is None else path)
        try:
            return cls.start(opened, store, order=order, top=top, suspects=suspects, progress=progress)
        except BaseException:
            store.close()
            raise

    @classmethod
    def start(
        cls,
        run: Run | OpenRun,
        store: ReviewStore,
        *,
        order: Order = "use",
        top: int = 1000,
        suspects: bool = False,
        progress: Progress | None = None,
    ) -> Review:
        """Search for facts to judge, with judgements that are open already."""
        opened = open_run(run)
        calibration, fingerprint = opened.fact_calibration(progress=progress), opened.run.fingerprint
        judged = store.judgements()
        if suspects:
            return cls(opened, store, SuspectQueue.of(opened, top, judged, progress), calibration)
        queue = ReviewQueue.build(opened.graph, opened.search(), calibration, fingerprint, order, top, judged, progress)
        return cls(opened, store, queue, calibration)

    @property
    def run(self) -> Run:
        return self.opened.run

    def next(self, reviewer: str, first: FactIds | None = None) -> Offer:
        return self.queue.next(self.store, reviewer, first)

    def reason(self, triple: tuple[int, int, int]) -> str:
        """The strongest evidence for a fact in the graph; of a suspect what speaks against it."""
        if isinstance(self.queue, SuspectQueue) and (why := self.queue.why(identifiers(self.run.graph, triple))):
            return why
        (reason,) = find_reasons(self.opened.evidence, Triples.from_rows([triple]))
        return reason.text

    def judge(self, reviewer: str, fact: FactIds, verdict: Verdict, comment: str = "") -> Judgement:
        """Keep a judgement of a fact of the queue, or of any other one that the graph does not have."""
        return self.store.judge(reviewer, self.queue.of_fact(fact) or self._rate(fact), verdict, comment)

    def change(
        self, reviewer: str, fact: FactIds, verdict: Verdict, comment: str = "", allow_new: bool = False
    ) -> Judgement:
        """Keep a judgement of any fact, by hand: accepted ones are to be added to the graph, rejected ones removed.

        With `allow_new`, facts to be added may name entities and relations that the graph does not have. A person chose
        the fact, so its probability is not kept: such judgements say nothing about how right probabilities are.
        """
        judged = {judgement.fact for judgement in self.store.judgements()}
        ids = facts_by_hand.identify(self.run.graph, fact, allow_new and verdict == "accepted", judged)
        if ids not in judged:
            facts_by_hand.check_needed(self.run.graph, ids, verdict)
        shown = Shown(ids, facts_by_hand.text(self.run.graph, ids), None, None, None, BY_HAND, self.run.fingerprint)
        return self.store.judge(reviewer, shown, verdict, comment)

    def rejected(self) -> set[FactIds]:
        """The facts that all who decided rejected; in both directions where the relation is symmetric."""
        judged = by_fact(self.store.judgements())
        return {key for each in judged if each.verdict == "rejected" for key in self.queue.directions(each.fact)}

    def pending(self) -> PendingFacts:
        """The judged facts that an update would change in the graph of this run."""
        return pending_facts(self.store.judgements(), self.run.graph)

    def undo(self, reviewer: str) -> Judgement | None:
        return self.store.undo(reviewer)

    def summary(self) -> ReviewSummary:
        return ReviewSummary.of(self.store.judgements())

    def _rate(self, fact: FactIds) -> Shown:
        """What is shown of a fact that is not in the queue, such as one that was judged before."""
        graph = self.run.graph
        triple = graph.triple(*fact)
        row = triple.to_rows()[0].tolist()
        if graph.splits_of(triple)[0] is not None:
            raise HarmoniumError(f"{', '.join(fact)}: a known fact of the graph; only predicted facts are judged")
        (names,), candidates = graph.names_of(triple), self.queue.search.of_pair(*row)
        probability = uncorrected = None
        if self.calibration is not None and len(candidates):
            probability = self.calibration.log_odds(candidates).sigmoid().item()
            uncorrected = self.calibration.uncorrected().log_odds(candidates).sigmoid().item()
        order, run = self.queue.order, self.run.fingerprint
        return Shown(identifiers(graph, row), " · ".join(names), probability, uncorrected, None, order, run)
