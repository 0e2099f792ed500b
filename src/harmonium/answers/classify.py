"""Triplet classification: a fact is labelled true when its score reaches the threshold of its relation.

Thresholds are chosen on labelled validation facts and judged on labelled test facts. They answer yes or no; how probable
a fact is says the calibrated probability (probability.py), here as everywhere else. The two need not agree at one half:
thresholds are best where half of the facts are false, the probability counts every fact that the graph lacks as false.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import optional_floats
from harmonium.answers.score import Facts
from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.fact_file import read_labelled, read_triples
from harmonium.data.tables.reading_options import FACT_NAMES as READING
from harmonium.data.tables.reading_options import FactReading
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, refuse_unknown
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, Part, Table, more_rows, one_line
from harmonium.runtime.frames import ResultList, index_of

DRAWS = 50  # attempts among the entities seen in that slot, then as many among all entities
MIN_FACTS_FOR_THRESHOLD = 10  # validation facts of a relation required for a threshold of its own


def classify(
    run: Run | OpenRun | str | Path,
    labelled: str | Path | Sequence[Any] | None = None,
    *,
    seed: int = 0,
    on_bad: OnBad | SkippedRows = "error",
    **reading: Unpack[FactReading],
) -> Classification:
    """Choose a threshold for each relation on validation facts, and judge them on test facts.

    `labelled` is a folder with classification_valid.txt and classification_test.txt, or two such files (or frames, with
    a column `label`). Default: the run's own splits, with as many false facts made from them. `on_bad` and `reading`
    are those of `score`. `label_facts` applies the thresholds to other facts.

    >>> harmonium.classify("runs/demo").metrics["accuracy"]
    """
    refuse_unknown(reading, OPTIONS, READING)
    opened, skipped = open_run(run), SkippedRows.of(on_bad)
    graph = opened.graph
    if labelled is not None and not (isinstance(labelled, list | tuple) and not labelled):
        files = _labelled_files(labelled)
        valid, test = (read_labelled(file, graph, skipped, **reading) for file in files)
        source = " and ".join(file.name if isinstance(file, Path) else type(file).__name__ for file in files)
    else:
        generator = torch.Generator().manual_seed(seed)
        valid, test = labelled_split(graph, "valid", generator), labelled_split(graph, "test", generator)
        source = f"half of them false: another head or tail seen in that slot, seed {seed}"
    return classify_triples(opened.held_out_scores, graph, valid, test, source=source)


OPTIONS = tuple(inspect.signature(classify).parameters)[:-1]


def _labelled_files(labelled: Any) -> tuple[Any, Any]:
    if isinstance(labelled, str | Path) and Path(labelled).is_dir():
        labelled = [labelled]
    files = [Path(file) if isinstance(file, str) else file for file in labelled] if _is_list(labelled) else [labelled]
    if len(files) == 1 and isinstance(files[0], Path) and files[0].is_dir():
        return files[0] / "classification_valid.txt", files[0] / "classification_test.txt"
    if len(files) != 2:
        raise HarmoniumError(f"--labelled is one folder or two files, valid and test; given: {len(files)}")
    return files[0], files[1]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


@dataclass(frozen=True)
class LabelledFact:
    """A fact by name, whether it is labelled true, and its calibrated probability (None where not fitted)."""

    triple: tuple[str, str, str]
    label: bool
    probability: float | None

    def to_json(self) -> dict[str, Any]:
        return dict(zip(COLUMNS, self.triple, strict=True)) | {"label": self.label, "probability": self.probability}


def label_facts(
    run: Run | OpenRun | str | Path,
    facts: Facts,
    classification: Classification,
    *,
    on_bad: OnBad | SkippedRows = "error",
    **reading: Unpack[FactReading],
) -> ResultList[LabelledFact]:
    """Label facts, given and read as those of `score`, by the thresholds of a classification.

    >>> label_facts("runs/demo", "facts.tsv", harmonium.classify("runs/demo"))
    """
    opened, skipped = open_run(run), SkippedRows.of(on_bad)
    results, kept = ResultList[LabelledFact](), list[int]()
    for batch in read_triples(facts, opened.graph, skipped, kept, **reading):
        labels = classification.label(opened.held_out_scores, batch).tolist()
        probabilities = optional_floats(opened.probabilities(batch), len(batch))
        results += map(LabelledFact, opened.graph.names_of(batch), labels, probabilities)
    results.notes, results.index_of_rows = tuple(skipped.notes()), index_of(facts, kept)
    return results


def classify_triples(
    score: Callable[[Triples], Tensor],
    graph: Graph,
    valid: tuple[Triples, Tensor],
    test: tuple[Triples, Tensor],
    minimum: int = MIN_FACTS_FOR_THRESHOLD,
    source: str = "labelled facts",
) -> Classification:
    """Choose thresholds on labelled validation facts, by the scores that a function gives facts, and score test facts.

    A relation with `minimum` validation facts, some true and some false, has a threshold of its own.
    """
    (triples, labels), (test_triples, test_labels) = valid, test
    if labels.all() or not labels.any():
        kind = "true" if labels.any() else "false"
        raise HarmoniumError(f"all {len(labels):,} validation facts are {kind}; a threshold needs both kinds")
    scores = score(triples)
    threshold = best_thresholds(scores, labels, torch.zeros_like(triples.relation), 1, scores.median().item()).item()
    n_true, n_false = (triples.relation[mask].bincount(minlength=graph.n_relations) for mask in (labels, ~labels))
    has_threshold = (n_true > 0) & (n_false > 0) & (n_true + n_false >= minimum)
    thresholds = best_thresholds(scores, labels, triples.relation, graph.n_relations, threshold)
    thresholds = torch.where(has_threshold, thresholds, threshold)
    names, test_scores = graph.relations.unique_names(), score(test_triples)
    return Classification(
        graph.name, source, names, threshold, thresholds, has_threshold, test_scores, test_labels, test_triples.relation
    )


@dataclass(frozen=True)
class Classification(Displayed):
    """Thresholds chosen on validation facts, and the test facts that judge them."""

    graph: str
    source: str  # of the labelled facts
    relations: Sequence[str]
    threshold: float  # for relations with too few validation facts
    thresholds: Tensor  # (n_relations,) float64
    has_threshold: Tensor  # (n_relations,) bool: has a threshold of its own
    scores: Tensor  # (n,) float64, of the test facts
    labels: Tensor  # (n,) bool
    relation: Tensor  # (n,) int64

    def __repr__(self) -> str:
        return one_line(
            self, self.graph, f"accuracy {self.metrics['accuracy']:.3f}", f"{len(self.labels):,} test facts"
        )

    def display(self, title: str = "Classification", top: int = 10) -> Iterator[Part]:
        """Metrics on test facts, and the most frequent relations."""
        rows: list[list[Any]] = [[name.replace("_", " "), value] for name, value in self.metrics.items()]
        yield Table(title, ["metric", f"{len(self.labels):,} test facts"], rows, self.source)
        relations = self.by_relation()
        rows = [
            [name, row["facts"], row["accuracy"], row["threshold"], "its own" if row["own_threshold"] else "shared"]
            for name, row in list(relations.items())[:top]
        ]
        columns = ["relation", "facts", "accuracy", "threshold", ""]
        yield Table("Relations", columns, rows, more_rows(len(relations) - len(rows)))

    def records(self) -> list[dict[str, Any]]:
        """The accuracy of all test facts, then of each relation."""
        everything = {"relation": "all", "facts": len(self.labels), "accuracy": self.metrics["accuracy"]}
        return [everything, *({"relation": name, **row} for name, row in self.by_relation().items())]

    def margins_of(self, score: Callable[[Triples], Tensor], triples: Triples) -> Tensor:
        """(n,): how far the score of each triple is above the threshold of its relation."""
        return score(triples) - self.thresholds[triples.relation.cpu()]

    def label(self, score: Callable[[Triples], Tensor], triples: Triples) -> Tensor:
        """(n,) bool: whether the score of each triple reaches the threshold of its relation."""
        return self.margins_of(score, triples) >= 0

    @property
    def margins(self) -> Tensor:
        """(n,): how far each test fact's score is above the threshold of its relation."""
        return self.scores - self.thresholds[self.relation]

    @property
    def metrics(self) -> dict[str, float]:
        """Accuracy (also with one threshold for all relations) and the quality of the ranking by score."""
        auc, precision = ranking_quality(self.scores, self.labels)
        return {
            "accuracy": ((self.margins >= 0) == self.labels).double().mean().item(),
            "accuracy_one_threshold": ((self.scores >= self.threshold) == self.labels).double().mean().item(),
            "auc": auc,
            "average_precision": precision,
            "auc_of_margins": ranking_quality(self.margins, self.labels)[0],
        }

    def by_relation(self) -> dict[str, dict[str, Any]]:
        """Facts, accuracy and threshold of each relation of the test facts, most frequent first."""
        correct = ((self.margins >= 0) == self.labels).double()
        count = self.relation.bincount()
        accuracy = self.relation.bincount(correct) / count
        rows = {}
        for r in count.argsort(descending=True, stable=True)[: int((count > 0).sum())].tolist():
            row = {"facts": int(count[r]), "accuracy": accuracy[r].item(), "threshold": self.thresholds[r].item()}
            rows[self.relations[r]] = row | {"own_threshold": bool(self.has_threshold[r])}
        return rows

    def to_json(self) -> dict[str, Any]:
        with_threshold = self.has_threshold.nonzero()[:, 0].tolist()
        return {
            "graph": self.graph,
            "source": self.source,
            "facts": {"true": int(self.labels.sum()), "false": int((~self.labels).sum())},
            "metrics": {name: None if math.isnan(value) else value for name, value in self.metrics.items()},
            "threshold": self.threshold,
            "thresholds": {self.relations[r]: self.thresholds[r].item() for r in with_threshold},
            "by_relation": self.by_relation(),
        }


