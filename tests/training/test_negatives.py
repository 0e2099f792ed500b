from __future__ import annotations

import typing

import pytest
import torch

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.training.losses import sampled_softmax
from harmonium.training.negatives import SAMPLERS, draw_negatives, expand_groups


def test_uniform_negatives_are_drawn_apart_for_each_side() -> None:
    negatives = draw_negatives(5, 1000, 20, torch.Generator().manual_seed(0))
    for ids in negatives.values():
        assert ids.shape == (1000, 20)
        assert ids.flatten().bincount(minlength=5).tolist() == pytest.approx([4000] * 5, rel=0.05)
    assert not torch.equal(negatives[Slot.HEAD], negatives[Slot.TAIL])


def star() -> Triples:
    """Entity 0 in nine triples, 1 to 9 in one each, 10 in none; relation 1 has one."""
    return Triples.from_rows([[0, 0, other] for other in range(1, 9)] + [[9, 1, 0]])


def test_every_sampler_is_a_setting_and_repeats_with_its_seed() -> None:
    assert set(SAMPLERS) == set(typing.get_args(typing.get_type_hints(TrainConfig)["sampler"]))
    for sampler in SAMPLERS.values():
        one, other = (sampler(star(), 11).draw(star(), 40, torch.Generator().manual_seed(0)) for _ in range(2))
        assert all(ids.shape == (9, 40) and ids.equal(other[slot]) for slot, ids in one.items())
        assert not one[Slot.HEAD].equal(one[Slot.TAIL])


def test_degree_sampler_follows_degrees() -> None:
    batch = Triples.from_rows([[0, 0, 1], [9, 1, 0]] * 500)
    weights = [10**0.75, *[2**0.75] * 9, 1]
    expected = [40_000 * w / sum(weights) for w in weights]
    for ids in SAMPLERS["degree"](star(), 11).draw(batch, 40, torch.Generator().manual_seed(0)).values():
        assert ids.flatten().bincount(minlength=11).tolist() == pytest.approx(expected, rel=0.06)


def test_typed_sampler_draws_half_from_the_slot_of_the_relation() -> None:
    batch = Triples.from_rows([[0, 0, 1], [9, 1, 0]] * 500)
    negatives = SAMPLERS["typed"](star(), 11).draw(batch, 40, torch.Generator().manual_seed(0))
    assert negatives[Slot.HEAD][0::2, :20].unique().tolist() == [0]
    assert negatives[Slot.HEAD][1::2, :20].unique().tolist() == [9]
    typed = negatives[Slot.TAIL][0::2, :20].flatten().bincount(minlength=11)
    assert typed.tolist() == [0, *[pytest.approx(1250, rel=0.1)] * 8, 0, 0]
    uniform = negatives[Slot.TAIL][:, 20:].flatten().bincount(minlength=11)
    assert uniform.tolist() == pytest.approx([20_000 / 11] * 11, rel=0.1)


@pytest.mark.parametrize(("name", "tolerance"), [("degree", 2e-3), ("typed", 1e-2)])  # typed: not quite a mixture
def test_the_sampled_softmax_is_corrected_for_the_distribution(name: str, tolerance: float) -> None:
    """With the correction the optimal scores are log p whatever q is: there the mean gradient vanishes."""
    n, generator = 5, torch.Generator().manual_seed(0)
    sampler = SAMPLERS[name](Triples.from_rows([[t, 0, t] for t in [0] * 16 + [1] * 4 + [2]]), n)
    p = torch.tensor([0.1, 0.15, 0.2, 0.25, 0.3], dtype=torch.float64)
    truth = torch.multinomial(p, 400_000, replacement=True, generator=generator)
    batch = Triples(truth, torch.zeros_like(truth), truth)
    order = torch.rand(len(truth), 4, generator=generator).argsort(dim=1)  # shuffles the two halves
    negatives = {slot: ids.gather(1, order) for slot, ids in sampler.draw(batch, 4, generator).items()}
    ids = torch.cat([torch.cat([truth[:, None], negatives[slot]], dim=1) for slot in (Slot.HEAD, Slot.TAIL)])
    correction = sampler.logq_correction(batch, negatives)
    for shift, vanishes in ((correction, True), (torch.zeros_like(correction), False)):
        scores = p.log().requires_grad_()
        (gradient,) = torch.autograd.grad(sampled_softmax(scores[ids] - shift, 1.0), scores)
        assert (gradient.abs().max() < tolerance) == vanishes


def test_groups_of_triples_share_their_negatives() -> None:
    sampler = SAMPLERS["uniform"](star(), 11, 4)
    for size, rows in ((12, 3), (10, 5), (7, 7)):
        assert sampler.draw(star()[[0] * size], 6, torch.Generator())[Slot.TAIL].shape == (rows, 6)
    assert expand_groups(torch.tensor([[1], [2]]), 6).flatten().tolist() == [1, 1, 1, 2, 2, 2]
    with pytest.raises(HarmoniumError, match="train.negative_group_size"):
        SAMPLERS["typed"](star(), 11, 4)
