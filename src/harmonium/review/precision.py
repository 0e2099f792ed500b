"""How often facts that were judged are true, against the probability that was stated: the state of a review.

A fact counts once, as accepted or rejected; facts that are disputed or that nobody is sure of are left out and counted.
The queue chooses facts by their probability, so that the precision of all of them says little about the graph. Within a
bin of probability it is comparable, as far as facts were not chosen by their truth in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from harmonium.evaluation.metrics import wilson_interval
from harmonium.review.judgements import JudgedFact, by_fact
from harmonium.review.store import Judgement
from harmonium.runtime.displayed import Item, Line, Part, Table, one_line, percent
from harmonium.runtime.frames import Tabular

EDGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of the bins of probability
BAR_WIDTH = 14  # characters of a share of 100 %


@dataclass(frozen=True)
class Precision:
    """Of some judged facts: the mean probability that was stated, and the share that was accepted."""

    facts: int
    stated: float | None  # mean probability
    accepted: float | None  # share
    interval: tuple[float, float] | None  # 95 % (Wilson) of that share


@dataclass(frozen=True)
class PrecisionBin(Precision):
    """Facts with a probability in [low, high)."""

    low: float
    high: float


@dataclass(frozen=True)
class ReviewSummary(Tabular):
    """The state of a review."""

    judgements: int
    accepted: int  # facts
    rejected: int
    unsure: int
    disputed: list[JudgedFact]
    by_reviewer: dict[str, int]  # judgements
    overall: Precision  # of accepted and rejected facts with a probability
    bins: list[PrecisionBin]

    @classmethod
    def of(cls, judgements: Iterable[Judgement]) -> ReviewSummary:
        listed = list(judgements)
        facts, by_reviewer = by_fact(listed), dict[str, int]()
        for judgement in listed:
            by_reviewer[judgement.reviewer] = by_reviewer.get(judgement.reviewer, 0) + 1
        accepted, rejected, unsure = (
            sum(fact.verdict == verdict for fact in facts) for verdict in ("accepted", "rejected", "unsure")
        )
        pairs = stated_and_true(facts)
        bins = []
        for low, high in pairwise(EDGES):
            inside = [(p, true) for p, true in pairs if low <= p < high or (p == high == EDGES[-1])]
            bins.append(PrecisionBin(**vars(_precision(inside)), low=low, high=high))
        disputed = [fact for fact in facts if fact.verdict == "disputed"]
        return cls(len(listed), accepted, rejected, unsure, disputed, by_reviewer, _precision(pairs), bins)

    def records(self) -> list[dict[str, Any]]:
        """One row for each bin of probability."""
        return [_row(part) | {"low": part.low, "high": part.high} for part in self.bins]

    def display(self) -> Iterator[Part]:
        """Counts, precision against stated probability, and disagreements."""
        if not self.judgements:
            yield Line("no judgements yet")
            return
        reviewers = ", ".join(f"{name} {count:,}" for name, count in self.by_reviewer.items())
        counts = f"{self.accepted:,} accepted, {self.rejected:,} rejected, {self.unsure:,} unsure"
        yield Line(f"{counts}, {len(self.disputed):,} disputed (judgements: {reviewers})", "bold")
        if self.overall.facts:
            rows = [[f"{part.low:.0%} to {part.high:.0%}", *_cells(part)] for part in self.bins if part.facts]
            rows.append(["all", *_cells(self.overall)])
            columns = ["probability", "judged", "stated", "accepted", "95 % interval", "0 to 100 %"]
            caption = "#: accepted, -: interval, |: stated; facts are chosen by the queue, so compare within a row"
            yield Table("Precision so far against stated probability", columns, rows, caption)
        for fact in self.disputed:
            verdicts = "; ".join(f"{each.reviewer}: {each.verdict} {each.quoted_comment}" for each in fact.judgements)
            yield Item("disputed", fact.judgements[0].text, verdicts)

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("judgements", "accepted", "rejected", "unsure", "by_reviewer")}
        disputed = [[each.to_json() for each in fact.judgements] for fact in self.disputed]
        return counts | {"disputed": disputed, "overall": asdict(self.overall), "bins": self.records()}

    def __repr__(self) -> str:
        counts = f"{self.accepted:,} accepted, {self.rejected:,} rejected, {self.unsure:,} unsure"
        return one_line(self, f"of {self.judgements:,} judgements: {counts}", f"{len(self.disputed):,} disputed")


def stated_and_true(facts: Iterable[JudgedFact]) -> list[tuple[float, bool]]:
    """The probability stated when a fact was first decided, and whether it was accepted; of facts that are not disputed."""
    pairs = []
    for fact in facts:
        if fact.verdict in ("accepted", "rejected"):
            first = next(judgement for judgement in fact.judgements if judgement.verdict == fact.verdict)
            if first.probability is not None:
                pairs.append((first.probability, fact.verdict == "accepted"))
    return pairs


def _precision(pairs: list[tuple[float, bool]]) -> Precision:
    if not pairs:
        return Precision(0, None, None, None)
    share = fmean(true for _, true in pairs)
    return Precision(len(pairs), fmean(p for p, _ in pairs), share, wilson_interval(share, len(pairs)))


def _row(part: Precision) -> dict[str, Any]:
    low, high = part.interval or (None, None)
    return {"facts": part.facts, "stated": part.stated, "accepted": part.accepted, "at_least": low, "at_most": high}


def _cells(part: Precision) -> list[Any]:
    """The cells of a row, with a bar: the interval of the share that was accepted, that share and the stated one."""
    assert part.interval and part.stated is not None and part.accepted is not None, "a row has facts"
    low, high = part.interval
    start, end = round(BAR_WIDTH * low), round(BAR_WIDTH * high)
    bar = [" "] * (BAR_WIDTH + 1)
    bar[start : end + 1] = "-" * (end + 1 - start)
    bar[round(BAR_WIDTH * part.accepted)] = "#"
    bar[round(BAR_WIDTH * part.stated)] = "|"
    return [part.facts, percent(part.stated), percent(part.accepted), f"{low:.0%} to {high:.0%}", "".join(bar)]
