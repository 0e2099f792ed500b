"""The bootstrap and the sign-flip test against enumeration, and their rates of false positives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

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


# Rates of false positives --------------------------------------------------------------------------------------------


# The sign-flip test --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("totals", [[3.0, 1.0, -0.5, 2.0], [1.0, 1.0], [0.1, 0.2, 0.3, -0.6], [0.0, 0.0]])
def test_sign_flips_agree_with_enumeration(totals: list[float]) -> None:
    signs = list(itertools.product((-1, 1), repeat=len(totals)))
    sums = [abs(math.fsum(s * t for s, t in zip(row, totals, strict=True))) for row in signs]
    exact = sum(value >= abs(math.fsum(totals)) - 1e-9 for value in sums) / len(signs)
    assert sign_flip(torch.tensor(totals, dtype=torch.float64)) == exact


# Edges ---------------------------------------------------------------------------------------------------------------
