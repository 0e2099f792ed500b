"""What changed from one run to another: metrics, first answers and probabilities of the facts that both hold out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from harmonium.answers.open_run import open_run
from harmonium.answers.predict import answer
from harmonium.answers.query import read_queries
from harmonium.answers.score import score
from harmonium.config.settings import flatten
from harmonium.data.graph import Graph
from harmonium.data.tables.columns import COLUMNS
from harmonium.errors import HarmoniumError
from harmonium.evaluation.significance import PairedComparison, compare_paired
from harmonium.model.build import title
from harmonium.run.run import Run
from harmonium.runtime.displayed import Line, Part, Styled, Table, one_line, percent
from harmonium.runtime.frames import Tabular

HITS = (1, 3, 10)
ALPHA = 0.01  # level of the tests that call a change of a metric clear
BOOTSTRAP_SAMPLES = 2000  # of the bootstrap
MIN_RELATIONS = 10  # below that many relations facts are resampled instead: signs of so few could not show a change
NOTICEABLE = 0.1  # change of a probability that is counted
Fact = tuple[str, str, str]  # identifiers
Rows = list[dict[str, Any]]
Progress = Callable[[int], None]


def diff(
    before: Run | str | Path,
    after: Run | str | Path,
    *,
    limit: int = 4000,
    top: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> Difference:
    """What changed from one run to another: settings, metrics, first answers and probabilities.

    Only facts are compared that both runs hold out (test facts, or validation facts where there are none), matched by
    identifier; neither was trained on them. Each run ranks its own entities, so that the numbers are those of `score`
    and `predict`. A change of a metric is called better or worse only if it is more than noise.

    `limit`: number of queries, two for each fact; of more, a random sample by `seed`.
    `top`: number of relations, answers and probabilities listed, most changed first.

    >>> harmonium.diff("runs/old", "runs/new").summary
    """
    runs = Run.of(before), Run.of(after)
    split, facts = _common_facts(runs[0].graph, runs[1].graph)
    if not facts:
        raise HarmoniumError(
            f"{_name(runs[0])} and {_name(runs[1])} hold out no fact in common, so nothing can be compared; "
            "train both on the same splits (folders with train, valid and test)"
        )
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(seed))
    chosen = [facts[row] for row in order[: max(1, limit // 2)].sort().values.tolist()]
    scored = [[score(run, chosen, side=side, progress=progress) for side in ("tail", "head")] for run in runs]
    ranks = [torch.tensor([[p.rank for p in side] for side in each], dtype=torch.float64).T for each in scored]
    probabilities = [[fact.probability for fact in tails] for tails, _ in scored]
    return Difference(
        _name(runs[0]),
        _name(runs[1]),
        split,
        facts=len(chosen),
        common=len(facts),
        settings=_changed_settings(*runs),
        metrics=_compare_metrics(ranks[0], ranks[1], [relation for _, relation, _ in chosen], seed),
        relations=_compare_relations(ranks[0], ranks[1], [relation for _, relation, _ in chosen])[:top],
        **_compare_answers(runs, chosen, top),
        **_compare_probabilities(chosen, probabilities[0], probabilities[1], top),
    )


@dataclass(frozen=True)
class Difference(Tabular):
    """What changed between two runs, on the same held-out facts."""

    before: str
    after: str
    split: str  # of the facts that are compared
    facts: int  # compared
    common: int  # held out by both runs
    settings: Rows  # setting, before, after
    metrics: dict[str, PairedComparison]  # mrr and hits@k; the first run is the control
    relations: Rows  # relation, facts, and its MRR before and after
    queries: int  # whose first answers are compared
    changed_answers: int
    right: tuple[int, int]  # first answers that are the held-out fact, before and after
    answers: Rows  # query, true answer, first answers before and after; those that became right or wrong first
    rated: int  # facts to which both runs give a probability
    changed_probabilities: int  # by NOTICEABLE or more
    probabilities: Rows  # head, relation, tail, and the probability before and after

    def __repr__(self) -> str:
        return one_line(self, f"{self.before} to {self.after}", *self.summary)

    @property
    def changed(self) -> bool:
        """Whether anything is different, noise included."""
        is_same = all(each.difference == each.standard_error == 0 for each in self.metrics.values())
        return bool(self.settings or not is_same or self.changed_answers or self.probabilities)

    @property
    def summary(self) -> list[str]:
        """The changes in a few sentences."""
        if not self.changed:
            return ["nothing changed"]
        mrr = self.metrics["mrr"]
        low, high = mrr.interval
        sentences = [f"{row['setting']}: {_text(row['before'])} to {_text(row['after'])}" for row in self.settings[:3]]
        sentences += [f"{len(self.settings) - 3} more settings"] * (len(self.settings) > 3)
        sentences += [
            f"{self.split} MRR {mrr.control:.3f} to {mrr.model:.3f}: {verdict(mrr)} (95 % {low:+.3f} to {high:+.3f})",
            f"{self.changed_answers:,} of {self.queries:,} first answers changed: {self.right[0]:,} were right before, "
            f"{self.right[1]:,} are now",
        ]
        if self.rated:
            counts = f"{self.changed_probabilities:,} of {self.rated:,}"
            sentences.append(f"{counts} probabilities changed by {NOTICEABLE:.0%} or more")
        return sentences

    def display(self) -> Iterator[Part]:
        """A few sentences, then a table for every part that changed."""
        yield Line(f"from {self.before} to {self.after}", "bold")
        yield from (Line(f"  {sentence}") for sentence in self.summary)
        if self.changed:
            tables = [
                _table("Settings", ("setting", "before", "after"), self.settings),
                self._metrics_table(),
                _table(
                    "MRR by relation", ("relation", "facts", "before", "after"), self.relations,
                    "each run ranks its own entities; those that add most to the change first",
                ),
                _table(
                    "First answers", ("query", "true", "before", "after"), self.answers,
                    "held-out facts are hidden from both; answers that became right or wrong first",
                ),
                self._probability_table(),
            ]  # fmt: skip
            yield from (table for table in tables if table.rows)

    def _metrics_table(self) -> Table:
        rows = []
        for name, compared in self.metrics.items():
            word, (low, high) = verdict(compared), compared.interval
            style = {"better": "green", "worse": "red"}.get(word, "")
            change = f"{compared.difference:+.3f}", f"{low:+.3f} to {high:+.3f}", Styled(word, style)
            rows.append([name, compared.control, compared.model, *change])
        count = f"{self.facts:,} of {self.common:,} facts that both runs hold out, as head and as tail"
        columns = ["", "before", "after", "change", "95 % interval", "verdict"]
        return Table(f"Metrics on {self.split}", columns, rows, count)

    def _probability_table(self) -> Table:
        rows = [
            [", ".join(row[name] for name in COLUMNS), percent(row["before"]), percent(row["after"])]
            for row in self.probabilities
        ]
        return Table("Probabilities of held-out facts", ["fact", "before", "after"], rows, "largest changes")

    def to_json(self) -> dict[str, Any]:
        return {"changed": self.changed, "summary": self.summary, **asdict(self)}

    def records(self) -> Rows:
        """All changes in one table: columns part, name, before and after."""
        rows = [("settings", row["setting"], row["before"], row["after"]) for row in self.settings]
        rows += [("metrics", name, each.control, each.model) for name, each in self.metrics.items()]
        rows += [("relations", row["relation"], row["before"], row["after"]) for row in self.relations]
        rows += [("answers", row["query"], row["before"], row["after"]) for row in self.answers]
        for row in self.probabilities:
            rows.append(("probabilities", ", ".join(row[name] for name in COLUMNS), row["before"], row["after"]))
        return [dict(zip(("part", "name", "before", "after"), map(_text, row), strict=True)) for row in rows]


def verdict(comparison: PairedComparison) -> Literal["the same", "no clear change", "better", "worse"]:
    """What a comparison of a metric shows; a change is clear if a bootstrap and a sign-flip test both find it."""
    if comparison.standard_error == comparison.difference == 0:
        return "the same"
    if not comparison.is_significant(ALPHA):
        return "no clear change"
    return "better" if comparison.difference > 0 else "worse"


def _table(title: str, columns: Sequence[str], rows: Rows, caption: str | None = None) -> Table:
    return Table(
        title, columns, [["-" if row[name] is None else row[name] for name in columns] for row in rows], caption
    )


def _name(run: Run) -> str:
    return str(run.path or f"{title(run.config)} on {run.graph.name}")


def _text(value: Any) -> str:
    """A value to be read in a table of values of all kinds."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _common_facts(first: Graph, second: Graph) -> tuple[str, list[Fact]]:
    """The test facts of both graphs, or the validation facts where there are none, that neither trains on."""

    def named(graph: Graph, split: str) -> dict[Fact, None]:
        facts = graph.splits[split]
        columns = (graph.entities, facts.head), (graph.relations, facts.relation), (graph.entities, facts.tail)
        ids = [[vocabulary.ids[index] for index in column.tolist()] for vocabulary, column in columns]
        return dict.fromkeys(zip(*ids, strict=True))

    trained = named(first, "train").keys() | named(second, "train").keys()
    for split in ("test", "valid"):
        others = named(second, split)
        if facts := [fact for fact in named(first, split) if fact in others and fact not in trained]:
            return split, facts
    return "test", []


