"""How likely a known fact is wrong, learned from known facts and artificial errors, none of which anybody has labelled.

Known facts are right ones and some wrong ones. With g(x) the density of the evidence x of right facts and a_j(x) that of
errors of kind j, which artificial errors show, known facts have the density

    k(x) = (g(x) + sum_j share_j a_j(x)) / (1 + sum_j share_j),      a_j(x) / g(x) = exp(z_j(x)),  z_j linear in x

Whether an example is a known fact or an artificial error of kind j is a softmax over log k / g and z_j. All weights and the
shares are those under which it is most likely: where only errors look like x, known facts thin out relative to
artificial errors down to their share and no further, and that level is what the shares are learned from. Then

    P(wrong | x) = sum_j share_j exp(z_j) / (1 + sum_j share_j exp(z_j))

In a graph without wrong facts known facts thin out without end, and the shares are small. It is an estimate, not a bound:
right facts that look no different from errors count as wrong, and errors that look right are not seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.kernels.lbfgs import minimise

PRECISION = 3.0  # of the prior of the weights of a kind around those common to all, per standardised input
COMMON_PRECISION = 1.0  # of the prior of the common weights
PRIOR_RATE = 20.0  # of the exponential prior of the sum of the shares: most graphs have few wrong facts
START = 0.04  # sum of the shares
LEAST = math.log(1e-4)
MAX_ITERATIONS = 200
Z95 = 1.959964


@dataclass(frozen=True)
class ErrorModel:
    """Weights and shares."""

    mean: Tensor  # (inputs,)
    scale: Tensor  # (inputs,)
    weights: Tensor  # (1 + inputs, kinds): the constant first
    log_shares: Tensor  # (kinds,): wrong facts of each kind for each right one
    log_error: float  # standard error of the log of the sum of shares

    def log_odds(self, features: Tensor) -> Tensor:
        """(n,): log-odds that known facts with this evidence (n, inputs) are wrong."""
        return (self.log_shares + _design(features, self.mean, self.scale) @ self.weights).logsumexp(1)

    @property
    def share(self) -> float:
        """Estimated share of wrong facts among the known ones."""
        total = float(self.log_shares.exp().sum())
        return total / (1 + total)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the estimate of the share, by the curvature of the likelihood."""
        total = float(self.log_shares.exp().sum())
        low, high = (total * math.exp(sign * Z95 * self.log_error) for sign in (-1, 1))
        return low / (1 + low), high / (1 + high)


def fit_error_model(known: Tensor, errors: Tensor, kind: Tensor) -> ErrorModel:
    """From evidence for known facts (n, inputs) and for artificial errors (m, inputs) of the kinds (m,) 0, 1, ..."""
    everything = torch.cat([known, errors])
    mean, scale = everything.mean(0), everything.std(0).clamp(min=0.05)
    design = _design(everything, mean, scale)
    n_kinds = int(kind.max()) + 1
    label = torch.cat([torch.zeros(len(known), dtype=torch.int64), 1 + kind])
    log_rate = (kind.bincount(minlength=n_kinds).double() / len(known)).log()
    n_inputs = design.shape[1]

    def unpack(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights = parameters[: n_inputs * (1 + n_kinds)].view(n_inputs, 1 + n_kinds)
        return weights[:, :1], weights[:, 1:], parameters[n_inputs * (1 + n_kinds) :]

    def loss(parameters: Tensor) -> Tensor:
        common, deviations, log_shares = unpack(parameters)
        odds = design @ (common + deviations)  # (n, kinds)
        right_or_wrong = torch.cat([torch.zeros(len(odds), 1, dtype=odds.dtype), log_shares + odds], dim=1)
        known_odds = right_or_wrong.logsumexp(1, keepdim=True) - log_shares.exp().sum().log1p()
        logits = torch.cat([known_odds, log_rate + odds], dim=1)
        prior = COMMON_PRECISION * common[1:].square().sum() + PRECISION * deviations[1:].square().sum()
        total = log_shares.exp().sum()
        small = PRIOR_RATE * total - total.log() + (log_shares - LEAST).clamp(max=0).square().sum()
        return torch.nn.functional.cross_entropy(logits, label, reduction="sum") + prior / 2 + small

    n_weights = n_inputs * (1 + n_kinds)
    shares = torch.full((n_kinds,), math.log(START / n_kinds), dtype=torch.float64)
    (fitted,) = minimise(loss, [torch.cat([torch.zeros(n_weights, dtype=torch.float64), shares])], MAX_ITERATIONS)
    common, deviations, log_shares = unpack(fitted)
    curvature = torch.autograd.functional.hessian(loss, fitted)
    covariance = torch.linalg.pinv(curvature)[-n_kinds:, -n_kinds:]
    gradient = log_shares.softmax(0)  # of the log of the sum of the shares
    variance = float(gradient @ covariance @ gradient)
    return ErrorModel(mean, scale, common + deviations, log_shares, math.sqrt(max(0.0, variance)))


def _design(features: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    standardised = (features - mean) / scale
    return torch.cat([torch.ones(len(features), 1, dtype=features.dtype), standardised], dim=1)
