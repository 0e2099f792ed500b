"""How the difference of two runs looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from harmonium.cli import console
from harmonium.cli.display.answers import percent

if TYPE_CHECKING:
    from harmonium.analysis.diff import Difference

COLOURS = {"better": "green", "worse": "red"}


def show_difference(difference: Difference) -> None:
    """A few sentences, then a table for every part that changed."""
    console.say(f"from {difference.before} to {difference.after}", "bold")
    for sentence in difference.summary:
        console.say(f"  {sentence}")
    if not difference.changed:
        return
    _table("Settings", ["setting", "before", "after"], difference.settings)
    _show_metrics(difference)
    caption = "each run ranks its own entities; those that add most to the change first"
    _table("MRR by relation", ["relation", "facts", "before", "after"], difference.relations, caption)
    caption = "held-out facts are hidden from both; answers that became right or wrong first"
    _table("First answers", ["query", "true", "before", "after"], difference.answers, caption)
    rows = [
        {"fact": f"{row['head']}, {row['relation']}, {row['tail']}"}
        | {side: percent(row[side]) for side in ("before", "after")}
        for row in difference.probabilities
    ]
    _table("Probabilities of held-out facts", ["fact", "before", "after"], rows, "largest changes")


def _show_metrics(difference: Difference) -> None:
    from harmonium.analysis.diff import verdict

    rows = []
    for name, compared in difference.metrics.items():
        word, (low, high) = verdict(compared), compared.interval
        change = f"{compared.difference:+.3f}", f"{low:+.3f} to {high:+.3f}", Text(word, style=COLOURS.get(word, ""))
        rows.append([name, compared.control, compared.model, *change])
    count = f"{difference.facts:,} of {difference.common:,} facts that both runs hold out, as head and as tail"
    columns = ["", "before", "after", "change", "95 % interval", "verdict"]
    console.table(f"Metrics on {difference.split}", columns, rows, count)


def _table(title: str, columns: list[str], rows: list[dict[str, Any]], caption: str | None = None) -> None:
    if rows:
        cells = [["-" if row[column] is None else row[column] for column in columns] for row in rows]
        console.table(title, columns, cells, caption)
