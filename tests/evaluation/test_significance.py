"""The bootstrap and the sign-flip test against enumeration, and their rates of false positives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.evaluation.significance import PairedComparison, RelationTotals, compare_paired, sign_flip


def compare(difference: Tensor, relation: Tensor, samples: int = 999, seed: int = 0) -> PairedComparison:
    return compare_paired(difference, torch.zeros_like(difference), relation, samples, seed=seed)


# The statistic -------------------------------------------------------------------------------------------------------


def statistic_by_hand(clusters: list[list[list[float]]]) -> tuple[float, float]:
    """The mean difference and its standard error, in plain Python; clusters[seed][relation] are lists of differences."""
    n_seeds, n_relations = len(clusters), len(clusters[0])
    sizes = [len(queries) for queries in clusters[0]]
    by_seed = [sum(map(sum, relations)) / sum(sizes) for relations in clusters]
    mean = sum(by_seed) / n_seeds
    sums = [sum(sum(seed[r]) for seed in clusters) / n_seeds for r in range(n_relations)]
    between = sum((total - mean * size) ** 2 for total, size in zip(sums, sizes, strict=True))
    variance = n_relations / (n_relations - 1) * between / sum(sizes) ** 2
    if n_seeds > 1:
        variance += sum((value - mean) ** 2 for value in by_seed) / (n_seeds - 1) / n_seeds
    return mean, math.sqrt(variance)


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_the_statistic_by_hand(n_seeds: int) -> None:
    relation = torch.tensor([4, 7, 4, 9, 9, 9])
    values = torch.randn(n_seeds, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    clusters = [[row[relation == r].tolist() for r in (4, 7, 9)] for row in values]
    statistic = RelationTotals.of(values, relation).statistic()
    assert (statistic.mean, statistic.error) == pytest.approx(statistic_by_hand(clusters))


def test_with_one_query_per_relation_the_error_is_that_of_a_mean() -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = compare(values, torch.arange(50))
    assert result.difference == pytest.approx(values.mean().item())
    assert result.standard_error == pytest.approx((values.std() / math.sqrt(50)).item())


# The bootstrap, enumerated -------------------------------------------------------------------------------------------


def every_sample(clusters: list[list[list[float]]]) -> Iterator[tuple[float, list[list[list[float]]]]]:
    """(probability, sample) of all outcomes: relations drawn, then queries within each drawn one, and seeds."""
    n_seeds, n_relations = len(clusters), len(clusters[0])
    for relations in itertools.product(range(n_relations), repeat=n_relations):
        sizes = [len(clusters[0][r]) for r in relations]
        draws = [list(itertools.product(range(size), repeat=size)) for size in sizes]
        for seeds in itertools.product(range(n_seeds), repeat=n_seeds):
            for queries in itertools.product(*draws):
                sample = [
                    [[clusters[s][r][q] for q in d] for r, d in zip(relations, queries, strict=True)] for s in seeds
                ]
                probability = n_relations**-n_relations * n_seeds**-n_seeds
                yield probability / math.prod(map(len, draws)), sample


@pytest.mark.parametrize(
    "clusters",
    [
        [[[0.9, 0.2], [0.4], [0.3, -0.5]]],  # one seed
        [[[0.5, 0.2], [0.4]], [[0.3, 0.1], [-0.3]]],  # two seeds
    ],
)
def test_p_value_and_interval_agree_with_enumeration(clusters: list[list[list[float]]]) -> None:
    mean, error = statistic_by_hand(clusters)
    outcomes = []
    for probability, sample in every_sample(clusters):
        other, its_error = statistic_by_hand(sample)
        deviation = abs(other - mean)
        outcomes.append(
            (deviation / its_error if its_error > 1e-12 else math.inf if deviation > 1e-12 else 0, probability)
        )
    exact = sum(probability for t, probability in outcomes if t >= abs(mean) / error - 1e-9)
    relation = torch.tensor([r for r, queries in enumerate(clusters[0]) for _ in queries])
    values = torch.tensor([[d for queries in seed for d in queries] for seed in clusters], dtype=torch.float64)
    result = compare(values, relation, samples=40_000)
    assert 0.02 < exact < 0.98  # otherwise the comparison says little
    assert result.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000))
    half = (result.interval[1] - result.difference) / error
    below = sum(p for t, p in outcomes if t < half - 1e-9)
    up_to = sum(p for t, p in outcomes if t <= half + 1e-9)
    assert below < 0.955 and up_to > 0.945  # the quantile at 95 %, which falls on one of the outcomes


def test_the_order_of_queries_and_the_names_of_relations_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    values, relation = torch.randn(2, 60, generator=generator), torch.arange(60) % 7
    order = torch.randperm(60, generator=generator)
    first, second = compare(values, relation), compare(values[:, order], 100 - relation[order])
    assert first.standard_error == pytest.approx(second.standard_error)
    assert first.p == pytest.approx(second.p, abs=0.1)
    assert first == compare(values, relation)
    assert first.p != compare(values, relation, seed=1).p


def test_models_change_places() -> None:
    values, relation = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 5
    zero = torch.zeros_like(values)
    ahead, behind = (compare_paired(*pair, relation, 500) for pair in ((values, zero), (zero, values)))
    assert ahead.difference == -behind.difference > 0
    assert (ahead.p, ahead.sign_flip_p, ahead.interval[0]) == (behind.p, behind.sign_flip_p, -behind.interval[1])
    assert (ahead.better_relations, behind.better_relations, ahead.relations) == (5, 0, 5)


# Rates of false positives --------------------------------------------------------------------------------------------


def null(trial: int, sizes: Tensor, seeds: int, relation_spread: float, seed_spread: float) -> tuple[Tensor, Tensor]:
    """Differences whose expectation is zero, with heavy tails: their relations, seeds and queries deviate by chance."""
    generator = torch.Generator().manual_seed(trial)
    relation = torch.arange(len(sizes)).repeat_interleave(sizes)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    by_relation = relation_spread * (normal(1, len(sizes)) + 0.3 * normal(seeds, len(sizes)))[:, relation]
    by_query = 0.3 * normal(1, len(relation)) ** 3 + 0.2 * normal(seeds, len(relation))
    return by_relation + seed_spread * normal(seeds, 1) + by_query, relation


@pytest.mark.parametrize(("relation_spread", "seed_spread"), [(0, 0), (0.2, 0.05)])
@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.slow
def test_five_percent_of_equal_models_differ_at_the_level_of_five_percent(
    seeds: int, relation_spread: float, seed_spread: float
) -> None:
    sizes, trials = torch.tensor([30, 20, 20, 12, 12, 9, 9, 9, 6, 6, 6, 6, 4, 4, 4, 4, 3, 3, 2, 1] * 2), 400
    spreads = relation_spread, seed_spread * (seeds > 1)
    results = [compare(*null(trial, sizes, seeds, *spreads), samples=199) for trial in range(trials)]
    for rejected in (sum(r.p <= 0.05 for r in results), sum(r.interval[0] > 0 or r.interval[1] < 0 for r in results)):
        assert 0.02 < rejected / trials < 0.085  # 0.05 with three standard errors


@pytest.mark.slow
def test_the_sign_flip_test_is_exact_for_few_relations_of_unequal_size() -> None:
    """WN18RR has eleven relations, two of which hold three quarters of the queries."""
    sizes, trials = torch.tensor([125, 107, 25, 17, 12, 11, 6, 4, 3, 2, 1]), 1000
    totals = [RelationTotals.of(*null(trial, sizes, 1, 0.3, 0.0)).sums[0] for trial in range(trials)]
    p_values = [sign_flip(total) for total in totals]
    for alpha in (0.01, 0.05, 0.2):
        rejected = sum(p <= alpha for p in p_values) / trials
        assert abs(rejected - alpha) < 3.5 * math.sqrt(alpha * (1 - alpha) / trials)


def test_a_real_difference_is_seen() -> None:
    values, relation = null(0, torch.full((40,), 25), 5, 0.05, 0.0)
    result = compare(values + 0.2, relation)
    assert result.is_significant()
    low, high = result.interval
    assert 0 < low < 0.2 < high


# The sign-flip test --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("totals", [[3.0, 1.0, -0.5, 2.0], [1.0, 1.0], [0.1, 0.2, 0.3, -0.6], [0.0, 0.0]])
def test_sign_flips_agree_with_enumeration(totals: list[float]) -> None:
    signs = list(itertools.product((-1, 1), repeat=len(totals)))
    sums = [abs(math.fsum(s * t for s, t in zip(row, totals, strict=True))) for row in signs]
    exact = sum(value >= abs(math.fsum(totals)) - 1e-9 for value in sums) / len(signs)
    assert sign_flip(torch.tensor(totals, dtype=torch.float64)) == exact


def test_sampled_sign_flips_agree_with_enumerated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.3
    exact = sign_flip(totals)
    monkeypatch.setattr("harmonium.evaluation.significance.MAX_ENUMERATED", 5)
    assert sign_flip(totals, samples=20_000) == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


# Edges ---------------------------------------------------------------------------------------------------------------


def test_equal_and_constantly_different_models() -> None:
    relation = torch.arange(30) % 6
    equal = compare(torch.zeros(30), relation)
    assert (equal.difference, equal.p, equal.sign_flip_p, equal.interval) == (0, 1, 1, (0, 0))
    better = compare(torch.ones(2, 30), relation)
    assert (better.difference, better.interval, better.sign_flip_p) == (1, (1, 1), 2**-5)
    assert better.p == pytest.approx(1 / 1000)


def test_values_are_compared_in_double_precision() -> None:
    """float32 would lose the difference of 1e-9 in values near one."""
    control = torch.ones(40, dtype=torch.float64)
    assert compare_paired(control + 1e-9, control, torch.arange(40) % 4, 99).difference == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "control", "relation", "message"),
    [
        (torch.ones(4), torch.ones(5), torch.arange(4), r"every query, not \(1, 4\), \(1, 5\) and \(4,\)"),
        (torch.ones(2, 4), torch.ones(2, 4), torch.arange(5), "every query"),
        (torch.ones(4), torch.ones(4), torch.zeros(4), "at least two relations"),
        (torch.full((4,), math.nan), torch.ones(4), torch.arange(4), "finite"),
    ],
)
def test_errors(model: Tensor, control: Tensor, relation: Tensor, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        compare_paired(model, control, relation)
