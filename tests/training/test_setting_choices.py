from __future__ import annotations

import pytest

import harmonium
from harmonium.errors import HarmoniumError
from harmonium.model.composition import Composition
from harmonium.training import losses
from harmonium.training.setting_choices import describe_settings


def test_a_registered_loss_is_a_setting_with_its_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CONTRASTIVE_LOSSES", dict(losses.CONTRASTIVE_LOSSES))

    @losses.contrastive
    def pairwise_logistic(scores, margin):
        """Pairwise logistic loss."""
        return (scores[:, 1:] - scores[:, :1]).exp().log1p().mean(1)

    row = next(row for row in describe_settings() if row.key == "train.loss")
    assert "|pairwise-logistic" in row.values
    assert "pairwise-logistic: Pairwise logistic loss." in row.help
    run = harmonium.train("atlas", "paper", loss="pairwise-logistic", dim=4, epochs=1, negatives=4)
    assert run.history.rows[0]["loss"] > 0


def test_every_registered_composition_is_listed() -> None:
    row = next(row for row in describe_settings() if row.key == "model.composition")
    assert row.values.split("|") == list(Composition.registry)


def test_an_unknown_loss_is_an_error_before_the_graph_is_read() -> None:
    with pytest.raises(HarmoniumError, match="no train.loss=hinge; there are full, sampled, linear-margin"):
        harmonium.train("no such graph", "paper", loss="hinge")
