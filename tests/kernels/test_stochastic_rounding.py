"""Stochastic rounding is unbiased, so that small steps on bfloat16 tables are not lost."""

from __future__ import annotations

import pytest
import torch

from harmonium.kernels.stochastic_rounding import add_to_rows, stochastic_round


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_rounds_to_a_neighbour_with_probability_by_distance() -> None:
    """Of each value, drawn often: only the two numbers around it, and the mean within five of its standard errors."""
    values = torch.cat([torch.randn(40, generator=noise()), torch.tensor([1.0, -3.0, 1e-30, -1.00390625, 0.0])])
    down = (values.view(torch.int32) & -65536).view(torch.float32)  # towards zero
    up = ((values.view(torch.int32) & -65536) + 65536).view(torch.float32)
    drawn = stochastic_round(values.repeat(20_000, 1), noise(1))
    assert drawn.dtype == torch.bfloat16
    assert ((drawn == down) | (drawn == up)).all()
    share = ((values - down) / (up - down)).double()
    spread = (share * (1 - share) / 20_000).sqrt()
    assert (((drawn == up).double().mean(0) - share).abs() <= 5 * spread).all()
    assert (values == down).sum() == 3  # these are exact, so share and spread are 0


def test_nan_and_infinity_are_kept() -> None:
    bits = torch.tensor([0x7FFFFFFF, 0x7FC00000, -1], dtype=torch.int32).view(torch.float32).repeat(50)
    assert stochastic_round(bits, noise()).isnan().all()
    for sign in (1, -1):
        assert (stochastic_round(torch.full((50,), sign * torch.inf), noise()) == sign * torch.inf).all()


def test_small_steps_add_up_only_with_stochastic_rounding() -> None:
    """A thousand steps, each a hundredth of the distance between two numbers."""
    rows, change = torch.tensor([0, 2]), torch.full((2, 500), 2**-7 / 100)
    nearest, random = torch.ones(3, 500, dtype=torch.bfloat16), torch.ones(3, 500, dtype=torch.bfloat16)
    generator = noise()
    for _ in range(1000):
        add_to_rows(nearest, rows, change)
        add_to_rows(random, rows, change, generator)
    assert (nearest == 1).all()
    assert random[rows].float().mean().item() == pytest.approx(1 + 10 * 2**-7, rel=1e-3)
    assert (random[1] == 1).all()
    table = torch.ones(3, 4)  # float32 tables are not rounded
    add_to_rows(table, rows, torch.full((2, 4), 0.5), generator)
    assert table[:, 0].tolist() == [1.5, 1, 1.5]
