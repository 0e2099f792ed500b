"""Logistic regression by Newton's method, with deviations of groups that are shrunk to zero.

The log-odds of example i of group g are  common_i . w + own_i . d_g.  The prior of w is normal around a centre, that of
d_g normal around zero with a spread that is fitted too (empirical Bayes): groups that differ much are shrunk little, a
group without examples has no deviation. Everything is float64 on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

ITERATIONS = 50  # of Newton's method, and of the fit of the spread
TOLERANCE = 1e-9  # of the loss, relative
SPREADS = (0.02, 4.0)  # bounds of the standard deviation of deviations


@dataclass(frozen=True)
class Examples:
    """Labelled examples of a grouped regression."""

    common: Tensor  # (n, k): inputs whose weights are those of all groups
    grouped: Tensor  # (n, d): inputs whose weights deviate in each group
    group: Tensor  # (n,)
    n_groups: int
    label: Tensor  # (n,) 0 or 1
    weight: Tensor  # (n,)

    @classmethod
    def ungrouped(cls, common: Tensor, label: Tensor, weight: Tensor) -> Examples:
        group = torch.zeros(len(label), dtype=torch.int64)
        return cls(common, common.new_zeros(len(label), 1), group, 1, label, weight)

    def where(self, mask: Tensor) -> Examples:
        columns = (column[mask] for column in (self.common, self.grouped, self.group, self.label, self.weight))
        common, grouped, group, label, weight = columns
        return Examples(common, grouped, group, self.n_groups, label, weight)

    def log_odds(self, weights: Tensor, deviations: Tensor) -> Tensor:
        return self.common @ weights + (self.grouped * deviations[self.group]).sum(1)

    def sum_by_group(self, values: Tensor) -> Tensor:
        """(n_groups,): the sums of values (n,)."""
        return torch.bincount(self.group, values, minlength=self.n_groups)


@dataclass(frozen=True)
class Prior:
    """Independent normal priors."""

    centre: Tensor  # (k,) of the common weights
    precision: Tensor  # (k,)
    spread: Tensor  # (d,) standard deviation of the deviations

    @classmethod
    def flat(cls, k: int, precision: float = 1e-6) -> Prior:
        """Of an ungrouped regression; the precision only keeps it well-posed."""
        zero = torch.zeros(k, dtype=torch.float64)
        return cls(zero, zero + precision, zero.new_ones(1))


@dataclass(frozen=True)
class GroupedFit:
    """The parameters of largest posterior density."""

    weights: Tensor  # (k,)
    deviations: Tensor  # (n_groups, d)
    variance: Tensor  # (n_groups, d): posterior variance of the deviations, given the weights


def fit_grouped(examples: Examples, prior: Prior, start: GroupedFit | None = None) -> GroupedFit:
    """Newton's method with halved steps; the deviations of each group are eliminated, so the cost is linear in groups."""
    precision = prior.spread**-2  # (d,)
    weights = prior.centre.clone() if start is None else start.weights
    deviations = examples.grouped.new_zeros(examples.n_groups, len(precision)) if start is None else start.deviations

    def loss(weights: Tensor, deviations: Tensor) -> float:
        log_odds = examples.log_odds(weights, deviations)
        likelihood = F.binary_cross_entropy_with_logits(log_odds, examples.label, examples.weight, reduction="sum")
        penalty = (prior.precision * (weights - prior.centre) ** 2).sum() + (precision * deviations**2).sum()
        return (likelihood + penalty / 2).item()

    current = loss(weights, deviations)
    for _ in range(ITERATIONS):
        probability = examples.log_odds(weights, deviations).sigmoid()
        residual = examples.weight * (probability - examples.label)
        curvature = examples.weight * probability * (1 - probability)
        step, deviation_step, inverse = _newton_step(examples, prior, weights, deviations, residual, curvature)
        size = 1.0
        while (new := loss(weights - size * step, deviations - size * deviation_step)) > current and size > 1e-6:
            size /= 2
        weights, deviations = weights - size * step, deviations - size * deviation_step
        converged, current = current - new < TOLERANCE * max(1.0, abs(current)), new
        if converged:
            break
    return GroupedFit(weights, deviations, inverse.diagonal(dim1=1, dim2=2))


def _newton_step(
    examples: Examples, prior: Prior, weights: Tensor, deviations: Tensor, residual: Tensor, curvature: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The steps of the weights (k,) and of the deviations (g, d), and the inverse (g, d, d) of each group's Hessian."""
    common, grouped, precision = examples.common, examples.grouped, prior.spread**-2
    scaled = common * curvature[:, None]
    hessian = scaled.T @ common + prior.precision.diag()  # (k, k)
    gradient = common.T @ residual + prior.precision * (weights - prior.centre)

    def by_group(columns: list[Tensor]) -> Tensor:
        return torch.stack([examples.sum_by_group(column) for column in columns], dim=1)

    k, d = common.shape[1], grouped.shape[1]
    deviation_gradient = by_group([residual * grouped[:, j] for j in range(d)]) + precision * deviations  # (g, d)
    mixed = by_group([scaled[:, i] * grouped[:, j] for i in range(k) for j in range(d)]).view(-1, k, d)
    blocks = by_group([curvature * grouped[:, i] * grouped[:, j] for i in range(d) for j in range(d)]).view(-1, d, d)
    inverse = torch.linalg.inv(blocks + precision.diag())
    eliminated = mixed @ inverse  # (g, k, d)
    hessian = hessian - torch.einsum("gkd,gld->kl", eliminated, mixed)
    gradient = gradient - torch.einsum("gkd,gd->k", eliminated, deviation_gradient)
    step = torch.linalg.solve(hessian, gradient)
    deviation_step = torch.einsum("gde,ge->gd", inverse, deviation_gradient - torch.einsum("gkd,k->gd", mixed, step))
    return step, deviation_step, inverse


def fit_spread(examples: Examples, prior: Prior) -> tuple[GroupedFit, Prior]:
    """The fit with the spread of the deviations that explains them best: spread^2 = mean of deviation^2 + variance.

    The spread of `prior` is where the search starts.
    """
    present = examples.sum_by_group(examples.weight) > 0
    fit = fit_grouped(examples, prior)
    for _ in range(ITERATIONS):
        spread = (fit.deviations**2 + fit.variance)[present].mean(0).sqrt().clamp(*SPREADS)
        change = (spread / prior.spread).log().abs().max()
        prior = replace(prior, spread=spread)
        fit = fit_grouped(examples, prior, fit)
        if change < 0.03:
            break
    return fit, prior
