"""Positive and unlabelled examples: which are true, and which share of the true ones is labelled.

    P(labelled | x) = c_r sigmoid((w + d_r) . x),    logit(c_r) = mu + e_r

w, d_r, mu and e_r have Gaussian priors; the spread of e_r is fitted too (empirical Bayes). c_r rests on how labels saturate
among the best examples, and there a fit to few labels flatters itself: it separates the labelled from the unlabelled of its
own examples, and saturates nowhere. So c_r is learned from examples that took no part in the fit of their own
a = (w + d_r) . x (`fit_calibrated`): a is fitted without each fold in turn, then

    P(labelled | x) = c_r sigmoid((beta + b_r) a(x) + alpha + a_r)

to what the folds' own fits say of them. Everything is float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.kernels.lbfgs import minimise

COMMON_PRECISION, PRECISION = 0.1, 3.0  # of the priors of w, and of d_r, per standardised feature
MEAN_PRECISION = 0.1  # of the prior of mu
LABEL_SPREAD, LABEL_SPREAD_RELATIONS = 0.5, 2  # of e_r at first, and how many relations that counts for
ROUNDS, SETTLED = 6, 0.03  # of the fit of the spread of e_r, and the change of its logarithm that ends it
MIN_LABELLED = 5  # examples on which a bound may rest
Z = 1.645  # of a 90 % interval
MAX_ITERATIONS, FOLD_ITERATIONS = 200, 40  # of L-BFGS, and where it starts at the fit to all examples
FOLDS = 10
SCORE_SCALE = 3.0  # of a(x), before it is calibrated


@dataclass(frozen=True)
class LabelledExamples:
    """Candidates of several relations (groups), labelled or not."""

    inputs: Tensor  # (n, k) float64, standardised; the last is 1
    label: Tensor  # (n,) 0 to 1
    weight: Tensor  # (n,): how many candidates each stands for
    group: Tensor  # (n,)
    n_groups: int

    def of_group(self, number: int) -> LabelledExamples:
        return self.where(self.group == number)

    def where(self, mask: Tensor) -> LabelledExamples:
        inputs, label, weight, group = (column[mask] for column in (self.inputs, self.label, self.weight, self.group))
        return LabelledExamples(inputs, label, weight, group, self.n_groups)


@dataclass(frozen=True)
class LabelFit:
    """The most likely parameters."""

    common: Tensor  # w: (k,)
    deviation: Tensor  # d: (groups, k)
    mean_label: Tensor  # mu: ()
    label: Tensor  # e: (groups,)
    label_precision: float  # of the prior of e
    spread: Tensor  # (groups,): standard deviations of mu + e
    mean_spread: float  # of mu

    def log_odds(self, examples: LabelledExamples) -> Tensor:
        """(n,): a(x)."""
        return (examples.inputs * (self.common + self.deviation)[examples.group]).sum(1)

    @classmethod
    def start(cls, n_inputs: int, n_groups: int) -> LabelFit:
        """Where L-BFGS starts: the first two inputs are margins, for which more is better."""
        common = torch.zeros(n_inputs, dtype=torch.float64)
        common[: min(2, n_inputs - 1)], common[-1] = 1.0, -3.0
        zero = common.new_zeros
        label = zero(n_groups)
        return cls(common, zero(n_groups, n_inputs), zero(()), label, LABEL_SPREAD**-2, label, 0.0)


def fit_calibrated(examples: LabelledExamples) -> tuple[LabelFit, Tensor]:
    """The fit to all examples, with a(x) and c_r calibrated on examples that took no part in the fit of their own a(x).

    And (n,) that a(x) of each example, by the fit in which it took no part.
    """
    whole = fit_labels(examples)
    fold = torch.randperm(len(examples.label), generator=torch.Generator().manual_seed(0)) % FOLDS
    score = torch.empty_like(examples.label)
    for number in range(FOLDS):
        inside = fold == number
        fit = fit_labels(examples.where(~inside), whole, FOLD_ITERATIONS)
        score[inside] = fit.log_odds(examples.where(inside))
    inputs = torch.stack([score / SCORE_SCALE, torch.ones_like(score)], dim=1)
    calibrated = fit_labels(replace(examples, inputs=inputs))
    slope, constant = (calibrated.common + calibrated.deviation).T  # (groups,) each
    own = _affine(whole.common + whole.deviation, slope[:, None], constant)
    common = _affine(whole.common, calibrated.common[0], calibrated.common[1])
    return replace(calibrated, common=common, deviation=own - common), score


def missing_bound(examples: LabelledExamples, score: Tensor) -> float | None:
    """At most how many true examples are unlabelled for each labelled one; None with fewer than MIN_LABELLED.

    In every prefix of the examples in descending order of their score (n,), the unlabelled ones are true ones that are
    missing, and false ones: the ratio to the labelled ones bounds the missing ones from above, whatever a(x) may be (the
    class prior bound of positive and unlabelled learning). The least ratio is taken, with the uncertainty of its count.
    """
    order = score.argsort(descending=True)
    label, weight = examples.label[order], examples.weight[order]
    labelled, unlabelled = (label * weight).cumsum(0), ((1 - label) * weight).cumsum(0)
    enough = labelled >= MIN_LABELLED
    if not enough.any():
        return None
    labelled, unlabelled = labelled[enough], unlabelled[enough]
    return float(((unlabelled + 1) / (labelled * torch.exp(-Z / labelled.sqrt()))).min())


def _affine(weights: Tensor, slope: Tensor, constant: Tensor) -> Tensor:
    """(..., k): the weights of slope * a / SCORE_SCALE + constant."""
    weights = weights * slope / SCORE_SCALE
    weights[..., -1] += constant
    return weights


def fit_labels(
    examples: LabelledExamples, start: LabelFit | None = None, max_iterations: int = MAX_ITERATIONS
) -> LabelFit:
    """Fit by L-BFGS, from a `start`, whose spread of e_r is then kept; otherwise that is fitted too."""
    fit = start or LabelFit.start(examples.inputs.shape[1], examples.n_groups)
    for _ in range(ROUNDS if start is None else 1):
        fit = _maximise(examples, fit, max_iterations)
        if start is not None:
            break
        fit = _with_spreads(examples, fit)
        squares = float((fit.label**2 + fit.spread**2).sum()) + LABEL_SPREAD_RELATIONS * LABEL_SPREAD**2
        precision = (examples.n_groups + LABEL_SPREAD_RELATIONS) / squares
        is_settled = abs(math.log(precision / fit.label_precision)) < SETTLED
        fit = replace(fit, label_precision=precision)
        if is_settled:
            break
    return fit


def _maximise(examples: LabelledExamples, start: LabelFit, max_iterations: int) -> LabelFit:
    """The parameters of largest posterior density, for a given spread of e_r."""

    def loss(common: Tensor, deviation: Tensor, mean_label: Tensor, own_label: Tensor) -> Tensor:
        log_odds = (examples.inputs * (common + deviation)[examples.group]).sum(1)
        log_p = F.logsigmoid(log_odds) + F.logsigmoid(mean_label + own_label)[examples.group]
        log_rest = torch.log1p(-log_p.exp().clamp(max=1 - 1e-12))
        likelihood = -(examples.weight * (examples.label * log_p + (1 - examples.label) * log_rest)).sum()
        prior = COMMON_PRECISION * common[:-1].square().sum() + PRECISION * deviation.square().sum()
        prior = prior + start.label_precision * own_label.square().sum() + MEAN_PRECISION * mean_label.square()
        return likelihood + prior / 2

    parameters = [start.common, start.deviation, start.mean_label, start.label]
    common, deviation, mean_label, own_label = minimise(loss, parameters, max_iterations, history=30, tolerance=1e-5)
    return replace(start, common=common, deviation=deviation, mean_label=mean_label, label=own_label)


def _with_spreads(examples: LabelledExamples, fit: LabelFit) -> LabelFit:
    """Standard deviations of mu + e_r, and of mu, by the Fisher information (d_r and e_r free, w as fitted)."""
    n_inputs = examples.inputs.shape[1]
    prior = torch.tensor([PRECISION] * n_inputs + [0.0], dtype=torch.float64).diag()
    prior += 1e-9 * torch.eye(len(prior), dtype=torch.float64)
    variances, information_of_mean, all_log_odds = [], MEAN_PRECISION, fit.log_odds(examples)
    for number in range(examples.n_groups):
        rows = examples.group == number
        inputs, true = examples.inputs[rows], all_log_odds[rows].sigmoid()
        c = (fit.mean_label + fit.label[number]).sigmoid()
        labelled = (c * true).clamp(1e-12, 1 - 1e-12)
        slopes = torch.cat([(c * true * (1 - true))[:, None] * inputs, (c * (1 - c) * true)[:, None]], dim=1)
        information = slopes.T @ (slopes * (examples.weight[rows] / (labelled * (1 - labelled)))[:, None])
        variance = float(torch.linalg.inv(information + prior)[-1, -1])  # of mu + e_r by its own facts alone
        information_of_mean += 1 / (variance + 1 / fit.label_precision)
        variances.append(1 / (1 / variance + fit.label_precision))
    spread = torch.tensor(variances, dtype=torch.float64).sqrt()
    return replace(fit, spread=spread, mean_spread=information_of_mean**-0.5)
