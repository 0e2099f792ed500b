"""How results look in a notebook (HTML) and when printed (text): as in a terminal, by the same functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harmonium.cli import console
from harmonium.cli.display import analyses, answers, differences, graphs, review, training

if TYPE_CHECKING:
    from harmonium.data.graph import Graph
    from harmonium.runtime.frames import ResultList

ROWS = 20  # of a long table
RELATIONS = 10
LARGE = 1_000_000  # facts of a graph whose relations are not counted, which would take seconds
HIDDEN = ("id", "text", "index")  # columns that repeat others


def to_html(result: object) -> str:
    """A result as HTML; every name in it is escaped."""
    with console.as_html() as parts:
        show(result)
    return f"<div>{''.join(parts)}</div>"


def to_text(result: object) -> str:
    with console.as_text() as text:
        show(result)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).rstrip("\n")


def show(result: Any) -> None:
    """Print a result of any kind."""
    for kind in type(result).__mro__:
        if kind.__name__ in DISPLAYS:
            DISPLAYS[kind.__name__](result)
            return
    console.say(repr(result))


def show_any_graph(graph: Graph) -> None:
    """Its size, notes, and most frequent relations with an example."""
    from harmonium.analysis.info import info

    if sum(map(len, graph.splits.values())) > LARGE:
        console.say(repr(graph), "bold")
        console.notes(graph.notes)
    else:
        graphs.show_graph(info(graph)["graph"], RELATIONS)


def show_any_run(run: Any) -> None:
    console.say(repr(run).strip("<>"), "bold")
    training.show_run(run)


def show_results(results: ResultList[Any]) -> None:
    """The first rows, as the commands show them where they have a form of their own."""
    kinds = {type(row).__name__ for row in results}
    if kinds == {"Answer"}:
        answers.show_answers(results.title or "answers", results[:ROWS])
    elif kinds == {"ScoredFact"}:
        answers.show_scored(results.title, results[:ROWS])
    elif not results:
        console.say(f"{results.title}: no rows" if results.title else "no rows")
    else:
        show_rows(results.title, results[:ROWS])
    if len(results) > ROWS:
        console.say(f"{len(results) - ROWS:,} more rows; to_pandas() or to_frame() has all", "dim")


def show_rows(title: str, rows: Sequence[Any]) -> None:
    """Rows of any kind; shares as percentages, columns that repeat others left out."""
    records: list[Mapping[str, Any]] = [row if isinstance(row, Mapping) else row.to_json() for row in rows]
    columns = [name for name in records[0] if name not in HIDDEN]
    cells = [[_cell(name, record[name]) for name in columns] for record in records]
    console.table(title, [name.replace("_", " ") for name in columns], cells)


def _cell(column: str, value: Any) -> Any:
    if column.endswith("probability"):
        return answers.percent(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " · ".join(map(str, value)) if isinstance(value, list | tuple) else value


DISPLAYS: dict[str, Callable[[Any], None]] = {
    "Graph": show_any_graph,
    "Run": show_any_run,
    "ResultList": show_results,
    "Evaluation": lambda evaluation: answers.show_evaluation("Link prediction", "side", evaluation),
    "EvaluationSummary": lambda summary: console.metrics_table(
        f"Link prediction on {summary.graph}", {"model": summary.metrics, **summary.by_side}, summary.describe()
    ),
    "Explanation": analyses.show_explanation,
    "Neighbourhood": analyses.show_neighbourhood,
    "EntityNeighbourhood": analyses.show_neighbourhood,
    "Diagnosis": lambda diagnosis: graphs.show_diagnosis(diagnosis, RELATIONS),
    "Classification": lambda classifier: answers.show_classification("Classification", RELATIONS, classifier),
    "Plan": training.show_plan,
    "Difference": differences.show_difference,
    "ReviewSummary": review.show_summary,
    "Recalibration": review.show_recalibration,
    "Update": lambda update: training.show_update(update.record),
}
