"""The probability of a fact: one calibrated number, the same in every command.

    probability = sigmoid(a * margin + b * log(1 + known) + c)
    margin      = log p / (1 - p),  p = exp(score) / sum over all candidates of exp(score)

`known` counts the other known answers of the query, which take their share of the softmax. a, b and c are fitted for each
open slot by logistic regression on a sample of the queries of train and valid: facts of valid are true, whatever is not a
fact counts as false. True facts that the graph lacks thus count against an answer, so the probability is right when the
graph lacks about as many facts as validation holds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import Mask, chunk_size, score_and_log_normaliser, select_block, top_candidates
from harmonium.model.scoring import Scorer
from harmonium.run.run import Run, open_run
from harmonium.runtime import storage

FILE = "calibration.json"  # in a run folder; fitted again when the model or the facts have changed
QUERIES = 600  # sampled for each slot, once to fit and once to judge
TOP = 100  # candidates of each query that are examples
MINIMUM = 10  # true examples required for a fit
BINS = 10
ReliabilityBin = dict[str, Any]  # from, to, facts; probability and true: means over its facts, None where it has none


# The formula ----------------------------------------------------------------------------------------------------------


def features(scores: Tensor, log_normaliser: Tensor, known: Tensor) -> Tensor:
    """(..., 2) float64 on the CPU: the margin and log(1 + known); `log_normaliser` is the log-sum-exp of all scores."""
    log_p = (scores.double() - log_normaliser.double()).cpu().clamp(max=-1e-7)  # the resolution of float32 scores
    margin = log_p - torch.log(-torch.expm1(log_p))
    return torch.stack([margin, torch.log1p(known.double().cpu()).expand_as(margin)], dim=-1)


@dataclass(frozen=True)
class SlotCalibration:
    """The coefficients of one open slot, and how its probabilities did on facts that were not used to fit them."""

    margin: float  # a
    known: float  # b
    intercept: float  # c
    split: str  # the split that judged it
    questions: int
    answers: int  # examples: the best candidates of the questions
    true: int
    log_loss: float  # mean over the examples
    base_log_loss: float  # with the same probability for all
    calibration_error: float  # mean |probability - share of true ones| over the bins above the lowest
    reliability: list[ReliabilityBin]

    def logits(self, scores: Tensor, log_normaliser: Tensor, known: Tensor) -> Tensor:
        """The log-odds that answers are true; arguments as those of `features`."""
        weights = torch.tensor([self.margin, self.known], dtype=torch.float64)
        return features(scores, log_normaliser, known) @ weights + self.intercept

    def probabilities(self, scores: Tensor, log_normaliser: Tensor, known: Tensor) -> Tensor:
        return self.logits(scores, log_normaliser, known).sigmoid()


@dataclass(frozen=True)
class Calibration:
    """Turns scores into probabilities; a slot with too few validation facts has no fit, and its answers no probability."""

    graph: str
    fits: dict[Slot, SlotCalibration]

    def of_facts(self, scorer: Scorer, graph: Graph, triples: Triples, slot: Slot = Slot.TAIL) -> Tensor | None:
        """(n,): the probability of each triple as the answer to its query with `slot` open."""
        if slot not in self.fits:
            return None
        others = count_other_answers(graph.known_answers(slot, queries=triples), triples)
        return self.fits[slot].probabilities(*score_and_log_normaliser(scorer, slot, triples), others)

    def to_json(self) -> dict[str, Any]:
        return {"graph": self.graph, "slots": {slot.value: asdict(fit) for slot, fit in self.fits.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Calibration:
        return cls(value["graph"], {Slot(slot): SlotCalibration(**fit) for slot, fit in value["slots"].items()})


def count_other_answers(known: KnownAnswers, triples: Triples) -> Tensor:
    """(n,): how many known answers the query of each triple has besides that triple."""
    return known.of(triples)[0].bincount(minlength=len(triples)) - known.contain(triples).long()


# The calibration of a run ---------------------------------------------------------------------------------------------


_fitted: dict[str, Calibration] = {}  # by the fingerprint of the run


def calibration_for(run: Run | str | Path, progress: Callable[[int], None] | None = None) -> Calibration:
    """The calibration of a run: fitted on first use, then kept in its folder."""
    run = open_run(run)
    key = run.fingerprint
    if key not in _fitted:
        kept = _read(run.path, key)
        _fitted[key] = kept or fit_calibration(run.model, run.graph, progress=progress)
        if kept is None and run.path is not None:
            with contextlib.suppress(OSError):  # the folder may be read-only
                storage.write(run.path / FILE, storage.to_json({"of": key, **_fitted[key].to_json()}))
    return _fitted[key]


def _read(path: Path | None, key: str) -> Calibration | None:
    """The calibration kept in a run folder, if there is one and it is of this content."""
    if path is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads((path / FILE).read_bytes())
            if kept["of"] == key:
                return Calibration.from_json(kept)
    return None


# Fitting --------------------------------------------------------------------------------------------------------------


def fit_calibration(
    scorer: Scorer, graph: Graph, count: int = QUERIES, progress: Callable[[int], None] | None = None
) -> Calibration:
    """Fit on valid and judge on test, or on valid again where there is no test split."""
    scorer, fits = scorer.prepare(), {}
    judge = "test" if len(graph.test) else "valid"
    for slot in Slot:
        inputs, labels, _ = _examples(scorer, graph, slot, "valid", count, progress)
        if not MINIMUM <= labels.sum() < len(labels):
            continue
        slopes, intercept = fit_logistic(inputs, labels)
        if slopes[0] <= 0:  # scores that carry no information
            continue
        inputs, labels, n_queries = _examples(scorer, graph, slot, judge, count, progress)
        logits, truth = inputs @ slopes + intercept, labels.double()
        bins = reliability_bins(logits.sigmoid(), labels)
        errors = [b["facts"] * abs(b["probability"] - b["true"]) for b in bins[1:] if b["facts"]]
        fits[slot] = SlotCalibration(
            margin=slopes[0].item(),
            known=slopes[1].item(),
            intercept=intercept,
            split=judge,
            questions=n_queries,
            answers=len(labels),
            true=int(labels.sum()),
            log_loss=F.binary_cross_entropy_with_logits(logits, truth).item(),
            base_log_loss=F.binary_cross_entropy(truth.mean().expand_as(truth), truth).item(),
            calibration_error=float(sum(errors) / max(sum(b["facts"] for b in bins[1:]), 1)),
            reliability=bins,
        )
    return Calibration(graph.name, fits)


def fit_logistic(inputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """Slopes (k,) and intercept of probability = sigmoid(inputs @ slopes + intercept), inputs (n, k), by Newton's method.

    The targets are Platt's, slightly inside 0 and 1, so that slopes stay finite when an input separates the labels.
    """
    n_true, n_false = labels.sum(), (~labels).sum()
    target = torch.where(labels, (n_true + 1) / (n_true + 2), 1 / (n_false + 2)).double()
    mean, deviation = inputs.mean(0), inputs.std(0).clamp(min=1e-12)
    inputs = torch.cat([(inputs - mean) / deviation, torch.ones_like(inputs[:, :1])], dim=1)  # (n, k + 1)
    ridge = 1e-9 * len(inputs) * torch.eye(inputs.shape[1], dtype=torch.float64)
    weights = inputs.new_zeros(inputs.shape[1])

    def loss(weights: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(inputs @ weights, target)

    for _ in range(100):
        probability = (inputs @ weights).sigmoid()
        hessian = (inputs * (probability * (1 - probability))[:, None]).T @ inputs + ridge
        step = torch.linalg.solve(hessian, inputs.T @ (probability - target))
        while loss(weights - step) > loss(weights):
            step = step / 2
        weights = weights - step
        if step.abs().max() < 1e-10:
            break
    slopes = weights[:-1] / deviation
    return slopes, (weights[-1] - slopes @ mean).item()


def reliability_bins(probability: Tensor, labels: Tensor) -> list[ReliabilityBin]:
    """In equal bins of probability: the number of facts, their mean probability, and the share that is true."""
    index = (probability * BINS).long().clamp(max=BINS - 1)
    facts = torch.bincount(index, minlength=BINS)
    expected = torch.bincount(index, probability, minlength=BINS)
    true = torch.bincount(index, labels.double(), minlength=BINS)
    bins: list[ReliabilityBin] = []
    for i, (n, p, t) in enumerate(zip(facts.tolist(), expected.tolist(), true.tolist(), strict=True)):
        means = {"probability": p / n if n else None, "true": t / n if n else None}
        bins.append({"from": i / BINS, "to": (i + 1) / BINS, "facts": n, **means})
    return bins


def _examples(
    scorer: Scorer, graph: Graph, slot: Slot, split: str, count: int, progress: Callable[[int], None] | None
) -> tuple[Tensor, Tensor, int]:
    """Features (n, 2) and labels (n,) of the best candidates of a sample of queries, and the number of queries.

    Facts of earlier splits are known and no candidates; facts of later splits are neither true nor false.
    """
    number = SPLITS.index(split)
    earlier, later = SPLITS[:number], SPLITS[number + 1 :]
    queries = distinct_queries(graph, slot, (*earlier, split))
    queries = queries[torch.randperm(len(queries), generator=torch.Generator().manual_seed(number))[:count]]
    known, true = graph.known_answers(slot, earlier), graph.known_answers(slot, (split,))
    excluded = graph.known_answers(slot, (*earlier, *later))
    inputs, labels = [torch.empty(0, 2, dtype=torch.float64)], [torch.empty(0, dtype=torch.bool)]
    for chunk in queries.chunks(chunk_size(scorer, slot, queries) if len(queries) else 1):
        top = top_candidates(scorer, slot, chunk, TOP, exclude(excluded.of(chunk)))
        allowed = top.scores.isfinite().cpu()
        n_known = known.of(chunk)[0].bincount(minlength=len(chunk))[:, None]
        inputs.append(features(top.scores, top.log_normaliser, n_known)[allowed])
        labels.append(are_known(true, slot, chunk, top.ids)[allowed])
        if progress:
            progress(len(chunk))
    return torch.cat(inputs), torch.cat(labels), len(queries)


def exclude(pairs: tuple[Tensor, Tensor]) -> Mask:
    """A mask of the candidates in (row, candidate) pairs."""

    def mask(start: int, scores: Tensor) -> None:
        scores[select_block(pairs, start, scores.shape[1])] = -torch.inf

    return mask


def distinct_queries(graph: Graph, slot: Slot, splits: Sequence[str]) -> Triples:
    """Every distinct query with `slot` open that the facts of these splits answer."""
    keys = graph.known_answers(slot, splits).index.keys
    first, second = keys // graph.n_entities, keys % graph.n_entities  # the order of KnownAnswers.keys
    open_slot = torch.zeros_like(keys)
    if slot is Slot.RELATION:
        return Triples(first, open_slot, second)
    return Triples(open_slot, first, second) if slot is Slot.HEAD else Triples(second, first, open_slot)


def are_known(known: KnownAnswers, slot: Slot, queries: Triples, candidates: Tensor) -> Tensor:
    """(n, k) bool: whether the queries with each of the candidates (n, k) in the open slot are known facts."""
    columns = {s: queries[s].cpu().repeat_interleave(candidates.shape[1]) for s in Slot}
    columns[slot] = candidates.cpu().flatten()
    return known.contain(Triples(columns[Slot.HEAD], columns[Slot.RELATION], columns[Slot.TAIL])).view(candidates.shape)
