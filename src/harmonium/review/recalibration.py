"""Probabilities corrected by judgements: a logistic regression on the uncorrected log-odds, shrunk to no change.

    log-odds of accepted = a + b * uncorrected log-odds + d_r,   a ~ N(0, 1.5^2),  b ~ N(1, 0.5^2),  d_r ~ N(0, s^2)

with s fitted too (empirical Bayes, answers/calibration/logistic.py). Assumed is that

- judgements are right: a disputed fact and one that nobody is sure of say nothing;
- which facts were judged depends on what the correction knows, their probability and relation, but given these not on
  their truth. The queue satisfies this nearly: it orders by probability, and by how well connected entities are. Then the
  regression is right for other facts too, although judged ones are no random sample; far from the probabilities that were
  judged it rests on the prior.

Judgements of other runs count too, by the probabilities that those runs stated. The correction is used only if it lowers
the log loss of judged facts that took no part in the fit (cross-validation), by more than one standard error; otherwise
probabilities stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.answers.calibration.judgement_correction import JudgementCorrection
from harmonium.answers.calibration.logistic import Examples, GroupedFit, Prior, fit_grouped, fit_spread
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.review.judgements import by_fact
from harmonium.review.store import Judgement
from harmonium.runtime.displayed import Displayed, Line, Part, one_line, percent

MIN_JUDGED_FACTS = 10  # judged facts
FOLDS = 5
INTERCEPT_SPREAD, SLOPE_SPREAD, DEVIATION_SPREAD = (
    1.5,
    0.5,
    0.5,
)  # standard deviations of the priors; the last: at first
MIN_SLOPE = 0.05
LARGEST = 15.0  # log-odds beyond which a probability says no more


@dataclass(frozen=True)
class Recalibration(Displayed):
    """What was learned from judgements."""

    facts: int  # accepted or rejected, with a probability
    accepted: int
    other_runs: int  # of these: judged on a prediction of another run
    left_out: int  # disputed, unsure, without a probability, or with a name that the graph does not have
    stated: float  # mean uncorrected probability
    log_loss: float  # of the uncorrected probabilities
    corrected_log_loss: float  # of probabilities corrected without the fold of the fact
    correction: JudgementCorrection | None  # None: it would not have lowered the log loss beyond chance

    def display(self) -> Iterator[Part]:
        yield Line(f"{self.facts:,} judged facts: {self.accepted / self.facts:.1%} accepted", "bold")
        yield Line(f"  mean probability that was stated: {percent(self.stated)}")
        losses = f"{self.log_loss:.4f} stated, {self.corrected_log_loss:.4f} corrected (5-fold cross-validation)"
        yield Line(f"  log loss: {losses}")
        if self.other_runs:
            yield Line(f"  {self.other_runs:,} were judged on predictions of other runs", "yellow")
        if self.left_out:
            yield Line(
                f"  {self.left_out:,} facts left out: disputed, unsure, without a probability or of another graph"
            )
        if self.correction is None:
            yield Line("a correction would not have helped, so probabilities stay as they were fitted", "yellow")
            return
        fitted = f"{self.correction.intercept:+.3f} + {self.correction.slope:.3f} x log-odds + relation's own"
        yield Line(f"corrected log-odds = {fitted}")
        yield Line("kept in the run: `complete`, the explorer and the review use it; --forget-judgements drops it")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        outcome = "no correction" if self.correction is None else "corrected"
        return one_line(self, f"from {self.facts:,} facts: log loss {self.log_loss:.4f}", outcome)


def recalibrate(judgements: Iterable[Judgement], graph: Graph, run: str) -> Recalibration:
    """Fit a correction to the judgements of facts of a graph; `run` is the checksum of the run that is to be corrected."""
    facts, rows, left_out, other_runs = by_fact(judgements), [], 0, 0
    for fact in facts:
        first = next((each for each in fact.judgements if each.verdict == fact.verdict), None)
        relation = graph.relations.find(fact.fact[1])
        known = all(graph.entities.find(name) for name in (fact.fact[0], fact.fact[2])) and len(relation) == 1
        if first is None or first.verdict == "unsure" or first.uncorrected is None or not known:
            left_out += 1
            continue
        rows.append((relation[0], first.uncorrected, fact.verdict == "accepted"))
        other_runs += first.run != run
    if len(rows) < MIN_JUDGED_FACTS:
        raise HarmoniumError(
            f"{len(rows)} judged facts of this graph with a probability; {MIN_JUDGED_FACTS} are needed for a correction"
            + (f" ({left_out} disputed, unsure, without a probability or of another graph)" if left_out else "")
        )
    relations, probabilities, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
    log_odds = probabilities.double().logit().clamp(-LARGEST, LARGEST)
    label = labels.double()
    corrected = _cross_validate(log_odds, label, relations)
    losses, corrected_losses = (
        F.binary_cross_entropy_with_logits(odds, label, reduction="none") for odds in (log_odds, corrected)
    )
    gain = losses - corrected_losses  # (n,)
    helps = bool(gain.mean() > gain.std() / len(gain) ** 0.5)
    correction = fit_correction(log_odds, label, relations) if helps else None
    mean = probabilities.double().mean().item()
    counts = len(rows), int(label.sum()), other_runs, left_out
    return Recalibration(*counts, mean, losses.mean().item(), corrected_losses.mean().item(), correction)


def fit_correction(log_odds: Tensor, label: Tensor, relations: Tensor) -> JudgementCorrection:
    """The correction of largest posterior density for facts (n,) that were accepted (1) or rejected (0)."""
    present, group = relations.unique(return_inverse=True)
    ones = torch.ones_like(log_odds)
    examples = Examples(torch.stack([ones, log_odds], dim=1), ones[:, None], group, len(present), label, ones)
    centre = torch.tensor([0.0, 1.0], dtype=torch.float64)
    precision = torch.tensor([INTERCEPT_SPREAD**-2, SLOPE_SPREAD**-2], dtype=torch.float64)
    fit, prior = fit_spread(examples, Prior(centre, precision, ones.new_full((1,), DEVIATION_SPREAD)))
    if fit.weights[1] < MIN_SLOPE:  # probabilities keep their order: the slope is held, and the rest fitted again
        held = prior.precision * torch.tensor([1.0, 1e12], dtype=torch.float64)
        prior = replace(prior, centre=torch.tensor([0.0, MIN_SLOPE], dtype=torch.float64), precision=held)
        fit = fit_grouped(examples, prior)
    return _correction(fit, present, len(label))


def _correction(fit: GroupedFit, relations: Tensor, n_facts: int) -> JudgementCorrection:
    intercept, slope = fit.weights.tolist()
    by_relation = dict(zip(relations.tolist(), fit.deviations[:, 0].tolist(), strict=True))
    return JudgementCorrection(intercept, slope, by_relation, n_facts)


def _cross_validate(log_odds: Tensor, label: Tensor, relations: Tensor) -> Tensor:
    """(n,): the log-odds of each fact, corrected by a fit without the facts of its fold."""
    fold = torch.randperm(len(label), generator=torch.Generator().manual_seed(0)) % FOLDS
    corrected = torch.empty_like(log_odds)
    for number in range(FOLDS):
        out = fold == number
        correction = fit_correction(log_odds[~out], label[~out], relations[~out])
        corrected[out] = correction.apply(log_odds[out], relations[out])
    return corrected