def _changed_settings(before: Run, after: Run) -> Rows:
    first, second = flatten(before.config), flatten(after.config)
    return [{"setting": key, "before": first[key], "after": second[key]} for key in first if first[key] != second[key]]


def _compare_metrics(before: Tensor, after: Tensor, relations: Sequence[str], seed: int) -> dict[str, PairedComparison]:
    """From ranks (facts, 2); the queries of one relation, or of one fact where relations are few, may be dependent."""
    number = {relation: position for position, relation in enumerate(dict.fromkeys(relations))}
    by_relation = len(number) >= MIN_RELATIONS
    cluster = torch.tensor([number[relation] for relation in relations]) if by_relation else torch.arange(len(before))
    values = {"mrr": [ranks.reciprocal() for ranks in (after, before)]}
    values |= {f"hits@{k}": [(ranks <= k).double() for ranks in (after, before)] for k in HITS}
    return {
        name: compare_paired(new.flatten(), old.flatten(), cluster.repeat_interleave(2), BOOTSTRAP_SAMPLES, seed=seed)
        for name, (new, old) in values.items()
    }


def _compare_relations(before: Tensor, after: Tensor, relations: Sequence[str]) -> Rows:
    """The MRR of each relation, those that add most to the change of the whole first."""
    rows: Rows = []
    for relation in dict.fromkeys(relations):
        mask = torch.tensor([other == relation for other in relations])
        means = {name: float(ranks[mask].reciprocal().mean()) for name, ranks in (("before", before), ("after", after))}
        rows.append({"relation": relation, "facts": int(mask.sum()), **means})
    return sorted(rows, key=lambda row: -row["facts"] * abs(row["after"] - row["before"]))


