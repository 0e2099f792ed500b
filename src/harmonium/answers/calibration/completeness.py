"""How complete each relation of a graph is, in numbers and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harmonium.answers.calibration.fact_probability import Completeness
from harmonium.answers.open_run import OpenRun
from harmonium.runtime.displayed import Part, Table, more_rows

SHOWN = 12  # relations


def completeness_of(opened: OpenRun) -> list[dict[str, Any]]:
    """For each relation that has facts, most facts first: how many are known and how many missing, with an interval."""
    calibration = opened.fact_calibration()
    if calibration is None:
        return []
    relations = sorted(calibration.completeness(opened.graph), key=lambda relation: -relation.known)
    return [_to_row(opened, relation) for relation in relations]


def _to_row(opened: OpenRun, completeness: Completeness) -> dict[str, Any]:
    low, high = completeness.interval
    return {
        "relation": opened.graph.relations.name(completeness.relation),
        "known": completeness.known,
        "missing": completeness.missing,
        "complete_low": low,
        "complete_high": high,
        "held_out": completeness.held_out,
        "text": in_words(low, high),
    }


def in_words(low: float, high: float) -> str:
    """An interval of shares in words: "99 to 100 % complete", or that nothing is known."""
    first, last = round(100 * low), round(100 * high)
    if last - first > 60:
        return "unknown"
    return f"{last} % complete" if first == last else f"{first} to {last} % complete"


def completeness_table(rows: Sequence[dict[str, Any]]) -> Iterator[Part]:
    """The relations with the most facts, as part of a display."""
    if rows:
        cells = [[row["relation"], row["known"], round(row["missing"]), row["text"]] for row in rows[:SHOWN]]
        more = more_rows(len(rows) - len(cells))
        caption = "by held-out facts; 90 % intervals" + (f"; {more}" if more else "")
        yield Table("How complete is it?", ["relation", "known", "missing (estimate)", ""], cells, caption)
