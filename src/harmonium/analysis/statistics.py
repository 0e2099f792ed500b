"""Is a difference more than chance? The t test and Spearman's correlation, and intervals that allow for dependence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mean:
    """A mean and the one-sample t test of its being zero, which takes the values to be independent."""

    mean: float
    standard_error: float
    t: float
    p: float


class Correlation(NamedTuple):
    """Spearman's rho over n pairs and how likely one as large is by chance."""

    rho: float
    p: float
    n: int


def two_sided(z: float) -> float:
    """How likely a standard normal number is at least this far from zero: a t statistic's p value when n is large."""
    return math.erfc(abs(z) / math.sqrt(2))


def t_test(values: Tensor) -> Mean:
    """The mean of values (n,) against zero; infinitely sure of it when all values are the same."""
    values = values.double()
    mean = values.mean().item()
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.nan
    t = mean / error if error else math.copysign(math.inf, mean) if mean else 0.0
    return Mean(mean, error, t, two_sided(t))


def average_ranks(values: Tensor) -> Tensor:
    """(n,) ranks from 1; equal values share the mean of their places."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0).double() - (counts - 1) / 2)[place]


def spearman(first: Tensor, second: Tensor) -> Correlation:
    """The correlation of the ranks of two columns (n,); not a number when one of them never changes."""
    n = len(first)
    if n < 3:
        return Correlation(math.nan, math.nan, n)
    a, b = (ranks - ranks.mean() for ranks in (average_ranks(first), average_ranks(second)))
    size = (a.norm() * b.norm()).item()
    if not size:
        return Correlation(math.nan, math.nan, n)
    rho = max(-1.0, min(1.0, (a @ b).item() / size))
    return Correlation(rho, two_sided(rho * math.sqrt((n - 2) / max(1 - rho**2, 1e-300))), n)


def bootstrap(
    values: Tensor, clusters: Tensor, samples: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """An interval for the mean of values (n,) when whole clusters (n,), not values, are drawn again with replacement.

    Percentiles of the resampled means: values of one cluster may depend on each other as they like.
    """
    _, place = clusters.unique(return_inverse=True)
    count = place.bincount()  # (c,)
    total = torch.zeros(len(count), dtype=torch.float64, device=values.device).index_add_(0, place, values.double())
    generator = torch.Generator(values.device).manual_seed(seed)
    means = []
    for _ in range(samples):
        drawn = torch.randint(len(count), (len(count),), generator=generator, device=values.device)
        means.append(total[drawn].sum() / count[drawn].sum())
    edges = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64, device=values.device)
    low, high = torch.stack(means).quantile(edges).tolist()
    return low, high
