from __future__ import annotations

import pytest
import torch

from harmonium.data.triples import Slot
from harmonium.training.negatives import count_groups, draw_negatives, expand_groups


def test_uniform_negatives_are_drawn_apart_for_each_side() -> None:
    negatives = draw_negatives(5, 1000, 20, torch.Generator().manual_seed(0))
    for ids in negatives.values():
        assert ids.shape == (1000, 20)
        assert ids.flatten().bincount(minlength=5).tolist() == pytest.approx([4000] * 5, rel=0.05)
    assert not torch.equal(negatives[Slot.HEAD], negatives[Slot.TAIL])


def test_triples_of_a_group_share_their_negatives() -> None:
    assert [count_groups(size, 4) for size in (12, 10, 7)] == [3, 5, 7]
    assert expand_groups(torch.tensor([[1], [2]]), 6).flatten().tolist() == [1, 1, 1, 2, 2, 2]
