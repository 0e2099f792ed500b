"""How complete a graph is, in words and as a table; answers/calibration estimates it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harmonium.runtime.displayed import Part, Table, more_rows

SHOWN = 12  # relations


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
        caption = "of facts like those held out; 90 % intervals" + (f"; {more}" if more else "")
        yield Table("How complete is it?", ["relation", "known", "missing (estimate)", ""], cells, caption)
