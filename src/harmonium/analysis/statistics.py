"""Is a difference more than chance? The t test, Spearman's correlation, and a bootstrap over clusters."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mean:
    """A mean, and the one-sample t test of its being zero for independent values."""

    mean: float
    standard_error: float
    t: float
    p: float


class Correlation(NamedTuple):
    """Spearman's rho over n pairs, and its two-sided p value."""

    rho: float
    p: float
    n: int


def t_test(values: Tensor) -> Mean:
    """The mean of values (n,) against zero; t is infinite when all values are equal and not zero."""
    from scipy import stats

    values = values.double()
    mean = values.mean().item()
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.nan
    if error == 0:
        t = math.copysign(math.inf, mean) if mean else 0.0
    else:
        t = mean / error
    return Mean(mean, error, t, float(2 * stats.t.sf(abs(t), len(values) - 1)))


def spearman(first: Tensor, second: Tensor) -> Correlation:
    """The correlation of the ranks of two columns (n,); NaN for fewer than three pairs or a constant column."""
    from scipy import stats

    n = len(first)
    if n < 3 or (first == first[0]).all() or (second == second[0]).all():
        return Correlation(math.nan, math.nan, n)
    result = stats.spearmanr(first.numpy(), second.numpy())
    return Correlation(float(result.statistic), float(result.pvalue), n)


def bootstrap(
    values: Tensor, clusters: Tensor, samples: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """A percentile interval for the mean of values (n,) that draws whole clusters (n,) with replacement.

    Values of one cluster may depend on each other in any way.
    """
    _, cluster = clusters.unique(return_inverse=True)
    count = cluster.bincount()  # (c,)
    total = torch.zeros(len(count), dtype=torch.float64, device=values.device).index_add_(0, cluster, values.double())
    generator = torch.Generator(values.device).manual_seed(seed)
    means = []
    for _ in range(samples):
        drawn = torch.randint(len(count), (len(count),), generator=generator, device=values.device)
        means.append(total[drawn].sum() / count[drawn].sum())
    edges = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64, device=values.device)
    low, high = torch.stack(means).quantile(edges).tolist()
    return low, high
