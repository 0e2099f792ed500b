"""Triplet classification: is a fact true or false, and how sure is that?

A fact is called true when its score reaches the threshold of its relation; its probability is a logistic function of
the margin, how far above the threshold it is. Both are chosen on validation facts and judged on test facts.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Groups, Slot, Triples
from harmonium.model import GradientGraph
from harmonium.suspicion import refuse_pickle

LABELS = {"1": True, "true": True, "-1": False, "0": False, "false": False}
COLUMNS = ("head", "relation", "tail", "label")
CHUNK = 8192  # triples scored at once
DRAWS = 50  # of a false fact among entities seen in that place, then as many among all entities
BINS = 10  # of the reliability curve
MINIMUM = 10  # validation facts from which a relation has a threshold of its own


# Labelled facts ------------------------------------------------------------------------------------------------------


def read_labelled(path: str | Path, graph: Graph) -> tuple[Triples, Tensor]:
    """Triples and labels (n,) bool from lines of head TAB relation TAB tail TAB label: 1 or true; -1, 0 or false."""
    rows, labels = [], []
    for where, ids, (label,) in _read(Path(path), graph, COLUMNS):
        if label.lower() not in LABELS:
            raise HarmoniumError(f"{where}: the label is '{label}'; expected 1 or true, or else -1, 0 or false")
        rows.append(ids)
        labels.append(LABELS[label.lower()])
    return Triples.from_rows(rows), torch.tensor(labels)


def read_triples(path: str | Path, graph: Graph) -> Triples:
    """Triples from lines of head TAB relation TAB tail, by the names of a graph."""
    return Triples.from_rows([ids for _, ids, _ in _read(Path(path), graph, COLUMNS[:3])])


def _read(path: Path, graph: Graph, columns: Sequence[str]) -> Iterator[tuple[str, list[int], list[str]]]:
    """Each line: where it stands, the ids of its triple, what follows. Plain Python: GPU machines may lack polars."""
    wanted, where = " TAB ".join(columns), None
    refuse_pickle(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not (line := line.rstrip("\r\n")):
                    continue
                where, fields = f"{path}:{number}", line.split("\t")
                if len(fields) != len(columns):
                    found = f"found {len(fields)} column{'s' * (len(fields) != 1)}"
                    raise HarmoniumError(f"{where}: {found}, expected {len(columns)}: {wanted}")
                head, relation, tail, *rest = fields
                try:
                    ids = [graph.entities.index(head), graph.relations.index(relation), graph.entities.index(tail)]
                except HarmoniumError as error:
                    raise HarmoniumError(f"{where}: {error}") from None
                yield where, ids, rest
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HarmoniumError(f"{path}: cannot be read ({reason}); give a UTF-8 file of {wanted}") from error
    if where is None:
        raise HarmoniumError(f"{path}: no triples in it; each line is {wanted}")


def corrupt(graph: Graph, triples: Triples, generator: torch.Generator | None = None) -> Triples:
    """A false fact for each triple: head or tail replaced by an entity seen in that place, never a known fact.

    Known are the facts of every split. Where many draws find nothing, as in a relation with a single tail, the other
    entity may be any.
    """
    graph = replace(graph, train=Triples.cat([graph.train, triples]))
    known, heads, tails = graph.answers(Slot.TAIL), graph.fillers(Slot.HEAD), graph.fillers(Slot.TAIL)
    false, left = triples.rows(), torch.arange(len(triples))
    for draw in range(2 * DRAWS):
        part = triples[left]
        place, side = torch.rand(2, len(left), dtype=torch.float64, generator=generator)
        anyone = (place * graph.n_entities).long()
        head, tail = (anyone if draw >= DRAWS else _seen(group, part.relation, place) for group in (heads, tails))
        change = side < 0.5
        made = Triples(torch.where(change, head, part.head), part.relation, torch.where(change, part.tail, tail))
        false[left] = made.rows()
        left = left[known.contain(made)]
    if len(left):
        names = ", ".join(graph.spell(triples[left[:1]])[0])
        raise HarmoniumError(f"no false fact like ({names}) was found: with another head or tail it is a known fact")
    return Triples.from_rows(false)


def _seen(fillers: Groups, relation: Tensor, place: Tensor) -> Tensor:
    """(n,): the entity at a place in [0, 1) among those seen with each relation."""
    at = torch.searchsorted(fillers.keys, relation)
    return fillers.values[fillers.offsets[at] + (place * fillers.offsets.diff()[at]).long()]


# Scores, thresholds, probabilities -----------------------------------------------------------------------------------


@torch.no_grad()
def score(model: GradientGraph, triples: Triples) -> Tensor:
    """(n,) float64 on the CPU: scores without the constant of the form; of a reciprocal model the mean of both ways."""
    now, parts = model.snapshot(), []
    for part in triples.to(now.relations.device).chunks(CHUNK):
        slots = (Slot.HEAD, Slot.TAIL) if now.reciprocal else (Slot.TAIL,)
        ways = [now.form(now.slot_map(slot, part).apply(now.vectors(part[slot]))) for slot in slots]
        parts.append(torch.stack(ways).double().mean(0).cpu())
    scores = torch.cat(parts)
    if not scores.isfinite().all():
        raise HarmoniumError("the model gave scores that are not numbers; train again with a smaller learning rate")
    return scores


def best_thresholds(scores: Tensor, labels: Tensor, group: Tensor, n_groups: int, near: float) -> Tensor:
    """(n_groups,): the threshold of most accuracy for each group; of equally good ones, the nearest to `near`.

    Sorted within its group, a score may be the last that is called false, or none is: a threshold lies halfway to the
    next score. The running sum of false less true is the accuracy of each cut, up to a constant of the group.
    """
    reach = float(scores.max() - scores.min()) or 1.0
    nobody = scores.new_full((n_groups,), scores.min() - reach)  # below each group, for the cut where all is true
    scores, group = torch.cat([nobody, scores]), torch.cat([torch.arange(n_groups), group])
    gain = torch.cat([torch.zeros(n_groups, dtype=torch.int64), 1 - 2 * labels.long()])
    order = scores.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]
    scores, group, gain = scores[order], group[order], gain[order].cumsum(0)
    last = torch.cat([group[1:] != group[:-1], torch.tensor([True])])
    above = torch.where(last, scores + reach, scores.roll(-1))
    cut, allowed = (scores + above) / 2, above > scores

    def of_group(values: Tensor, among: Tensor, how: str) -> Tensor:
        empty = values.new_zeros(n_groups)
        return empty.scatter_reduce(0, group[among], values[among], how, include_self=False)

    best = allowed & (gain == of_group(gain, allowed, "amax")[group])
    distance = (cut - near).abs()
    best &= distance == of_group(distance, best, "amin")[group]
    return of_group(cut, best, "amin")


def platt(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Slope and intercept of probability = sigmoid(slope * score + intercept)."""
    slopes, intercept = logistic(scores[:, None], labels)
    return slopes.item(), intercept


