"""The experiment with wrong facts, on a small graph."""

from __future__ import annotations

import noise_weights
import pytest
import torch

from harmonium.data.triples import Slot
from small import family

SETTINGS = ["model.entity_dim=16", "train.batch_size=40", "train.epochs=4", "train.device=cpu"]


def test_wrong_facts_are_new_and_as_many_as_asked_for() -> None:
    graph = family(30)
    noisy = noise_weights.add_wrong_facts(graph, 0.2, torch.Generator().manual_seed(0))
    wrong = noisy[len(graph.train) :]
    assert torch.equal(noisy[: len(graph.train)].to_rows(), graph.train.to_rows())
    assert len(wrong) == round(0.2 * len(graph.train)) == len(wrong.to_rows().unique(dim=0))
    assert not graph.known_answers(Slot.TAIL).contain(wrong).any()


@pytest.mark.parametrize("loss", noise_weights.SETTINGS)
def test_trainings_are_compared(loss: str) -> None:
    row = noise_weights.compare(family(30), [*noise_weights.SETTINGS[loss], *SETTINGS], seeds=2)
    assert {len(values) for values in row["mrr"].values()} == {2}
    assert row["mrr"]["weight 0"] == row["mrr"]["dropped"]
    assert len({row["mean"][name] for name in ("unmarked", "weight .3", "weight .3 squared", "dropped")}) > 2
