"""The probability of a missing fact, comparable over questions and relations: what `complete` ranks by.

    probability = sigmoid((w + d_r) . x)

x are the standardised features of a candidate (`candidate_facts.FEATURES`) and a constant, w weights common to all
relations, d_r the deviation of relation r from them, shrunk to zero: each relation has its own regression, and one with
few facts that of all. They are fitted on what `complete` does: the same search with only the facts of train known. Of its
candidates those in valid are labelled true, those in test are left out, and all others are labelled false.

Among these others are the true facts that the graph lacks, which score as those of valid do. Let candidates of one kind
be V facts of valid, F false ones and m V that are missing: V of them are labelled true and m V + F false, and once valid
is known, a share p = m V / (m V + F) of those that are left is true. So the odds of the label are p / m, and with m = 1

    P(labelled true) = p / (1 + p).

So the probabilities of a list add up to the number of its facts that are true if the graph lacks about as many facts, of
the same kinds, as validation holds; if it lacks more, more of them are true (positive and unlabelled examples: Elkan and
Noto 2008). Where people judged predicted facts, their judgements correct it (judgement_correction.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.answers.calibration.judgement_correction import JudgementCorrection, correction_for
from harmonium.answers.candidate_facts import FEATURES, CandidateFacts, CandidateSearch, Progress, one_per_slot
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.scoring import Scorer
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import schema

FILE = "fact_calibration.{}.json"  # in a run folder; fitted again when the model or the facts have changed,
METHOD = 2  # or the features or the fit, which have this number
MINIMUM = 10  # true candidates required for a fit
MAX_PAIRS = 1 << 36  # of heads and tails seen with a relation: half an hour of a core; larger graphs are not calibrated
UNCALIBRATED = (1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.3, 0.3)  # weights of the features where nothing was fitted
MISSING = 1.0  # m: facts that the graph is assumed to lack for each one that validation holds
COMMON_VARIANCE = 1.0  # of the prior of w, centred on UNCALIBRATED, per standardised feature
VARIANCE, INTERCEPT_VARIANCE = 0.3, 1.0  # of the prior of d_r, centred on zero
PROMISING, PER_TRUE = 1000, 20  # candidates of a relation that all are examples: the most promising ones, ...
# ... PROMISING + PER_TRUE for each true one; of the others as many are sampled, and weighted.


def uncalibrated_log_odds(facts: CandidateFacts) -> Tensor:
    """(n,): an order of candidates that needs no fit; no log-odds of anything in particular."""
    return facts.features @ torch.tensor(UNCALIBRATED, dtype=torch.float64)


@dataclass(frozen=True)
class FactCalibration:
    """The weights of one run, for typed candidates or for all."""

    mean: list[float]  # of each feature over the examples
    scale: list[float]  # standard deviation of each feature
    weights: list[float]  # w: of each standardised feature, and the constant
    by_relation: dict[int, list[float]]  # d_r
    true: schema.Count  # true candidates among the examples
    correction: JudgementCorrection | None = None  # learned from judgements of people

    def log_odds(self, facts: CandidateFacts) -> Tensor:
        """(n,) float64."""
        inputs = _standardise(facts.features, torch.tensor(self.mean).double(), torch.tensor(self.scale).double())
        log_odds = inputs @ torch.tensor(self.weights, dtype=torch.float64)
        for relation in facts.triples.relation.unique().tolist():
            if relation in self.by_relation:
                rows = (facts.triples.relation == relation).nonzero()[:, 0]
                log_odds[rows] += inputs[rows] @ torch.tensor(self.by_relation[relation], dtype=torch.float64)
        return log_odds if self.correction is None else self.correction.apply(log_odds, facts.triples.relation)

    def uncorrected(self) -> FactCalibration:
        """The same without what was learned from judgements."""
        return replace(self, correction=None)


# The calibration of a run ---------------------------------------------------------------------------------------------


def fact_calibration_for(
    run: Run, scorer: Scorer, typed: bool = True, progress: Progress | None = None
) -> FactCalibration | None:
    """The calibration of a run: fitted on first use, then kept in its folder; None with too few validation facts."""

    def compute() -> _Kept:
        return _Kept(METHOD, list(FEATURES), fit_fact_calibration(scorer, run.graph, typed, progress))

    file, parse = FILE.format("typed" if typed else "untyped"), partial(_parse, n_relations=run.graph.n_relations)
    calibration = manifest.compute_once(run.path, run.fingerprint, file, parse, compute).calibration
    return None if calibration is None else replace(calibration, correction=correction_for(run))


@dataclass(frozen=True)
class _Kept:
    """The contents of the file; without a calibration where there were too few facts."""

    method: int
    features: list[str]
    calibration: FactCalibration | None


def _parse(value: Any, n_relations: int) -> _Kept | None:
    """What is kept in a run folder; None if it is of another method, a ValueError if its numbers cannot be used."""
    kept = schema.read(_Kept, value)
    if kept.method != METHOD or kept.features != list(FEATURES):
        return None
    if (fit := kept.calibration) is not None:
        lengths = {len(weights) for weights in (fit.weights, *fit.by_relation.values())}
        if len(fit.mean) != len(FEATURES) or len(fit.scale) != len(FEATURES) or lengths != {len(FEATURES) + 1}:
            raise ValueError("lists of other lengths")
        if min(fit.scale) <= 0 or max(fit.by_relation, default=0) >= n_relations:
            raise ValueError("numbers that no fit gives")
    return kept


# Fitting --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Examples:
    """Candidates of one relation, true or false."""

    features: Tensor  # (n, k)
    label: Tensor  # (n,) float64: 0, or 1 for a validation fact, or its weight if that is smaller
    weight: Tensor  # (n,): how many candidates each stands for


def fit_fact_calibration(
    scorer: Scorer, graph: Graph, typed: bool = True, progress: Progress | None = None
) -> FactCalibration | None:
    """Fit the weights on the candidates that are found when only train is known; None if that is impossible."""
    graph = replace(graph, valid=graph.valid.positive())
    search, examples = CandidateSearch.prepare(scorer, graph, ("train",), typed), {}
    heads, tails = search.types.sizes[: 2 * graph.n_relations].split(graph.n_relations)
    if len(graph.valid) < MINIMUM or (heads * tails).sum() > MAX_PAIRS:
        return None
    true, neither = (graph.known_answers(Slot.TAIL, (split,)) for split in ("valid", "test"))
    for relation in range(graph.n_relations):
        facts = search.of_relation(relation, progress=progress)
        directions = [facts.triples]
        if search.traits.symmetric[relation]:
            directions.append(Triples(facts.triples.tail, facts.triples.relation, facts.triples.head))
        label, unknown = (torch.stack([known.contain(d) for d in directions]).any(0) for known in (true, neither))
        kept = ~unknown & one_per_slot(facts, uncalibrated_log_odds(facts), search.traits)
        if kept.any():
            confidence = label.double()
            if graph.valid.weight is not None:
                confidence = torch.stack([graph.valid.confidence_of(d) for d in directions]).amax(0)
            examples[relation] = _sample(facts[kept], confidence[kept])
    n_true = int(sum(part.label.sum() for part in examples.values()))
    return None if n_true < MINIMUM else _fit(examples, n_true)


def _sample(facts: CandidateFacts, label: Tensor) -> _Examples:
    """All candidates that may be true, all promising ones, and every n-th of the others with weight n."""
    promise = uncalibrated_log_odds(facts).masked_fill(label > 0, torch.inf)
    order = promise.argsort(descending=True, stable=True)
    count = PROMISING + PER_TRUE * int((label > 0).sum())
    others = order[count:]
    step = max(1, -(-len(others) // count))
    chosen, sampled = order[:count], others[step // 2 :: step]
    ones = torch.ones(len(chosen), dtype=torch.float64)
    weight = torch.cat([ones, ones.new_full((len(sampled),), len(others) / max(1, len(sampled)))])
    rows = torch.cat([chosen, sampled])
    return _Examples(facts.features[rows], label[rows], weight)


def _fit(examples: dict[int, _Examples], n_true: int) -> FactCalibration:
    everything = torch.cat([part.features for part in examples.values()])
    mean, scale = everything.mean(0), everything.std(0).clamp(min=1e-6)
    inputs = _standardise(everything, mean, scale)
    label, weight = (torch.cat([getattr(part, name) for part in examples.values()]) for name in ("label", "weight"))
    centre = torch.cat([torch.tensor(UNCALIBRATED, dtype=torch.float64) * scale, torch.zeros(1).double()])
    precision = torch.tensor([1 / COMMON_VARIANCE] * len(FEATURES) + [1e-6], dtype=torch.float64)
    common = fit_log_odds(inputs, label, weight, torch.zeros_like(label), centre, precision)
    precision = torch.tensor([1 / VARIANCE] * len(FEATURES) + [1 / INTERCEPT_VARIANCE], dtype=torch.float64)
    by_relation = {}
    sizes = [len(part.label) for part in examples.values()]
    for relation, rows in zip(examples, torch.arange(len(label)).split(sizes), strict=True):
        offset, zero = inputs[rows] @ common, torch.zeros_like(common)
        deviation = fit_log_odds(inputs[rows], label[rows], weight[rows], offset, zero, precision)
        by_relation[relation] = deviation.tolist()
    return FactCalibration(mean.tolist(), scale.tolist(), common.tolist(), by_relation, n_true)


def _standardise(features: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """(n, k + 1): the features in standard units, and the constant 1."""
    return torch.cat([(features - mean) / scale, features.new_ones(len(features), 1)], dim=1)


def fit_log_odds(
    inputs: Tensor, label: Tensor, weight: Tensor, offset: Tensor, centre: Tensor, precision: Tensor
) -> Tensor:
    """w (k,) of largest posterior density for p = sigmoid(offset + inputs @ w) and labels (n,) with the odds p / m.

    The prior of w is normal around `centre` with these precisions, all (k,). Fisher scoring with halved steps.
    """

    def label_log_odds(w: Tensor) -> tuple[Tensor, Tensor]:
        """log(p / m), and its derivative by the log-odds of p."""
        log_odds = offset + inputs @ w
        return F.logsigmoid(log_odds) - math.log(MISSING), (-log_odds).sigmoid()

    def loss(w: Tensor) -> Tensor:
        likelihood = F.binary_cross_entropy_with_logits(label_log_odds(w)[0], label, weight, reduction="sum")
        return likelihood + 0.5 * (precision * (w - centre) ** 2).sum()

    w = centre.clone()
    for _ in range(100):
        log_odds, slope = label_log_odds(w)
        probability = log_odds.sigmoid()
        gradient = inputs.T @ (weight * slope * (probability - label)) + precision * (w - centre)
        information = weight * slope**2 * probability * (1 - probability)
        step = torch.linalg.solve((inputs * information[:, None]).T @ inputs + precision.diag(), gradient)
        before = loss(w)
        while loss(w - step) > before and step.abs().max() > 1e-9:
            step = step / 2
        w = w - step
        if step.abs().max() < 1e-7:
            break
    return w