def logistic(inputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """Slopes (k,) and intercept of probability = sigmoid(inputs @ slopes + intercept), inputs (n, k): Newton steps.

    The targets are Platt's, a little inside 0 and 1, so that the slopes stay finite when an input separates all.
    """
    true, false = labels.sum(), (~labels).sum()
    target = torch.where(labels, (true + 1) / (true + 2), 1 / (false + 2)).double()
    centre, spread = inputs.mean(0), inputs.std(0).clamp(min=1e-12)
    inputs = torch.cat([(inputs - centre) / spread, torch.ones_like(inputs[:, :1])], dim=1)  # (n, k + 1)
    ridge = 1e-9 * len(inputs) * torch.eye(inputs.shape[1], dtype=torch.float64)
    weights = inputs.new_zeros(inputs.shape[1])

    def loss(weights: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(inputs @ weights, target)

    for _ in range(100):
        found = (inputs @ weights).sigmoid()
        hessian = (inputs * (found * (1 - found))[:, None]).T @ inputs + ridge
        step = torch.linalg.solve(hessian, inputs.T @ (found - target))
        while loss(weights - step) > loss(weights):
            step = step / 2
        weights = weights - step
        if step.abs().max() < 1e-10:
            break
    slopes = weights[:-1] / spread
    return slopes, (weights[-1] - slopes @ centre).item()


def reliability(probability: Tensor, labels: Tensor) -> list[dict[str, float | None]]:
    """In equal bins of probability: how many facts, their mean probability, and the share that is true."""
    part = (probability * BINS).long().clamp(max=BINS - 1)
    facts, said, true = (
        torch.bincount(part, weights, minlength=BINS).tolist() for weights in (None, probability, labels.double())
    )
    return [
        {
            "from": i / BINS,
            "to": (i + 1) / BINS,
            "facts": facts[i],
            "probability": said[i] / facts[i] if facts[i] else None,
            "true": true[i] / facts[i] if facts[i] else None,
        }
        for i in range(BINS)
    ]


def ranking_quality(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Area under the ROC curve and average precision, facts of equal score taken together; NaN with one class only."""
    order = scores.argsort(descending=True)
    last = torch.cat([scores[order].diff() != 0, torch.tensor([True])])
    true = labels[order].double().cumsum(0)[last]  # facts at or above each distinct score
    total = (torch.arange(len(scores), dtype=torch.float64) + 1)[last]
    false, none = total - true, true.new_zeros(1)
    auc = torch.trapezoid(torch.cat([none, true]), torch.cat([none, false])) / (true[-1] * false[-1])
    precision = (torch.cat([none, true]).diff() * true / total).sum() / true[-1]
    return auc.item(), precision.item()


# The classifier ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classification:
    """A classifier of facts, chosen on validation facts, and how it did on test facts."""

    graph: str
    source: str  # where the labelled facts come from
    relations: Sequence[str]
    threshold: float  # for relations with too few validation facts
    thresholds: Tensor  # (n_relations,) float64
    own: Tensor  # (n_relations,) bool: has a threshold of its own
    slope: float  # probability = sigmoid(slope * margin + intercept)
    intercept: float
    scores: Tensor  # (n,) float64, of the test facts
    labels: Tensor  # (n,) bool
    relation: Tensor  # (n,) int64

    def margins(self, scores: Tensor, relation: Tensor) -> Tensor:
        """(n,): how far each score is above the threshold of its relation."""
        return scores - self.thresholds[relation]

    def probability(self, margins: Tensor) -> Tensor:
        return (self.slope * margins + self.intercept).sigmoid()

    def label(self, model: GradientGraph, triples: Triples) -> tuple[Tensor, Tensor]:
        """Whether each triple is called true, (n,) bool, and its probability, (n,)."""
        margins = self.margins(score(model, triples), triples.relation.cpu())
        return margins >= 0, self.probability(margins)

    @property
    def metrics(self) -> dict[str, float]:
        """Accuracy (also with one threshold for all), ranking quality, and how far probabilities are from the truth."""
        margins, truth = self.margins(self.scores, self.relation), self.labels.double()
        auc, precision = ranking_quality(self.scores, self.labels)
        gaps = [part["facts"] * abs(part["probability"] - part["true"]) for part in self.reliability() if part["facts"]]
        return {
            "accuracy": ((margins >= 0) == self.labels).double().mean().item(),
            "accuracy_one_threshold": ((self.scores >= self.threshold) == self.labels).double().mean().item(),
            "auc": auc,
            "average_precision": precision,
            "auc_of_margins": ranking_quality(margins, self.labels)[0],
            "brier": (self.probability(margins) - truth).square().mean().item(),
            "log_loss": F.binary_cross_entropy_with_logits(self.slope * margins + self.intercept, truth).item(),
            "calibration_error": sum(gaps) / len(truth),
        }

    def reliability(self) -> list[dict[str, float | None]]:
        """How often test facts are true beside how probable they were said to be."""
        return reliability(self.probability(self.margins(self.scores, self.relation)), self.labels)

    def by_relation(self) -> dict[str, dict[str, Any]]:
        """Of each relation that was tested, most frequent first: facts, accuracy, threshold and whether it is its own."""
        right = (self.margins(self.scores, self.relation) >= 0) == self.labels
        count = self.relation.bincount(minlength=len(self.relations))
        correct = self.relation.bincount(right.double(), minlength=len(self.relations))
        return {
            self.relations[r]: {
                "facts": int(count[r]),
                "accuracy": (correct[r] / count[r]).item(),
                "threshold": self.thresholds[r].item(),
                "own_threshold": bool(self.own[r]),
            }
            for r in count.argsort(descending=True, stable=True).tolist()
            if count[r]
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "source": self.source,
            "facts": {"true": int(self.labels.sum()), "false": int((~self.labels).sum())},
            "metrics": {name: None if math.isnan(value) else value for name, value in self.metrics.items()},
            "probability": {"slope": self.slope, "intercept": self.intercept},
            "threshold": self.threshold,
            "thresholds": {self.relations[r]: self.thresholds[r].item() for r in self.own.nonzero()[:, 0].tolist()},
            "reliability": self.reliability(),
            "by_relation": self.by_relation(),
        }


def classify(
    model: GradientGraph,
    graph: Graph,
    valid: tuple[Triples, Tensor],
    test: tuple[Triples, Tensor],
    minimum: int = MINIMUM,
    source: str = "labelled facts",
) -> Classification:
    """Choose thresholds and probabilities on labelled validation facts and judge them on test facts.

    A relation has its own threshold when validation has `minimum` facts of it, true ones and false ones.
    """
    (triples, labels), (tested, truth) = valid, test
    if labels.all() or not labels.any():
        raise HarmoniumError(
            f"all {len(labels):,} validation facts are {'true' if labels.any() else 'false'}; "
            "a threshold needs both true and false ones"
        )
    scores = score(model, triples)
    threshold = best_thresholds(scores, labels, torch.zeros_like(triples.relation), 1, scores.median().item()).item()
    counts = [triples.relation[mask].bincount(minlength=graph.n_relations) for mask in (labels, ~labels)]
    own = (counts[0] > 0) & (counts[1] > 0) & (counts[0] + counts[1] >= minimum)
    thresholds = best_thresholds(scores, labels, triples.relation, graph.n_relations, threshold)
    thresholds = torch.where(own, thresholds, threshold)
    return Classification(
        graph.name, source, graph.relations.titles(), threshold, thresholds, own,
        *platt(scores - thresholds[triples.relation], labels), score(model, tested), truth, tested.relation,
    )  # fmt: skip


def labelled(graph: Graph, split: str, generator: torch.Generator | None = None) -> tuple[Triples, Tensor]:
    """The facts of a split and as many false ones made from them."""
    facts = graph.split(split)
    labels = torch.arange(2 * len(facts)) < len(facts)
    return Triples.cat([facts, corrupt(graph, facts, generator)]), labels
