"""GradientGraph: how it starts, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum


def test_impossible_models_are_refused() -> None:
    hole, one = find_composition("hole"), Triples.from_rows([[0, 0, 1]])
    with pytest.raises(HarmoniumError, match="5 dimensions.*hole.*6"):
        GradientGraph(hole, 4, 2, 6, Sum(5))
    with pytest.raises(HarmoniumError, match="'zero'.*calibrated, paper"):
        GradientGraph(hole, 4, 2, 6, Sum(6)).initialise("zero")
    with pytest.raises(HarmoniumError, match="plain hole.*no tokens"):
        GradientGraph(hole, 4, 2, 6, Sum(6)).initialise().tokens(one)


@pytest.mark.parametrize("harmony", [False, True])
def test_an_initial_spread_is_that_of_the_vectors_and_leaves_plain_scores(harmony: bool) -> None:
    """Harmony starts as the plain model, whose score is the sum of x, however small the vectors are."""
    config = ModelConfig("complex", 64, harmony=harmony, rank=4, normalise=False, reciprocal=True, initial_spread=0.001)
    model = build_model(config, 500, 40).double()
    for table in (model.entity, model.relation):
        assert table.std().item() == pytest.approx(0.001, rel=0.05)
    triples = Triples.from_rows([[0, 0, 1], [2, 1, 3]])
    expected = model.compose(triples).sum(-1)
    torch.testing.assert_close(model.score(triples) - model.form.fold().constant, expected, rtol=1e-5, atol=0)


def test_vectors_start_with_a_length_of_about_one_and_normalised_models_ignore_the_spread() -> None:
    default, spread = (build_model(ModelConfig("hole", 64, rank=4, initial_spread=s), 500, 40) for s in (None, 0.5))
    assert default.entity.std().item() == pytest.approx(1 / 8, rel=0.05)
    triples = Triples.from_rows([[0, 0, 1], [2, 1, 3]])
    torch.testing.assert_close(spread.score(triples), default.score(triples))
