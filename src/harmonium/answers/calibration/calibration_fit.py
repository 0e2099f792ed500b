"""Fit the probabilities of answers with one slot open on validation facts, and judge them on test facts.

Where facts have weights, a fact of weight .3 is an answer that is true with the probability .3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.answers.calibration.held_out import HeldOutAnswers, held_out_answers
from harmonium.answers.calibration.logistic import Examples, GroupedFit, Prior, fit_curve, fit_grouped, fit_spread
from harmonium.answers.calibration.slot_calibration import Kind, LogOdds, Reliability, ReliabilityBin, SlotCalibration
from harmonium.answers.calibration.temperature import fit_temperature
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.model.scoring import Scorer

MINIMUM = 10  # true examples required for a fit, and questions of a kind
ENOUGH = 30  # facts of questions without a known answer that decide about the temperature
THIN, RARE = 20, 0.004  # one in THIN examples with a probability below RARE is used
FOLDS = 5  # of the cross-validation on which the curve is fitted
BINS = 10
JUDGED = 50  # answers of a bin that is judged


# Fit ------------------------------------------------------------------------------------------------------------------


def fit_slot(
    scorer: Scorer, graph: Graph, slot: Slot, progress: Callable[[int], None] | None = None
) -> SlotCalibration | None:
    """The calibration of a slot, for questions of which the facts of train are known; None with too few facts of valid."""
    graph = replace(graph, valid=graph.valid.positive())
    if len(graph.valid) < MINIMUM or not len(graph.train):
        return None
    temperature = _temperature(scorer, graph, slot)
    examples = held_out_answers(scorer, graph, slot, "valid", temperature, by_truth=True, progress=progress)
    if not MINIMUM <= examples.true.sum() < len(examples):
        return None
    slope = _common_slope(_thin(examples, examples.is_best))
    if slope <= 0:  # the scores carry no information
        return None
    log_odds, n_groups = {}, 1 if slot is Slot.RELATION else graph.n_relations
    for kind in Kind:
        part = examples.where(kind.of(examples.known))
        if part.n_questions >= MINIMUM:
            log_odds[kind] = fit_log_odds(part, kind, slope, n_groups)
    return SlotCalibration(log_odds, temperature) if log_odds else None


def _temperature(scorer: Scorer, graph: Graph, slot: Slot) -> float:
    """That of validation facts; of those without a known answer, which depend on it most, where there are enough."""
    facts = graph.valid
    known = graph.known_answers(slot, ("train",), facts).of(facts)[0].bincount(minlength=len(facts))
    unanswered = facts[known == 0]
    n_candidates = graph.n_relations if slot is Slot.RELATION else graph.n_entities
    return fit_temperature(scorer, slot, unanswered if len(unanswered) >= ENOUGH else facts, n_candidates)


def _common_slope(examples: HeldOutAnswers) -> float:
    """The slope of the margin in a regression of all examples, both kinds of questions and all relations."""
    inputs = [
        examples.margin,
        torch.ones_like(examples.margin),
        Kind.UNANSWERED.of(examples.known),
        _log_known(examples),
    ]
    common = torch.stack([column.double() for column in inputs], dim=1)
    data = Examples.ungrouped(common, examples.label, examples.weight)
    return fit_grouped(data, Prior.flat(common.shape[1])).weights[0].item()


def _log_known(examples: HeldOutAnswers) -> Tensor:
    return examples.known.clamp(min=1).double().log()


@dataclass(frozen=True)
class _Inputs:
    """The inputs of the regression of one kind of question: a constant, the margin and, with known answers, their log."""

    kind: Kind
    centre: float  # of the margin
    scale: float

    @classmethod
    def of(cls, kind: Kind, examples: HeldOutAnswers) -> _Inputs:
        """Centred on the margins that matter: those of true answers, or of the best where few are true."""
        rows = examples.true if examples.true.sum() >= MINIMUM else examples.is_best
        margin, weight = examples.margin[rows], examples.weight[rows]
        centre = (weight * margin).sum() / weight.sum()
        scale = ((weight * (margin - centre) ** 2).sum() / weight.sum()).sqrt().clamp(min=1e-6)
        return cls(kind, centre.item(), scale.item())

    def columns(self, examples: HeldOutAnswers) -> Tensor:
        """(n, 2 or 3)."""
        columns = [torch.ones_like(examples.margin), (examples.margin - self.centre) / self.scale]
        if self.kind is Kind.ANSWERED:
            columns.append(_log_known(examples))
        return torch.stack(columns, dim=1)

    def regression(self, examples: HeldOutAnswers, n_groups: int) -> Examples:
        """The examples and, last, one of the mean inputs that is half true, so that no estimate is infinite."""
        common = self.columns(examples)
        middle = common[examples.is_best].mean(0, keepdim=True)
        grouped = common[:, :2] if n_groups > 1 else torch.zeros_like(common[:, :2])
        return Examples(
            torch.cat([common, middle]),
            torch.cat([grouped, torch.zeros_like(grouped[:1])]),
            torch.cat([examples.relation, torch.zeros_like(examples.relation[:1])]),
            n_groups,
            torch.cat([examples.label, middle.new_full((1,), 0.5)]),
            torch.cat([examples.weight, middle.new_ones(1)]),
        )

    def prior(self, slope: float) -> Prior:
        """The slope is expected near that of all examples, half of it more or less; answers in proportion to known ones."""
        flat = Prior.flat(3 if self.kind is Kind.ANSWERED else 2, 1e-3)
        centre, precision = flat.centre.clone(), flat.precision.clone()
        centre[1], precision[1] = slope * self.scale, 4 / (slope * self.scale) ** 2
        centre[2:], precision[2:] = 1.0, 1.0
        return Prior(centre, precision, torch.full((2,), 0.5, dtype=torch.float64))


def fit_log_odds(examples: HeldOutAnswers, kind: Kind, slope: float, n_groups: int) -> LogOdds:
    """The log-odds of answers to one kind of question; `slope` is the one expected.

    Slope and intercept of the relations are fitted around common ones; then the curve, on log-odds from cross-validation:
    it corrects what relations overfit, too.
    """
    inputs = _Inputs.of(kind, examples)
    prior = inputs.prior(slope)
    sketch = inputs.regression(_thin(examples, examples.is_best), n_groups)
    rough = fit_grouped(replace(sketch, grouped=torch.zeros_like(sketch.grouped)), prior)
    examples = _thin(examples, (inputs.columns(examples) @ rough.weights).sigmoid() > RARE)
    data = inputs.regression(examples, n_groups)
    fit, prior = fit_spread(data, prior)
    flat = fit.weights[1] + fit.deviations[:, 1] < 0  # a relation whose slope would be negative has none
    if flat.any():
        data = _without_margin(data, flat)
        fit = fit_grouped(data, prior, fit)
    log_odds = _cross_validate(data, examples.question, prior, fit)
    curve = fit_curve(log_odds, data.label[:-1], data.weight[:-1])
    slopes = (fit.weights[1] + fit.deviations[:, 1]).masked_fill(flat, 0.0) / inputs.scale
    intercepts = fit.weights[0] + fit.deviations[:, 0] - slopes * inputs.centre
    known = fit.weights[2].item() if kind is Kind.ANSWERED else 0.0
    return LogOdds(slopes.tolist(), intercepts.tolist(), known, curve=curve)


def _thin(examples: HeldOutAnswers, kept: Tensor) -> HeldOutAnswers:
    """All true examples and those to be kept (n,), and a weighted sample of the others."""
    kept = kept | examples.true
    chosen = torch.rand(len(examples), generator=torch.Generator().manual_seed(0)) < 1 / THIN
    weight = torch.where(kept, examples.weight, THIN * examples.weight)
    return replace(examples, weight=weight).where(kept | chosen)


def _without_margin(data: Examples, flat: Tensor) -> Examples:
    """The margin is no input of the groups that are flat (n_groups,)."""
    kept = torch.ones_like(data.common[:, :2])
    kept[flat[data.group], 1] = 0.0
    return replace(
        data, common=torch.cat([data.common[:, :2] * kept, data.common[:, 2:]], dim=1), grouped=data.grouped * kept
    )


def _cross_validate(data: Examples, question: Tensor, prior: Prior, fit: GroupedFit) -> Tensor:
    """(n,): the log-odds of each example by a fit without the questions of its fold; the last row of data is in all."""
    folds = torch.randint(FOLDS, (int(question.max()) + 1,), generator=torch.Generator().manual_seed(0))[question]
    log_odds = torch.empty(len(question), dtype=torch.float64)
    for number in range(FOLDS):
        left_out = folds == number
        used = torch.cat([~left_out, torch.ones(1, dtype=torch.bool)])
        part = fit_grouped(data.where(used), prior, fit)
        log_odds[left_out] = data.where(~used).log_odds(part.weights, part.deviations)
    return log_odds


# Judge ----------------------------------------------------------------------------------------------------------------


def judge(
    scorer: Scorer, graph: Graph, slot: Slot, fit: SlotCalibration, progress: Callable[[int], None] | None = None
) -> dict[Kind, Reliability]:
    """How probabilities do on test, with train and valid known; on valid itself where there is no test split.

    They are right for as many missing facts as valid has. If test has more, a sample of that size is true and the other
    facts are left out; if it has fewer, the odds of questions with known answers are lowered in proportion.
    """
    split, missing = ("test", min(1.0, len(graph.test) / len(graph.valid))) if len(graph.test) else ("valid", 1.0)
    if split == "test":
        fit = fit.with_share(len(graph.train) / (len(graph.train) + len(graph.valid)))
    answers = held_out_answers(scorer, graph, slot, split, fit.temperature, n_facts=len(graph.valid), progress=progress)
    logits = fit.logits_of_margins(answers.relation, answers.margin, answers.known)
    logits[Kind.ANSWERED.of(answers.known)] += math.log(missing)
    reliability = {}
    for kind in fit.log_odds:
        rows = kind.of(answers.known)
        if rows.any():
            reliability[kind] = _reliability(split, answers.where(rows), logits[rows])
    return reliability


def _reliability(split: str, answers: HeldOutAnswers, logits: Tensor) -> Reliability:
    probability, true, is_best = logits.sigmoid(), answers.label, answers.is_best
    bins = reliability_bins(probability, true)
    errors = [abs(part["probability"] - part["true"]) for part in bins if part["facts"] >= JUDGED]
    return Reliability(
        split=split,
        questions=answers.n_questions,
        answers=len(answers),
        true=int(answers.true.sum()),
        largest_error=max(errors, default=None),
        best_probability=probability[is_best].mean().item(),
        best_true=true[is_best].mean().item(),
        log_loss=F.binary_cross_entropy_with_logits(logits, true).item(),
        base_log_loss=F.binary_cross_entropy(true.mean().expand_as(true), true).item(),
        bins=bins,
    )


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
