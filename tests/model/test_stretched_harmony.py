from __future__ import annotations

from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.model.stretched_harmony import SCORE_TOLERANCE, stretched_harmony
from harmonium.run.run import Run
from small import family


@pytest.mark.parametrize("stretch", [1.5, 4.0, 30.0])
@pytest.mark.parametrize("length", [1e-3, 1.0, 50.0])
def test_tokens_are_stretched_along_the_score_and_scores_stay(stretch: float, length: float) -> None:
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(12, generator=generator, dtype=torch.float64)
    vector *= length / vector.norm()
    composed = torch.randn(500, 12, generator=generator, dtype=torch.float64)
    scores = composed @ vector
    largest = scores.abs().max().item()
    form = stretched_harmony(vector, stretch, largest)
    along, across = composed @ vector / length, composed - torch.outer(composed @ vector / length**2, vector)
    tokens = form.optimise(composed) - form.optimise(torch.zeros_like(composed[:1]))
    torch.testing.assert_close(tokens @ vector / length, stretch * along)
    torch.testing.assert_close(tokens - torch.outer(tokens @ vector / length**2, vector), across)
    harmonic = form.fold()
    change = (harmonic(composed) - harmonic.constant - scores).abs()
    assert 0.5 * SCORE_TOLERANCE * largest < change.max() <= 1.0001 * SCORE_TOLERANCE * largest
    assert change.argmax() == scores.abs().argmax()


def test_a_trained_model_keeps_its_ranks_and_stretches_its_tokens(tmp_path: Path) -> None:
    """The paper's cap at lambda = 1 stretches four times; a run folder keeps the form."""
    settings = ["model.entity_dim=16", "train.epochs=5", "train.batch_size=32", "train.loss=sampled"]
    plain = harmonium.train(family(), "plain", overrides=settings)
    run = harmonium.train(
        family(), "plain", overrides=[*settings, "model.harmony=true", "train.harmony=tokens"], out=tmp_path / "run"
    )
    assert run.history.harmony is not None and "W along b" in run.history.harmony["summary"]
    again = Run.load(tmp_path / "run")
    for one in (run, again):
        assert one.metrics["mrr"] == pytest.approx(plain.metrics["mrr"], abs=0.01)
        vector = plain.model.form.fold().vector.detach()
        composed, tokens = plain.model.compose(run.graph.test), one.model.tokens(run.graph.test)
        along = [(vectors[0] - vectors[1:]) @ vector for vectors in (composed, tokens)]
        torch.testing.assert_close(along[1], 4 * along[0], rtol=1e-2, atol=1e-3)
