"""The probability that a fact is true, and how complete a graph is: one regression answers both.

Let the candidates be all facts that `complete` could list when only train facts are known. Those that turn out to be
validation facts are labelled; the others are unlabelled, and some of them are true as well: the facts that the graph lacks.
With features x of a candidate,

    P(true | x) = sigmoid(a(x)),           a(x) = (w + d_r) . x      for relation r
    P(labelled | true, r) = c_r,            logit(c_r) = mu + e_r

so that P(labelled | x) = c_r sigmoid(a(x)). It saturates at c_r: however good a candidate looks, no more than that share of
its like is labelled, because the rest of its like is missing from the graph. This saturation is what shows how many facts a
graph lacks: (1 - c_r) / c_r for each validation fact (positive and unlabelled examples, Elkan and Noto 2008; here c_r is
estimated together with a). A graph that lacks nothing has c_r = 1: near its best validation facts nothing is unlabelled.

Of an unlabelled candidate

    log-odds of being true = a(x) + log(1 - c_r).

w, d_r, mu and e_r have Gaussian priors: relations with few facts share what all have in common (label_fit.py). All
candidates are examples, also those that would not be listed beside a better answer. Where people judged predicted facts,
their judgements correct the log-odds (judgement_correction.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.judgement_correction import JudgementCorrection, correction_for
from harmonium.answers.calibration.label_fit import LabelledExamples, Z, fit_calibrated, missing_bound
from harmonium.answers.candidate_facts import FEATURES, CandidateFacts, CandidateSearch, Progress
from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.scoring import Scorer
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import schema

FILE = "fact_calibration.json"  # in a run folder; fitted again when the model or the facts have changed,
METHOD = 5  # or the features or the fit, which have this number
MINIMUM = 10  # true candidates required for a fit
MAX_PAIRS = 1 << 36  # of heads and tails seen with a relation: half an hour of a core; larger graphs are not calibrated
UNCALIBRATED = {  # weights of features where nothing was fitted
    "tail margin": 1.0, "head margin": 1.0, "tails": 1.0, "heads": 1.0, "head type": 0.3, "tail type": 0.3,
}  # fmt: skip
PROMISING, PER_TRUE = 1000, 20  # candidates of a relation that all are examples: the most promising ones, ...
# ... PROMISING + PER_TRUE for each true one; of the others as many are sampled, and weighted.
MODEL_ERROR = 0.35  # standard deviation of log((1 - c) / c) that no fit knows of: sigmoid(a) is only a model


def uncalibrated_log_odds(facts: CandidateFacts) -> Tensor:
    """Heuristic score (n,) that orders candidates before calibration. Not a probability."""
    return facts.features @ torch.tensor([UNCALIBRATED.get(name, 0.0) for name in FEATURES], dtype=torch.float64)


@dataclass(frozen=True)
class Completeness:
    """How many facts of a relation the graph lacks, by what held-out facts say."""

    relation: int
    known: int
    missing: float
    missing_low: float  # of a 90 % interval
    missing_high: float
    held_out: int  # facts on which this rests

    @property
    def share(self) -> float:
        """Known facts among all true ones."""
        return self.known / (self.known + self.missing) if self.known else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The share, from low to high."""
        if not self.known:
            return 0.0, 1.0
        return self.known / (self.known + self.missing_high), self.known / (self.known + self.missing_low)