def best_thresholds(scores: Tensor, labels: Tensor, group: Tensor, n_groups: int, near: float) -> Tensor:
    """(n_groups,): the most accurate threshold of each group; among equally accurate ones, the nearest to `near`.

    Within a group sorted by score, a threshold lies halfway between two neighbours (or beyond the ends), and the running
    sum of false minus true facts below it is its accuracy, up to a constant of the group.
    """
    reach = float(scores.max() - scores.min()) or 1.0
    bottom = scores.min().expand(n_groups) - reach  # below each group, for the cut where all is true
    scores, group = torch.cat([bottom, scores]), torch.cat([torch.arange(n_groups), group])
    gain = torch.cat([torch.zeros(n_groups, dtype=torch.int64), 1 - 2 * labels.long()])
    order = scores.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]
    scores, group, gain = scores[order], group[order], gain[order].cumsum(0)
    is_last = torch.cat([group[1:] != group[:-1], torch.tensor([True])])
    above = torch.where(is_last, scores + reach, scores.roll(-1))
    cut, allowed = (scores + above) / 2, above > scores

    def reduce_groups(values: Tensor, mask: Tensor, how: str) -> Tensor:
        return values.new_zeros(n_groups).scatter_reduce(0, group[mask], values[mask], how, include_self=False)

    best = allowed & (gain == reduce_groups(gain, allowed, "amax")[group])
    distance = (cut - near).abs()
    best &= distance == reduce_groups(distance, best, "amin")[group]
    return reduce_groups(cut, best, "amin")