def _compare_answers(runs: tuple[Run, Run], facts: list[Fact], top: int) -> dict[str, Any]:
    """The first answer of each run to (head, relation, ?) and (?, relation, tail) of facts it is not told."""
    queries = [(h, r, None) for h, r, _ in facts] + [(None, r, t) for _, r, t in facts]
    true = [t for _, _, t in facts] + [h for h, _, _ in facts]
    before, after = (_first_answers(run, queries) for run in runs)
    changed = [row for row in range(len(queries)) if before[row] != after[row]]
    changed.sort(key=lambda row: (before[row] == true[row]) == (after[row] == true[row]))

    def name(identifier: str | None) -> str | None:
        entities = next((run.graph.entities for run in runs if identifier in run.graph.entities.ids), None)
        return identifier if entities is None or identifier is None else entities.name(entities.index(identifier))

    rows = []
    for row in changed[:top]:
        query = ", ".join(name(part) or "?" for part in queries[row])
        rows.append({"query": query, "true": name(true[row]), "before": name(before[row]), "after": name(after[row])})
    right = [sum(one == answer for one, answer in zip(each, true, strict=True)) for each in (before, after)]
    return {"queries": len(queries), "changed_answers": len(changed), "right": (right[0], right[1]), "answers": rows}


def _first_answers(run: Run, queries: Sequence[tuple[str | None, str, str | None]]) -> list[str | None]:
    """The identifier of the best new answer to each query by a run whose graph has its training facts alone."""
    none = run.graph.train[:0]
    blind = replace(run, graph=replace(run.graph, valid=none, test=none))
    first: list[str | None] = [None] * len(queries)
    asked = read_queries(list(queries), run.graph)
    for query, answers in answer(open_run(blind), asked, top=1, new_only=True, probability=False):
        first[query.row] = answers[0].id if answers else None
    return first


def _compare_probabilities(
    facts: list[Fact], before: Sequence[float | None], after: Sequence[float | None], top: int
) -> dict[str, Any]:
    """The facts whose probability, as `score` gives it, changed most; runs with few validation facts have none."""
    rows: Rows = []
    for fact, old, new in zip(facts, before, after, strict=True):
        if old is not None and new is not None:
            rows.append({**dict(zip(COLUMNS, fact, strict=True)), "before": old, "after": new})
    changed = [row for row in rows if row["before"] != row["after"]]
    changed.sort(key=lambda row: -abs(row["after"] - row["before"]))
    noticeable = sum(abs(row["after"] - row["before"]) >= NOTICEABLE for row in rows)
    return {"rated": len(rows), "changed_probabilities": noticeable, "probabilities": changed[:top]}
