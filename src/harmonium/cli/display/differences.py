"""How the difference of two runs or graphs looks in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from harmonium.cli import console
from harmonium.cli.display.answers import percent

if TYPE_CHECKING:
    from harmonium.analysis.answer_changes import ProbabilityChanges
    from harmonium.analysis.diff import Difference
    from harmonium.analysis.graph_changes import GraphChanges, Listed
    from harmonium.analysis.metric_changes import SplitMetrics
    from harmonium.analysis.missing_changes import MissingChanges

COLOURS = {"better": "green", "became right": "green", "worse": "red", "became wrong": "red"}


def show_difference(difference: Difference) -> None:
    """A few sentences, then a table for every part that changed."""
    from harmonium.analysis.diff import short

    console.say(f"from {difference.before} to {difference.after}", "bold")
    for sentence in difference.summary:
        console.say(f"  {sentence}")
    console.say("")
    if difference.changed:
        show_graph_changes(difference.graph)
        if difference.settings:
            rows = [[row["setting"], short(row["before"]), short(row["after"])] for row in difference.settings]
            console.table("Settings", ["setting", "before", "after"], rows)
        for part in difference.metrics:
            if not part.is_same:
                _show_metrics(part, difference.seed)
        _show_answers(difference)
        if difference.probabilities:
            _show_probabilities("Probabilities of held-out facts", difference.probabilities)
        if difference.missing:
            _show_missing(difference.missing)
        _show_calibration(difference)
    console.notes(difference.graph.notes)
    console.notes(difference.notes)


def show_graph_changes(graph: GraphChanges) -> None:
    """Sizes, then names and facts that changed."""
    if graph.is_empty:
        return
    sizes = [
        [name, before, after, f"{after - before:+,}" if after != before else ""]
        for name, (before, after) in graph.sizes.items()
    ]
    console.table("Graph", ["", "before", "after", "change"], sizes)
    for kind, changes in (("Entities", graph.entities), ("Relations", graph.relations)):
        texts = [[change, listed.count, _examples(listed)] for change, listed in changes.items() if listed.count]
        if texts:
            console.table(kind, ["", "count", "examples"], texts)
    for change, listed in graph.facts.items():
        if listed.rows:
            has_values = "before" in listed.rows[0] and change in ("moved", "reweighted")
            columns = ["fact", "before", "after"] if has_values else ["fact"]
            rows = [[row["text"], *([row["before"], row["after"]] if has_values else [])] for row in listed.rows]
            console.table(f"Facts {change}: {listed.count:,}", columns, rows, _more(listed))
    if graph.by_relation.count > 1:
        rows = [list(row.values()) for row in graph.by_relation.rows]
        columns = ["relation", "added", "removed", "moved"]
        console.table("Changed facts by relation", columns, rows, _more(graph.by_relation))


def _examples(listed: Listed) -> str:
    """Names, or old and new ones."""
    texts = [f"{row['before']} to {row['after']}" if "before" in row else row["name"] for row in listed.rows]
    return ", ".join(texts) + (", ..." if listed.more else "")


def _more(listed: Listed) -> str | None:
    return f"{listed.more:,} more with --top" if listed.more else None


def _value(value: Any) -> str:
    return "-" if value is None else str(value)


def _verdict(text: str) -> Text:
    return Text(text, style=COLOURS.get(text, ""))


def _show_metrics(part: SplitMetrics, seed: int) -> None:
    from harmonium.analysis.metric_changes import interval_text, verdict

    rows = []
    for name, compared in part.comparisons.items():
        change = f"{compared.difference:+.3f}", interval_text(*compared.interval), _verdict(verdict(compared))
        rows.append([name, compared.control, compared.model, *change])
    drawn = f"a sample of {part.facts:,} of {part.of:,} facts, seed {seed}" if part.facts < part.of else "all of them"
    caption = (
        f"the same {part.queries:,} questions of facts held out in both ({drawn}); {part.better:,} are ranked better, "
    )
    caption += (
        f"{part.worse:,} worse;\n  entities of both graphs, filtered by both; intervals by resampling {part.resampled}"
    )
    columns = ["", "before", "after", "change", "95 % interval", "verdict"]
    console.table(f"Metrics on {part.split}", columns, rows, caption)
    changed = [row for row in part.by_relation.rows if row["verdict"] != "the same"]
    if changed:
        cells = [_relation_cells(row) for row in changed]
        columns = ["relation", "questions", "before", "after", "change", "verdict"]
        console.table(f"MRR by relation on {part.split}", columns, cells, _more(part.by_relation))


def _relation_cells(row: Mapping[str, Any]) -> list[Any]:
    values = [row[name] for name in ("relation", "queries", "before", "after")]
    return [*values, f"{row['difference']:+.3f}", _verdict(row["verdict"])]


def _show_answers(difference: Difference) -> None:
    answers = difference.answers
    if answers is None or not answers.rows.rows:
        return
    rows = [
        [row["question"], _value(row["before"]), _value(row["after"]), row["held_out"], _verdict(row["change"])]
        for row in answers.rows.rows
    ]
    caption = (
        f"{answers.changed:,} of {answers.questions:,} changed: {answers.gained:,} became right, {answers.lost:,} "
    )
    caption += "became wrong; held-out facts are hidden from both"
    caption += f"; {_more(answers.rows)}" if answers.rows.more else ""
    console.table("First answers", ["question", "before", "after", "held-out fact", "change"], rows, caption)


def _show_probabilities(title: str, changes: ProbabilityChanges) -> None:
    if not changes.rows.rows:
        return
    rows = [
        [row["text"], percent(row["before"]), percent(row["after"]), f"{100 * row['change']:+.1f}"]
        for row in changes.rows.rows
    ]
    caption = f"largest changes, in percentage points; {changes.noticeable:,} of {changes.facts:,} by 10 or more"
    console.table(title, ["fact", "before", "after", "change"], rows, caption)


def _show_missing(missing: MissingChanges) -> None:
    for title, listed in (("entered", missing.entered), ("left", missing.left)):
        rows = [[row["text"], percent(row["before"]), percent(row["after"]), row["why"]] for row in listed.rows]
        if rows:
            title = f"Missing facts that {title} the {missing.top:,} most probable: {listed.count:,}"
            console.table(title, ["fact", "before", "after", ""], rows, _more(listed))
    _show_probabilities("Probabilities of missing facts", missing.changed)


def _show_calibration(difference: Difference) -> None:
    rows = [
        [
            f"{row['slot']}s, {row['questions']}",
            *(percent(row[f"largest_error_{side}"]) for side in ("before", "after")),
            *(_value(row[f"log_loss_{side}"] and round(row[f"log_loss_{side}"], 4)) for side in ("before", "after")),
        ]
        for row in difference.calibration
    ]
    if rows:
        columns = ["questions", "largest error before", "after", "log loss before", "after"]
        console.table("Calibration", columns, rows, "each run on its own held-out facts; lower is better")
