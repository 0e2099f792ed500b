from __future__ import annotations

import math

import pytest
import torch

from harmonium.analysis.statistics import bootstrap, spearman, t_test


def test_t_test_by_hand() -> None:
    values = torch.tensor([1.0, 2, 3, 6])
    found = t_test(values)
    assert found.mean == 3
    assert found.standard_error == pytest.approx(math.sqrt(14 / 3) / 2)
    assert found.t == pytest.approx(3 / found.standard_error)
    assert t_test(values[:2]).p == pytest.approx(1 - 2 / math.pi * math.atan(3))  # Student's t with 1 degree of freedom
    assert t_test(-values).t == -found.t
    assert t_test(torch.ones(3)).t == math.inf
    assert (t_test(torch.ones(3)).p, t_test(torch.zeros(3)).p) == (0, 1)
    assert math.isnan(t_test(torch.ones(1)).p)


def test_spearman_by_hand() -> None:
    found = spearman(torch.tensor([1, 2, 3, 4, 5]), torch.tensor([5, 6, 7, 8, 7]))
    assert found == pytest.approx((0.8207826817, 0.0885870053, 5))  # ranks 1 2 3.5 5 3.5
    assert spearman(torch.arange(4), -torch.arange(4).exp()).rho == pytest.approx(-1)
    for constant in (spearman(torch.ones(5), torch.arange(5)), spearman(torch.arange(2), torch.arange(2))):
        assert math.isnan(constant.rho) and math.isnan(constant.p)


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
