"""Metrics and confidence intervals, by hand and by simulation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from harmonium.evaluation.metrics import Estimate, Ranks


def make_ranks(better: Tensor, tied: Tensor | None = None, candidates: Tensor | None = None) -> Ranks:
    zeros = torch.zeros_like(better)
    columns = [zeros if column is None else column for column in (tied, candidates)]
    return Ranks(better, *columns, zeros, zeros.bool())


def test_metrics_by_hand() -> None:
    ranks = make_ranks(torch.tensor([0, 1, 9, 0]), torch.tensor([0, 0, 0, 3]), torch.tensor([10, 10, 10, 4]))
    metrics = ranks.metrics()
    assert metrics["mr"] == (1 + 2 + 10 + 2.5) / 4
    assert metrics["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 10 + 1 / 2.5) / 4)
    assert (metrics["hits@1"], metrics["hits@3"], metrics["hits@10"]) == (0.25, 0.75, 1)
    assert metrics["amri"] == pytest.approx(1 - (metrics["mr"] - 1) / ((5.5 * 3 + 2.5) / 4 - 1))
    assert ranks.metrics("pessimistic")["hits@3"] == 0.5
    assert all(math.isnan(value) for value in ranks[:0].metrics().values())


def test_the_wilson_interval_by_hand() -> None:
    """4 of 8 facts of many, or of 16: then half of the variance is left."""
    ranks = make_ranks(torch.tensor([0, 1] * 4))
    for of, draws in ((10**9, 7), (16, 14)):  # 8 - 1, as the variance is a sample's; twice as many by the share drawn
        low, high = Estimate.from_ranks(ranks, "realistic", 8, of).intervals["hits@1"]
        half = 1.96 / (1 + 1.96**2 / draws) * math.sqrt(0.25 / draws + 1.96**2 / (4 * draws**2))
        assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-6)