def ranking_quality(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Area under the ROC curve and average precision, equal scores taken together; NaN with one class only."""
    order = scores.argsort(descending=True)
    is_last = torch.cat([scores[order].diff() != 0, torch.tensor([True])])  # of each run of equal scores
    true = labels[order].double().cumsum(0)[is_last]  # facts at or above each distinct score
    total = (torch.arange(len(scores), dtype=torch.float64) + 1)[is_last]
    false, zero = total - true, true.new_zeros(1)
    auc = torch.trapezoid(torch.cat([zero, true]), torch.cat([zero, false])) / (true[-1] * false[-1])
    precision = (torch.cat([zero, true]).diff() * true / total).sum() / true[-1]
    return auc.item(), precision.item()


# Labelled facts -------------------------------------------------------------------------------------------------------


def labelled_split(graph: Graph, split: str, generator: torch.Generator | None = None) -> tuple[Triples, Tensor]:
    """The facts of a split, then as many false ones; labels (n,) bool."""
    facts = graph.split(split)
    labels = torch.arange(2 * len(facts)) < len(facts)
    return Triples.cat([facts, make_false_facts(graph, facts, generator)]), labels


def make_false_facts(graph: Graph, triples: Triples, generator: torch.Generator | None = None) -> Triples:
    """A false fact for each triple: another head or tail seen with the relation, and a fact of no split.

    Where many draws fail, as for a relation with a single tail, the other entity may be any.
    """
    graph = replace(graph, train=Triples.cat([graph.train, triples]))
    known = graph.known_answers(Slot.TAIL)
    heads, tails = graph.slot_candidates(Slot.HEAD), graph.slot_candidates(Slot.TAIL)
    rows, pending = triples.to_rows(), torch.arange(len(triples))
    for draw in range(2 * DRAWS):
        old = triples[pending]
        position, side = torch.rand(2, len(pending), dtype=torch.float64, generator=generator)
        if draw < DRAWS:
            head, tail = _candidate_at(heads, old.relation, position), _candidate_at(tails, old.relation, position)
        else:
            head = tail = (position * graph.n_entities).long()
        is_head = side < 0.5
        new = Triples(torch.where(is_head, head, old.head), old.relation, torch.where(is_head, old.tail, tail))
        rows[pending] = new.to_rows()
        pending = pending[known.contain(new)]
    if len(pending):
        names = ", ".join(graph.names_of(triples[pending[:1]])[0])
        raise HarmoniumError(f"cannot make a false fact from ({names}): every other head and tail gives a known fact")
    return Triples.from_rows(rows)


def _candidate_at(candidates: CsrIndex, relation: Tensor, position: Tensor) -> Tensor:
    """(n,): the candidate at a relative position in [0, 1) among those of each relation."""
    group = torch.searchsorted(candidates.keys, relation)
    return candidates.values[candidates.offsets[group] + (position * candidates.offsets.diff()[group]).long()]
