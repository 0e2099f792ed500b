"""Sixteen bits that are right on average, and models trained in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.errors import HarmoniumError
from harmonium.optimiser import RowAdagrad
from harmonium.rounding import add_to_rows, computed_in, round_at_random
from harmonium.run import Run
from small import family

SETS = ["model.entity_dim=8", "train.batch_size=16", "train.negatives=4", "train.epochs=3", "train.evaluate_every=1"]


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_rounding_is_to_a_neighbour_with_the_odds_of_the_distance() -> None:
    """Of each value, drawn often: only the two numbers around it, and the mean within five of its standard errors."""
    values = torch.cat([torch.randn(40, generator=noise()), torch.tensor([1.0, -3.0, 1e-30, -1.00390625, 0.0])])
    down = (values.view(torch.int32) & -65536).view(torch.float32)  # towards zero
    up = ((values.view(torch.int32) & -65536) + 65536).view(torch.float32)
    drawn = round_at_random(values.repeat(20_000, 1), noise(1))
    assert drawn.dtype == torch.bfloat16
    drawn = drawn.double()
    assert ((drawn == down) | (drawn == up)).all()
    share = ((values - down) / (up - down)).double()
    spread = (share * (1 - share) / 20_000).sqrt()
    assert (((drawn == up).double().mean(0) - share).abs() <= 5 * spread).all()
    exact = values == down
    assert exact.sum() == 3
    assert (drawn[:, exact] == values[exact]).all()


def test_what_is_no_number_stays_so() -> None:
    bits = torch.tensor([0x7FFFFFFF, 0x7FC00000, -1], dtype=torch.int32).view(torch.float32).repeat(50)
    assert round_at_random(bits, noise()).isnan().all()
    for sign in (1, -1):
        assert (round_at_random(torch.full((50,), sign * torch.inf), noise()) == sign * torch.inf).all()


def test_small_steps_add_up_only_with_noise() -> None:
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
    whole = torch.ones(3, 4)
    add_to_rows(whole, rows, torch.full((2, 4), 0.5), generator)
    assert whole[:, 0].tolist() == [1.5, 1, 1.5]


def test_optimisers_remember_in_32_bits() -> None:
    table = torch.zeros(3, 2, dtype=torch.bfloat16)
    optimiser = RowAdagrad(table, torch.tensor(0.1), noise())
    assert computed_in(table) == optimiser.squares.dtype == torch.float32
    assert computed_in(table.double()) == torch.float64
    optimiser.step(torch.tensor([1]), torch.tensor([[1.0, -2.0]]))
    torch.testing.assert_close(table[1].float(), torch.tensor([-0.1, 0.1]), rtol=2**-7, atol=0)


@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
def test_a_model_in_16_bits_is_trained_saved_and_read(optimiser: str, tmp_path: Path) -> None:
    sets = [*SETS, "model.entity_dtype=bfloat16", f"train.optimizer={optimiser}"]
    run = harmonium.train(data=family(), sets=sets, out=tmp_path / "run")
    again = harmonium.train(data=family(), sets=sets)
    read = Run.load(tmp_path / "run")
    assert read.model.entity.dtype == torch.bfloat16
    assert read.model.relation.dtype == torch.float32
    assert torch.equal(read.model.entity, run.model.entity)
    assert torch.equal(again.model.entity, run.model.entity)
    assert (tmp_path / "run" / "model.safetensors").stat().st_size < 4 * sum(p.numel() for p in read.model.parameters())
    assert harmonium.evaluate(tmp_path / "run").metrics == run.metrics["metrics"]
    other = harmonium.train(data=family(), sets=[*sets, "train.seed=1"])
    assert not torch.equal(other.model.entity, run.model.entity)
    assert len(harmonium.predict(tmp_path / "run", head="person 0", relation="next", top=3)) == 3  # with probabilities
    vectors = read.model.entities()
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(40))


def test_a_model_in_16_bits_learns_as_one_in_32() -> None:
    """By the loss; benchmarks/bench_rounding.py looks at metrics."""
    more = ["model.entity_dim=16", "train.epochs=25", "train.evaluate_every=25", "model.rank=4"]
    losses = {}
    for kind in ("float32", "bfloat16"):
        run = harmonium.train(data=family(), sets=[*SETS, *more, f"model.entity_dtype={kind}"])
        losses[kind] = [row["loss"] for row in run.history.rows]
    assert losses["bfloat16"][-1] == pytest.approx(losses["float32"][-1], rel=0.05)
    assert losses["bfloat16"][-1] < 0.9 * losses["bfloat16"][0]


def test_all_entities_at_once_are_refused() -> None:
    with pytest.raises(HarmoniumError, match=r"needs all entities together, not model\.entity_dtype=bfloat16; choose"):
        harmonium.train(data=family(), sets=[*SETS, "model.entity_dtype=bfloat16", "train.loss=full"])
