"""How a review and what was learned from it look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harmonium.cli import console
from harmonium.cli.display.answers import percent

if TYPE_CHECKING:
    from harmonium.review.precision import Precision, ReviewSummary
    from harmonium.review.queue import Offer
    from harmonium.review.recalibration import Recalibration

BAR = 14  # characters of a share of 100 %


def show_summary(summary: ReviewSummary) -> None:
    """Counts, precision against stated probability, and disagreements."""
    if not summary.judgements:
        console.say("no judgements yet")
        return
    reviewers = ", ".join(f"{name} {count:,}" for name, count in summary.by_reviewer.items())
    counts = f"{summary.accepted:,} accepted, {summary.rejected:,} rejected, {summary.unsure:,} unsure"
    console.say(f"{counts}, {len(summary.disputed):,} disputed (judgements: {reviewers})", "bold")
    if summary.overall.facts:
        rows = [
            [f"{part.low:.0%} to {part.high:.0%}", *_cells(part), _bar(part)] for part in summary.bins if part.facts
        ]
        rows.append(["all", *_cells(summary.overall), _bar(summary.overall)])
        columns = ["probability", "judged", "stated", "accepted", "95 % interval", "0 to 100 %"]
        caption = "#: accepted, -: interval, |: stated; facts are chosen by the queue, so compare within a row"
        console.table("Precision so far against stated probability", columns, rows, caption)
    for fact in summary.disputed:
        verdicts = "; ".join(f"{each.reviewer}: {each.verdict} {_quoted(each.comment)}" for each in fact.judgements)
        console.item("disputed", fact.judgements[0].text, verdicts)


def _cells(part: Precision) -> list[object]:
    assert part.interval is not None, "a row has facts"
    low, high = part.interval
    return [part.facts, percent(part.stated), percent(part.accepted), f"{low:.0%} to {high:.0%}"]


def _bar(part: Precision) -> str:
    """The interval of the share that was accepted, with that share and the stated probability in it."""
    assert part.interval is not None and part.stated is not None and part.accepted is not None, "a row has facts"
    low, high = (round(BAR * end) for end in part.interval)
    cells = [" "] * (BAR + 1)
    cells[low : high + 1] = "-" * (high + 1 - low)
    cells[round(BAR * part.accepted)] = "#"
    cells[round(BAR * part.stated)] = "|"
    return "".join(cells)


def show_offer(offer: Offer, reason: str, around: list[str]) -> None:
    """A fact to judge."""
    assert offer.shown is not None, "there is a fact"
    shown = offer.shown
    console.say("")
    console.say(shown.text, "bold")
    rated = "no probability" if shown.probability is None else f"probability {percent(shown.probability)}"
    position = f"no. {shown.rank:,} by {shown.order}" if shown.rank else "judged before"
    console.say(f"  {rated}; {position}; {offer.known_facts:,} known facts of its entities; {offer.left:,} left", "dim")
    console.paragraph(f"evidence: {reason}")
    for judgement in offer.earlier:
        comment = _quoted(judgement.comment)
        console.paragraph(f"{judgement.reviewer} was unsure on {judgement.time[:10]} {comment}", "yellow")
    for text in around:
        console.paragraph(text, "dim")


def _quoted(comment: str) -> str:
    return f"({comment})" if comment else ""


def show_recalibration(result: Recalibration) -> None:
    console.say(f"{result.facts:,} judged facts: {result.accepted / result.facts:.1%} accepted", "bold")
    console.say(f"  mean probability that was stated: {percent(result.stated)}")
    losses = f"{result.log_loss:.4f} stated, {result.corrected_log_loss:.4f} corrected (5-fold cross-validation)"
    console.say(f"  log loss: {losses}")
    if result.other_runs:
        console.say(f"  {result.other_runs:,} were judged on predictions of other runs", "yellow")
    if result.left_out:
        console.say(
            f"  {result.left_out:,} facts left out: disputed, unsure, without a probability or of another graph"
        )
    if result.correction is None:
        console.say("a correction would not have helped, so probabilities stay as they were fitted", "yellow")
        return
    correction = result.correction
    console.say(
        f"corrected log-odds = {correction.intercept:+.3f} + {correction.slope:.3f} x log-odds + relation's own"
    )
    console.say("kept in the run: `complete`, the explorer and the review use it; --forget-judgements drops it")
