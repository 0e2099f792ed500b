from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.errors import HarmoniumError
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.model.harmony import Harmony, Sum


def random_harmony(dim: int, faithfulness: float, seed: int, scale: float = 1.0, **options) -> Harmony:
    harmony = Harmony(dim, faithfulness, **options).double()
    with torch.no_grad():
        harmony.free.copy_(torch.randn(harmony.free.shape, generator=torch.Generator().manual_seed(seed)) * scale)
        harmony.bias.copy_(torch.randn(dim, generator=torch.Generator().manual_seed(seed + 1)) * scale)
    return harmony


@given(dim=st.integers(1, 9), faithfulness=st.floats(0.3, 50), seed=st.integers(0, 99), scale=st.floats(0, 100))
def test_closed_form_is_the_stationary_maximum(dim: int, faithfulness: float, seed: int, scale: float) -> None:
    harmony = random_harmony(dim, faithfulness, seed, scale)
    composed = torch.randn(4, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    token = harmony.optimise(composed).detach().requires_grad_()
    value = harmony(token, composed)
    (slope,) = torch.autograd.grad(value.sum(), token)
    assert slope.abs().max() <= 1e-9 * (1 + scale) * (1 + faithfulness) * (1 + token.abs().max())
    torch.testing.assert_close(value, harmony.fold()(composed), rtol=1e-8, atol=1e-8)
    assert (torch.linalg.eigvalsh(harmony.matrix()) < faithfulness).all()


def test_gain_is_the_faithful_length_of_the_shift() -> None:
    """Delta H = lambda/2 (mu - x)'(I - tau W)(mu - x) >= 0."""
    harmony = random_harmony(7, 2.0, 5)
    composed = torch.randn(20, 7, dtype=torch.float64)
    shift = harmony.optimise(composed) - composed
    gain = harmony.fold()(composed) - harmony(composed, composed)
    metric = torch.eye(7) - harmony.tau * harmony.matrix()
    torch.testing.assert_close(gain, harmony.faithfulness / 2 * ((shift @ metric) * shift).sum(-1))
    assert (gain >= 0).all()


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("faithfulness", [1.0, math.inf])
def test_calibration_gives_unit_spread_and_a_stretching_w(rank: int | None, faithfulness: float) -> None:
    composed = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0)) / 500
    harmony = Harmony(8, faithfulness, rank=rank)
    harmony.calibrate(composed)
    assert harmony.fold()(composed).std().item() == pytest.approx(1, rel=0.05)
    top = torch.linalg.eigvalsh(harmony.matrix())[-1].item()
    assert top == pytest.approx(harmony.cap, rel=1e-4)
    plain = Sum(8)
    plain.calibrate(composed)
    assert plain.fold()(composed).std().item() == pytest.approx(1, rel=1e-4)


def test_low_rank_is_the_full_model_with_the_same_matrix() -> None:
    low = random_harmony(6, 2.0, 3, rank=3)
    full = Harmony(6, 2.0).double()
    with torch.no_grad():
        full.free.copy_(low.matrix())
        full.bias.copy_(low.bias)
    composed = torch.randn(9, 6, dtype=torch.float64)
    torch.testing.assert_close(low.fold()(composed), full.fold()(composed))
    torch.testing.assert_close(low.optimise(composed), full.optimise(composed))
    torch.testing.assert_close(low.fold().matrix, full.fold().matrix)


def test_quadratic_form_by_hand() -> None:
    form = QuadraticForm(torch.tensor([[1.0, 2.0], [2.0, 3.0]]), torch.tensor([4.0, 5.0]), torch.tensor(6.0))
    assert form(torch.tensor([1.0, 2.0])).item() == 1 + 2 * 2 * 2 + 3 * 4 + 4 + 10 + 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faithfulness": 1.0, "cap": 1.5}, "must be above the cap on W, 1.5"),
        ({"faithfulness": 0.2}, "leaves no room for W"),
        ({"faithfulness": -1.0}, "must be positive"),
        ({"constraint": "nuclear"}, "no constraint 'nuclear'"),
        ({"rank": 9}, "between 1 and the 4 dimensions"),
        ({"dropout": 1.0}, "from 0 to below 1, not 1"),
        ({"faithfulness": 1.0, "cap": 0.99999}, "the cap on W, 0.99999, is too near"),
        ({"faithfulness": 1e6}, "too near"),  # the default cap, lambda - 0.25
        ({"dim": 10_001}, "10,001 dimensions has 100,020,001 numbers; set model.rank"),
    ],
)
def test_impossible_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        Harmony(**{"dim": 4, **options})


@pytest.mark.parametrize(
    "options", [{}, {"constraint": "spectral"}, {"rank": 3}, {"rank": 3, "constraint": "spectral"}]
)
def test_dropout_keeps_w_symmetric_and_within_its_cap(options: dict) -> None:
    harmony, generator = random_harmony(7, 1.0, 3, dropout=0.4, **options), torch.Generator().manual_seed(0)
    whole, shares = harmony.core(), []
    for _ in range(40):
        with harmony.dropping(generator):
            dropped, matrix = harmony.core(), harmony.matrix()
        assert torch.equal(dropped, dropped.T)
        assert torch.linalg.eigvalsh(matrix).max() < harmony.cap * (1 + 1e-9)
        shares.append((dropped == 0).double().mean())
    assert torch.stack(shares).mean().item() == pytest.approx(0.4, abs=0.08)
    assert torch.equal(harmony.core(), whole)