@dataclass(frozen=True)
class FactCalibration:
    """The weights of one run."""

    mean: list[float]  # of each input over the examples
    scale: list[float]  # standard deviation of each input
    weights: list[float]  # w: of each standardised input, and the constant
    by_relation: dict[int, list[float]]  # d_r
    label_log_odds: float  # mu
    label_log_odds_of: dict[int, float]  # mu + e_r
    label_deviation_of: dict[int, float]  # standard deviation of mu + e_r
    label_deviation: float  # of that of a relation without examples
    missing_bound_of: dict[int, float]  # at most so many missing facts for each held-out one (label_fit.missing_bound)
    true: schema.Count  # true candidates among the examples
    correction: JudgementCorrection | None = None  # learned from judgements of people

    def log_odds(self, facts: CandidateFacts) -> Tensor:
        """(n,) float64: that facts which the graph does not have are true."""
        z = _standardise(_inputs(facts.features), torch.tensor(self.mean).double(), torch.tensor(self.scale).double())
        log_odds = z @ torch.tensor(self.weights, dtype=torch.float64)
        for relation in facts.triples.relation.unique().tolist():
            rows = (facts.triples.relation == relation).nonzero()[:, 0]
            if relation in self.by_relation:
                log_odds[rows] += z[rows] @ torch.tensor(self.by_relation[relation], dtype=torch.float64)
            label = self.label_log_odds_of.get(relation, self.label_log_odds)
            log_odds[rows] -= math.log1p(math.exp(min(label, 500.0)))  # log(1 - c)
        return log_odds if self.correction is None else self.correction.apply(log_odds, facts.triples.relation)

    def probabilities(self, facts: CandidateFacts) -> Tensor:
        """(n,) float64."""
        return self.log_odds(facts).sigmoid()

    def spread(self, relations: Tensor) -> Tensor:
        """(n,) float64: standard deviation of log-odds for not knowing how many facts these relations (n,) lack."""
        deviation = [self.label_deviation_of.get(relation, self.label_deviation) for relation in relations.tolist()]
        return torch.tensor(deviation, dtype=torch.float64).hypot(torch.tensor(MODEL_ERROR, dtype=torch.float64))

    def highest_shift(self, relation: int, deviation: float) -> float:
        """By how much the log of the number of missing facts may be higher than estimated, at the end of an interval.

        The estimate rests on what relations have in common. A relation may be unlike the others; only the bound says how
        many facts it may lack.
        """
        estimate = -self.label_log_odds_of.get(relation, self.label_log_odds)
        bound = self.missing_bound_of.get(relation)
        return max(Z * deviation, 0.0 if bound is None else math.log(bound) - estimate)

    def expected_true(self, probabilities: Tensor, relations: Tensor) -> tuple[float, float, float]:
        """How many of some facts are true, by their probabilities, and a 90 % interval of that number."""
        spread = self.spread(relations)
        pairs = zip(relations.tolist(), spread.tolist(), strict=True)
        highest = torch.tensor([self.highest_shift(*pair) for pair in pairs], dtype=torch.float64)
        shifts = -Z * spread, torch.zeros_like(spread), highest
        low, expected, high = ((probabilities.logit() + shift).sigmoid().sum().item() for shift in shifts)
        return expected, low, high

    def uncorrected(self) -> FactCalibration:
        """Without what was learned from judgements."""
        return replace(self, correction=None)

    def completeness(self, graph: Graph) -> list[Completeness]:
        """How complete each relation is that has facts: (1 - c) / c facts are missing for each held-out one.

        Judgements that raise or lower the odds of predicted facts raise or lower that number alike.
        """
        known = graph.facts().positive().relation.bincount(minlength=graph.n_relations)
        held_out = graph.valid.positive().relation.bincount(minlength=graph.n_relations)
        total, total_known = int(held_out.sum()), int(known.sum())
        relations = []
        for relation in known.nonzero()[:, 0].tolist():
            mean = -self.label_log_odds_of.get(relation, self.label_log_odds)  # of log((1 - c) / c)
            if self.correction is not None:
                mean += self.correction.shift(relation)
            deviation = math.hypot(self.label_deviation_of.get(relation, self.label_deviation), MODEL_ERROR)
            # the held-out facts of a rare relation are too few to count; its share of all of them is expected
            facts = (int(held_out[relation]) + int(known[relation]) * total / total_known) / 2
            missing = facts * math.exp(min(mean, 50.0))
            deviation = math.hypot(
                deviation, (missing + 1) ** -0.5
            )  # a number of facts varies beside its mean (Poisson)
            shifts = -Z * deviation, self.highest_shift(relation, deviation)
            low, high = (facts * math.exp(min(mean + shift, 50.0)) for shift in shifts)
            low = low if low >= 1 else 0.0
            relations.append(Completeness(relation, int(known[relation]), missing, low, high, int(held_out[relation])))
        return relations


# The calibration of a run ---------------------------------------------------------------------------------------------


