from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.analysis.statistics import average_ranks, bootstrap, spearman, t_test, two_sided

SCIPY = {"rho": 0.07146667861129945, "rho_p": 0.001382984858135662, "t": 1.13454767605079, "t_p": 0.25670091382695864}


def test_t_test_by_hand() -> None:
    values = torch.tensor([1.0, 2, 3, 6])
    found = t_test(values)
    assert found.mean == 3
    assert found.standard_error == pytest.approx(statistics.stdev(values.tolist()) / 2)
    assert found.t == pytest.approx(3 / found.standard_error)
    assert found.p == two_sided(found.t)
    assert t_test(-values).t == -found.t
    assert t_test(torch.ones(3)).t == math.inf
    assert t_test(torch.zeros(3)).p == 1


@given(st.floats(-6, 6))
def test_p_is_the_area_of_both_tails(z: float) -> None:
    assert two_sided(z) == pytest.approx(2 * statistics.NormalDist().cdf(-abs(z)), abs=1e-12)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_equal_values_share_their_mean_place(values: list[int]) -> None:
    places = sorted(values)
    expected = [statistics.mean(i + 1 for i, other in enumerate(places) if other == value) for value in values]
    assert average_ranks(torch.tensor(values)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), min_size=3, max_size=40))
def test_spearman_is_the_correlation_of_ranks(pairs: list[tuple[int, int]]) -> None:
    first, second = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    found = spearman(first, second)
    assert found.n == len(pairs)
    if len(set(first.tolist())) == 1 or len(set(second.tolist())) == 1:
        assert math.isnan(found.rho) and math.isnan(found.p)
        return
    expected = statistics.correlation(average_ranks(first).tolist(), average_ranks(second).tolist())
    assert found.rho == pytest.approx(expected, abs=1e-9)
    assert spearman(first.exp(), -second).rho == pytest.approx(-expected, abs=1e-9)
    if abs(expected) < 0.999:
        assert found.p == pytest.approx(two_sided(expected * math.sqrt((len(pairs) - 2) / (1 - expected**2))), abs=1e-6)
    else:
        assert found.p < 1e-6


def test_agrees_with_scipy() -> None:
    """Values known from scipy.stats.spearmanr and ttest_1samp over the same 2,000 numbers."""
    n = torch.arange(2000, dtype=torch.float64)
    first, second = (n * 7919 % 2003) % 61, (n * 104729 % 1999) % 47 + ((n * 7919 % 2003) % 61) / 20
    found, mean = spearman(first, second), t_test(second - 24)
    assert found.rho == pytest.approx(SCIPY["rho"], abs=1e-9)
    assert found.p == pytest.approx(SCIPY["rho_p"], rel=0.05)
    assert mean.t == pytest.approx(SCIPY["t"], rel=1e-9)
    assert mean.p == pytest.approx(SCIPY["t_p"], rel=0.05)


def test_bootstrap_of_independent_values_is_the_normal_interval() -> None:
    values = torch.randn(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
    low, high = bootstrap(values, torch.arange(2000))
    found = t_test(values)
    assert low == pytest.approx(found.mean - 1.96 * found.standard_error, abs=0.2 * found.standard_error)
    assert high == pytest.approx(found.mean + 1.96 * found.standard_error, abs=0.2 * found.standard_error)
    assert bootstrap(values, torch.arange(2000)) == (low, high)
    assert bootstrap(values, torch.arange(2000), seed=1) != (low, high)
    narrow = bootstrap(values, torch.arange(2000), level=0.5)
    assert narrow[1] - narrow[0] == pytest.approx(0.344 * (high - low), rel=0.15)


def test_bootstrap_allows_for_dependence_within_clusters() -> None:
    """100 clusters of 25 equal values know as much as 100 values: the interval is five times as wide."""
    means = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    clusters = torch.arange(100).repeat_interleave(25) * 7  # numbers with gaps
    order = torch.randperm(2500, generator=torch.Generator().manual_seed(1))
    values, clusters = means.repeat_interleave(25)[order], clusters[order]
    low, high = bootstrap(values, clusters)
    alone = bootstrap(values, torch.arange(2500))
    assert (high - low) / (alone[1] - alone[0]) == pytest.approx(5, rel=0.15)


def test_bootstrap_weighs_clusters_by_their_size() -> None:
    """Drawn means are means of values, not of clusters: [0 x 9, 1] and its copies have mean 0.1 in any draw."""
    values = torch.tensor([0.0] * 9 + [1.0]).repeat(6)
    low, high = bootstrap(values, torch.arange(6).repeat_interleave(10))
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.1))
    uneven = bootstrap(torch.tensor([0.0] * 9 + [1.0]), torch.tensor([0] * 9 + [1]), level=0.2)
    assert uneven == (pytest.approx(0.1), pytest.approx(0.1))  # the middle draw has both clusters
