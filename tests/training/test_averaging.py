"""Weight averaging: the mean of the last epochs' weights is what is validated, saved and returned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harmonium.config.settings import Config
from harmonium.data.triples import Triples
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training import fit as fit_module
from harmonium.training.averaging import WeightAverage, is_averaged
from harmonium.training.fit import fit
from harmonium.training.state import TrainingState
from small import CONFIGS, family, untrained

GRAPH = family()
WITHOUT_VALIDATION = replace(GRAPH, valid=Triples.from_rows([]))
SETTINGS = ["model.entity_dim=8", "train.epochs=8", "train.batch_size=16", "train.negatives=4", "train.device=cpu"]
KINDS = [
    "train.average=0.5",
    "train.average=0.5 train.loss=full model.rank=2",
    "train.average=0.5 model.entity_dtype=bfloat16 model.harmony=false",
    "train.average=0.5 train.entity_storage=host",
]


def weights_after_each_epoch(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """Filled while models are trained: the raw weights at the end of each epoch."""
    snapshots: list[dict[str, torch.Tensor]] = []
    end_epoch = TrainingState.end_epoch

    def record(state: TrainingState) -> dict[str, object]:
        snapshots.append({name: p.detach().double().clone() for name, p in state.model.named_parameters()})
        return end_epoch(state)

    monkeypatch.setattr(TrainingState, "end_epoch", record)
    return snapshots


def build(config: Config) -> GradientGraph:
    return build_model(config.model, GRAPH.n_entities, GRAPH.n_relations, config.train.seed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_the_mean_of_the_last_epochs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, config = weights_after_each_epoch(monkeypatch), Config.read(None, [*SETTINGS, *kind.split()])
    model = build(config)
    fit(model, WITHOUT_VALIDATION, config)
    assert len(snapshots) == 8
    for name, parameter in model.named_parameters():
        expected = torch.stack([snapshot[name] for snapshot in snapshots[4:]]).mean(0)
        tolerance = 2**-8 if parameter.dtype == torch.bfloat16 else 1e-6
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=tolerance, atol=1e-6)
        assert not torch.equal(parameter.detach().double(), snapshots[-1][name]) or not parameter.requires_grad


def test_averaging_does_not_change_training(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = weights_after_each_epoch(monkeypatch)
    for share in (0.0, 0.5):
        config = Config.read(None, [*SETTINGS, f"train.average={share}", "train.evaluate_every=1", "train.patience=9"])
        fit(build(config), GRAPH, config)
    for one, other in zip(snapshots[:8], snapshots[8:], strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_validation_sees_the_mean_and_the_best_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, validated = weights_after_each_epoch(monkeypatch), []

    def validate(model: GradientGraph, *_: object) -> dict[str, float]:
        validated.append(model.entity.detach().double().clone())
        return {"mrr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9, 0.8][len(validated) - 1]}

    monkeypatch.setattr(fit_module, "validate", validate)
    config = Config.read(None, [*SETTINGS, "train.average=0.5", "train.evaluate_every=1"])
    model = build(config)
    history = fit(model, GRAPH, config)
    for epoch, seen in enumerate(validated, start=1):
        expected = snapshots[epoch - 1 : epoch] if epoch <= 4 else snapshots[4:epoch]
        torch.testing.assert_close(seen, torch.stack([snapshot["entity"] for snapshot in expected]).mean(0))
    assert history.best_epoch == 7
    torch.testing.assert_close(model.entity.detach().double(), validated[6])


@pytest.mark.parametrize(
    ("share", "epochs", "averaged"), [(0.0, 4, []), (0.25, 8, [7, 8]), (0.1, 30, [28, 29, 30]), (0.01, 3, [3])]
)
def test_the_last_share_of_the_epochs_is_averaged(share: float, epochs: int, averaged: list[int]) -> None:
    assert [epoch for epoch in range(1, epochs + 1) if is_averaged(epoch, epochs, share)] == averaged


def test_the_weights_are_put_back_whatever_happens() -> None:
    model = untrained(GRAPH, CONFIGS["low rank"])
    average, storage = WeightAverage(model), model.entity.data_ptr()
    average.update()
    with torch.no_grad():
        model.entity.add_(1)
    after = model.entity.detach().clone()
    with pytest.raises(RuntimeError, match="inside"), average.applied():
        torch.testing.assert_close(model.entity.detach(), after - 1)
        raise RuntimeError("inside")
    assert torch.equal(model.entity, after)
    assert model.entity.data_ptr() == storage
