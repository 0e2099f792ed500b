from __future__ import annotations

import pytest
import torch

from harmonium.answers.calibration.logistic import Examples, Prior, fit_grouped, fit_spread


def draw(log_odds: torch.Tensor, seed: int = 1) -> torch.Tensor:
    return (torch.rand(log_odds.shape, generator=torch.Generator().manual_seed(seed)) < log_odds.sigmoid()).double()


def test_a_regression_recovers_what_made_the_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(50_000, 2, dtype=torch.float64, generator=generator)
    inputs = torch.cat([inputs, torch.ones(50_000, 1)], dim=1)
    weights = torch.tensor([2.0, -0.7, 0.5], dtype=torch.float64)
    label, ones = draw(inputs @ weights), torch.ones(50_000, dtype=torch.float64)
    fit = fit_grouped(Examples.ungrouped(inputs, label, ones), Prior.flat(3))
    assert fit.weights.tolist() == pytest.approx(weights.tolist(), abs=0.06)
    error = (inputs @ fit.weights).sigmoid() - label  # the gradient is zero
    assert (inputs.T @ error).abs().max() < 1e-2


def test_weights_count_examples() -> None:
    inputs = torch.ones(4, 1, dtype=torch.float64)
    label, weight = torch.tensor([1.0, 0, 0, 1]).double(), torch.tensor([3.0, 1, 1, 0]).double()
    fit = fit_grouped(Examples.ungrouped(inputs, label, weight), Prior.flat(1))
    assert fit.weights.sigmoid().item() == pytest.approx(0.6, abs=1e-4)


def grouped(spread: float, sizes: list[int]) -> tuple[Examples, torch.Tensor]:
    """Groups whose intercepts differ by a normal deviation of this spread, and the deviations."""
    generator = torch.Generator().manual_seed(3)
    deviations = spread * torch.randn(len(sizes), dtype=torch.float64, generator=generator)
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(len(group), dtype=torch.float64, generator=generator)
    common, ones = torch.stack([torch.ones_like(x), x], dim=1), torch.ones_like(x)
    label = draw(-0.5 + x + deviations[group])
    return Examples(common, ones[:, None], group, len(sizes), label, ones), deviations


def test_the_fit_is_that_of_all_parameters_at_once() -> None:
    """Eliminating the deviations changes nothing: compared with the same regression with a column for each group."""
    examples, _ = grouped(1.0, [40, 7, 0, 30])
    prior = Prior(torch.tensor([0.2, 1.0]).double(), torch.tensor([0.1, 0.2]).double(), torch.tensor([0.8]).double())
    fit = fit_grouped(examples, prior)
    columns = torch.nn.functional.one_hot(examples.group, 4).double()
    whole = Examples.ungrouped(torch.cat([examples.common, columns], dim=1), examples.label, examples.weight)
    centre = torch.cat([prior.centre, torch.zeros(4).double()])
    precision = torch.cat([prior.precision, torch.full((4,), 0.8**-2).double()])
    expected = fit_grouped(whole, Prior(centre, precision, torch.ones(1).double())).weights
    assert torch.allclose(torch.cat([fit.weights, fit.deviations[:, 0]]), expected, atol=1e-5)


@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_the_spread_of_groups_is_found(spread: float) -> None:
    examples, deviations = grouped(spread, [200] * 40)
    fit, prior = fit_spread(
        examples, Prior(torch.zeros(2).double(), torch.full((2,), 1e-3).double(), torch.ones(1).double())
    )
    assert prior.spread.item() == pytest.approx(spread, abs=0.4)
    assert (fit.deviations[:, 0] - deviations).abs().mean() < 0.35


def test_a_group_with_few_examples_is_near_the_others() -> None:
    examples, _ = grouped(1.5, [300] * 20 + [2, 0])
    fit, prior = fit_spread(
        examples, Prior(torch.zeros(2).double(), torch.full((2,), 1e-3).double(), torch.ones(1).double())
    )
    assert fit.deviations[-1].item() == 0
    assert fit.deviations[-2].abs().item() < prior.spread.item()
    assert fit.variance[-2].item() > 5 * fit.variance[0].item()


def test_labels_that_an_input_separates_give_finite_weights() -> None:
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    fit = fit_grouped(Examples.ungrouped(x, (x[:, 0] > 0).double(), torch.ones(40).double()), Prior.flat(1, 1e-3))
    assert fit.weights.isfinite().all()
    assert fit.weights.item() > 5
