"""What changed between two runs, or between two versions of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harmonium.analysis.answer_changes import (
    AnswerChanges,
    ProbabilityChanges,
    compare_answers,
    compare_calibrations,
    compare_probabilities,
)
from harmonium.analysis.graph_changes import KINDS, GraphChanges, Listed, change_cells, compare_graphs
from harmonium.analysis.metric_changes import SplitMetrics, compare_metrics, interval_text, verdict
from harmonium.analysis.missing_changes import LISTED, MAX_PAIRS, MissingChanges, Progress, compare_missing, n_pairs
from harmonium.analysis.page import check_page, render_page, write_page
from harmonium.answers.calibration.probability import calibration_for
from harmonium.config.settings import flatten
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.joint_facts import JointFacts
from harmonium.errors import HarmoniumError
from harmonium.evaluation.metrics import METRICS
from harmonium.model.build import title
from harmonium.run.run import Run
from harmonium.runtime.displayed import one_line
from harmonium.runtime.folders import is_finished, is_unfinished
from harmonium.runtime.frames import Tabular

Rows = list[dict[str, Any]]
MARK = "harmonium diff</title>"  # in every page


def diff(
    before: Any,
    after: Any,
    out: str | Path | None = None,
    limit: int = 4000,
    seed: int = 0,
    top: int = 10,
    missing: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Difference:
    """What changed from one run to another in graph, settings, metrics, answers, probabilities and calibration.

    Names and facts are matched by name. Metrics are those of the same held-out questions, at most `limit` of each split,
    a random sample by `seed`; a change is called clear only if it is more than noise. `missing` is the length of the
    lists of most probable missing facts that are compared (default: 100, none on large graphs), `top` how many rows of
    each kind are kept. `out` is a page (.html) to write.
    Either of the two may also be a graph, as `load` reads it with the options `reading`: then only graphs are compared.

    >>> harmonium.diff("runs/old", "runs/new").summary
    >>> harmonium.diff("facts-2023.csv", "facts-2024.csv", top=1000).to_pandas()
    """
    page = None if out is None else check_page(out, MARK, "page of differences")
    sources = [_open(source, reading) for source in (before, after)]
    if reading and all(isinstance(source, Run) for source in sources):
        raise HarmoniumError(f"both are runs, whose graphs are not read again; drop {min(reading)}")
    graphs = [source.graph if isinstance(source, Run) else source for source in sources]
    has_splits = all(len(graph.valid) or len(graph.test) for graph in graphs)
    facts = JointFacts.of(graphs[0], graphs[1])
    changes = compare_graphs(facts, has_splits, top)
    if not has_splits and any(len(graph.valid) or len(graph.test) for graph in graphs):
        note = "one of them has no splits: facts are compared, whichever split they are in"
        changes = replace(changes, notes=[*changes.notes, note])
    names = [_name(given, source) for given, source in zip((before, after), sources, strict=True)]
    notes = [
        f"{name}: {note}"
        for name, source in zip(names, sources, strict=True)
        if isinstance(source, Graph)  # which was read just now
        for note in source.notes
    ]
    difference = Difference(names[0], names[1], changes, notes=notes, limit=limit, seed=seed)
    first, second = sources
    if isinstance(first, Run) and isinstance(second, Run):
        difference = _compare_runs(difference, facts, (first, second), top, missing, progress)
    elif isinstance(first, Run) or isinstance(second, Run):
        note = "only one of them is a run, so only the graphs are compared"
        difference = replace(difference, notes=[note, *notes])
    if page is not None:
        write_page(page, difference.to_html())
    return difference


def _open(source: Any, reading: dict[str, Any]) -> Run | Graph:
    """A run, or a graph whose facts stay in one split where it has none."""
    if isinstance(source, Run | Graph):
        return source
    if isinstance(source, str | Path):
        folder = Path(source)
        if is_finished(folder) or is_unfinished(folder):
            return Run.load(folder)
    return load(source, valid=0, test=0, **reading)


def _name(given: Any, source: Run | Graph) -> str:
    """What the user called it."""
    if isinstance(given, str | Path):
        return str(given)
    if isinstance(source, Run):
        return str(source.path or f"{title(source.config)} on {source.graph.name}")
    return source.name


def _compare_runs(
    difference: Difference,
    facts: JointFacts,
    runs: tuple[Run, Run],
    top: int,
    missing: int | None,
    progress: Progress | None,
) -> Difference:
    """The same, with what only runs have."""
    limit, seed, notes = difference.limit, difference.seed, []
    metrics = compare_metrics(facts, runs, limit, seed, top, progress)
    if not metrics:
        notes.append("no two facts are held out in both, so neither ranks nor answers are compared")
    notes += [_few_common(part, runs) for part in metrics if 2 * part.of < _most_held_out(part, runs)]
    calibrations = [calibration_for(run, progress) for run in runs]
    probabilities = compare_probabilities(facts, runs, calibrations, limit, seed, top) if metrics else None
    if metrics and probabilities is None:
        notes.append("a run has no calibrated probabilities: too few validation facts are among its best answers")
    size = max(n_pairs(run.graph) for run in runs)
    length = missing if missing is not None else LISTED if size <= MAX_PAIRS else 0
    if missing is None and not length:
        notes.append(
            f"missing facts were not listed, as {size:,} pairs could be missing; --missing {LISTED} lists them"
        )
    return replace(
        difference,
        models=(title(runs[0].config), title(runs[1].config)),
        settings=_settings(*runs),
        stored=[_stored(run) for run in runs],
        metrics=metrics,
        answers=compare_answers(facts, runs, limit, seed, top) if metrics else None,
        probabilities=probabilities,
        missing=compare_missing(facts, runs, length, top, progress) if length else None,
        calibration=compare_calibrations(calibrations),
        notes=notes,
    )


def _most_held_out(part: SplitMetrics, runs: tuple[Run, Run]) -> int:
    return max(len(run.graph.splits[part.split]) for run in runs)


def _few_common(part: SplitMetrics, runs: tuple[Run, Run]) -> str:
    most = _most_held_out(part, runs)
    return (
        f"only {part.of:,} of {most:,} {part.split} facts are held out in both, so little can be compared; "
        "give both graphs the same splits (folders with train, valid and test) to compare more"
    )


def _settings(before: Run, after: Run) -> Rows:
    """Settings, and the environment of training, that differ."""
    sides = [
        flatten(run.config) | {f"environment.{key}": value for key, value in run.environment.items()}
        for run in (before, after)
    ]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    rows = [{"setting": key, "before": sides[0].get(key), "after": sides[1].get(key)} for key in keys]
    return [row for row in rows if row["before"] != row["after"]]


def _stored(run: Run) -> dict[str, Any] | None:
    """The metrics that the run keeps, of its own questions."""
    if run.evaluation is None:
        return None
    return {"protocol": run.evaluation.describe(), "queries": run.evaluation.queries, **run.evaluation.metrics}


@dataclass(frozen=True)
class Difference(Tabular):
    """What changed between two runs, or two versions of a graph."""

    before: str
    after: str
    graph: GraphChanges
    models: tuple[str, str] | None = None  # None: not both are runs, and only graphs were compared
    settings: Sequence[dict[str, Any]] = ()
    stored: Sequence[dict[str, Any] | None] = ()  # metrics that the runs keep, each of its own questions
    metrics: Sequence[SplitMetrics] = ()
    answers: AnswerChanges | None = None
    probabilities: ProbabilityChanges | None = None
    missing: MissingChanges | None = None
    calibration: Sequence[dict[str, Any]] = ()
    notes: Sequence[str] = ()
    limit: int = 4000
    seed: int = 0

    def __repr__(self) -> str:
        return one_line(self, f"{self.before} to {self.after}", *self.summary)

    @property
    def changed(self) -> bool:
        """Whether anything is different, noise included."""
        return bool(
            not self.graph.is_empty
            or self.settings
            or not all(part.is_same for part in self.metrics)
            or (self.answers and self.answers.changed)
            or (self.probabilities and self.probabilities.rows.count)
            or (self.missing and (self.missing.entered.count or self.missing.left.count))
            or (self.missing and self.missing.changed.rows.count)
            or any(_differs(row) for row in self.calibration)
        )

    @property
    def summary(self) -> list[str]:
        """The changes in a few sentences."""
        if not self.changed:
            return ["nothing changed"]
        sentences = [self.graph.sentence]
        if self.models is None:
            return sentences
        if self.settings:
            shown = [f"{row['setting']} {short(row['before'])} to {short(row['after'])}" for row in self.settings[:3]]
            more = f", {len(self.settings) - 3} more" if len(self.settings) > 3 else ""
            sentences.append(f"{len(self.settings)} settings: {', '.join(shown)}{more}")
        sentences += [part.sentence for part in self.metrics]
        if answers := self.answers:
            right = f"{answers.right[0]:,} right before, {answers.right[1]:,} after"
            sentences.append(f"{answers.changed:,} of {answers.questions:,} first answers changed ({right})")
        if self.probabilities:
            counts = f"{self.probabilities.noticeable:,} of {self.probabilities.facts:,}"
            sentences.append(f"{counts} probabilities of held-out facts changed by 10 points or more")
        if self.missing:
            moved = f"{self.missing.entered.count:,} entered, {self.missing.left.count:,} left"
            sentences.append(f"of the {self.missing.top:,} most probable missing facts {moved}")
        return sentences

    def to_json(self) -> dict[str, Any]:
        parts = asdict(self) | {"graph": self.graph.to_json(), "metrics": [part.to_json() for part in self.metrics]}
        return {"changed": self.changed, "summary": self.summary, **parts}

    def to_html(self) -> str:
        """A self-contained page."""
        words = {"verdict": verdict, "interval": interval_text, "short": short}
        return render_page("diff.html", {"diff": self, "metric_names": METRICS, **words})

    def records(self) -> Rows:
        """All changes in one table: columns part, kind, name, before, after and note."""
        columns = "part", "kind", "name", "before", "after", "note"
        return [dict(zip(columns, row, strict=True)) for row in self._rows()]

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for name, (before, after) in self.graph.sizes.items():
            yield "graph", "size", name, before, after, ""
        for kind in KINDS:
            for change, listed in getattr(self.graph, kind).items():
                yield from (("graph", f"{kind} {change}", *change_cells(row), "") for row in listed.rows)
        yield from (("settings", "setting", row["setting"], row["before"], row["after"], "") for row in self.settings)
        for part in self.metrics:
            for metric, compared in part.comparisons.items():
                note = f"{verdict(compared)}; 95 % interval {interval_text(*compared.interval)}"
                yield "metrics", f"{part.split} {metric}", "all", compared.control, compared.model, note
            for row in part.by_relation.rows:
                yield "metrics", f"{part.split} mrr", row["relation"], row["before"], row["after"], row["verdict"]
        if self.answers:
            for row in self.answers.rows.rows:
                yield "answers", "first answer", row["question"], row["before"], row["after"], row["change"]
        if self.probabilities:
            yield from _fact_cells("probabilities", "held-out fact", self.probabilities.rows)
        if self.missing:
            yield from _fact_cells("missing", "entered", self.missing.entered)
            yield from _fact_cells("missing", "left", self.missing.left)
            yield from _fact_cells("missing", "probability", self.missing.changed.rows)
        for row in self.calibration:
            for name in ("largest_error", "log_loss"):
                kind = f"{row['slot']}s, {row['questions']}"
                yield "calibration", name, kind, row[f"{name}_before"], row[f"{name}_after"], ""


def short(value: Any) -> str:
    """The value of a setting to be read."""
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _differs(row: dict[str, Any]) -> bool:
    return any(row[f"{name}_before"] != row[f"{name}_after"] for name in ("largest_error", "log_loss"))


def _fact_cells(part: str, kind: str, listed: Listed) -> Iterator[tuple[Any, ...]]:
    yield from ((part, kind, row["text"], row["before"], row["after"], row.get("why", "")) for row in listed.rows)