def fact_calibration_for(run: Run, scorer: Scorer, progress: Progress | None = None) -> FactCalibration | None:
    """The calibration of a run: fitted on first use, then kept in its folder; None with too few validation facts.

    `scorer` is what has learned from train facts alone.
    """

    def compute() -> _Kept:
        return _Kept(METHOD, list(FEATURES), fit_fact_calibration(scorer, run.graph, progress))

    parse = partial(_parse, n_relations=run.graph.n_relations)
    calibration = manifest.compute_once(run.path, run.fingerprint, FILE, parse, compute).calibration
    return None if calibration is None else replace(calibration, correction=correction_for(run))


@dataclass(frozen=True)
class _Kept:
    """The contents of the file; without a calibration where there were too few facts."""

    method: int
    features: list[str]
    calibration: FactCalibration | None


def _parse(value: Any, n_relations: int) -> _Kept | None:
    """What is kept in a run folder; None if it is of another method, a ValueError if its numbers cannot be used."""
    if not isinstance(value, dict) or value.get("method") != METHOD or value.get("features") != list(FEATURES):
        return None
    kept = schema.read(_Kept, value)
    if (fit := kept.calibration) is not None:
        n_inputs = _inputs(torch.zeros(1, len(FEATURES))).shape[1]
        lengths = {len(weights) for weights in (fit.weights, *fit.by_relation.values())}
        if len(fit.mean) != n_inputs or len(fit.scale) != n_inputs or lengths != {n_inputs + 1}:
            raise ValueError("lists of other lengths")
        relations = [*fit.by_relation, *fit.label_log_odds_of, *fit.label_deviation_of]
        if min(fit.scale) <= 0 or max(relations, default=0) >= n_relations:
            raise ValueError("numbers that no fit gives")
    return kept


# Fitting --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Examples:
    """Candidates of one relation, labelled or not."""

    features: Tensor  # (n, k)
    label: Tensor  # (n,) float64: 0, or 1 for a validation fact, or its weight if that is smaller
    weight: Tensor  # (n,): how many candidates each stands for


def fit_fact_calibration(scorer: Scorer, graph: Graph, progress: Progress | None = None) -> FactCalibration | None:
    """Fit the weights on the candidates that are listed when only train is known; None if that is impossible."""
    graph = replace(graph, valid=graph.valid.positive())
    search, examples = CandidateSearch.prepare(scorer, graph, ("train",)), {}
    search = replace(search, traits=RelationTraits.infer(graph))  # those by which missing facts are listed
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
        kept = ~unknown
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


def _inputs(features: Tensor) -> Tensor:
    """(n, 17): the features, the smaller margin, and products of margins with how many answers are known."""
    tail_margin, head_margin, no_tail, no_head, tails, heads = features[:, :6].T
    products = (no_tail * tail_margin, no_head * head_margin, tails * tail_margin, heads * head_margin)
    return torch.cat([features, torch.stack([tail_margin.minimum(head_margin), *products], dim=1)], dim=1)


def _standardise(inputs: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """(n, k + 1): the inputs in standard units, and the constant 1."""
    return torch.cat([(inputs - mean) / scale, inputs.new_ones(len(inputs), 1)], dim=1)


def _fit(examples: dict[int, _Examples], n_true: int) -> FactCalibration:
    relations = list(examples)
    everything = _inputs(torch.cat([part.features for part in examples.values()]))
    mean, scale = everything.mean(0), everything.std(0).clamp(min=1e-6)
    z = _standardise(everything, mean, scale)
    label, weight = (torch.cat([getattr(part, name) for part in examples.values()]) for name in ("label", "weight"))
    sizes = torch.tensor([len(part.label) for part in examples.values()])
    group = torch.arange(len(relations)).repeat_interleave(sizes)
    every = LabelledExamples(z, label, weight, group, len(relations))
    fit, held_out_score = fit_calibrated(every)
    names = dict(enumerate(relations))
    bounds = {names[g]: missing_bound(every.of_group(g), held_out_score[group == g]) for g in names}
    label_log_odds = fit.mean_label + fit.label
    return FactCalibration(
        mean.tolist(),
        scale.tolist(),
        fit.common.tolist(),
        {names[g]: row for g, row in enumerate(fit.deviation.tolist())},
        float(fit.mean_label),
        {names[g]: value for g, value in enumerate(label_log_odds.tolist())},
        {names[g]: value for g, value in enumerate(fit.spread.tolist())},
        math.hypot(fit.mean_spread, fit.label_precision**-0.5),
        {relation: bound for relation, bound in bounds.items() if bound is not None},
        n_true,
    )
