"""One training step: options, updates row by row, and batches sorted by relation."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training import step as step_module
from harmonium.training.fit import fit
from harmonium.training.step import TrainingStep
from small import family, make_graph

FEW = ["train.batch_size=8", "train.negatives=3"]  # so that a step uses less than half of 150 entities


def settings(*more: str) -> Config:
    base = ["model.composition=complex", "model.entity_dim=16", "train.batch_size=32", "train.negatives=20"]
    return Config.read(None, [*base, "train.learning_rate=0.03", "train.epochs=5", *more])


def trained(graph: Graph, config: Config) -> GradientGraph:
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    fit(model, graph, config)
    return model


def after_steps(graph: Graph, config: Config, count: int) -> TrainingStep:
    """A TrainingStep that has taken steps on random batches, at a constant learning rate."""
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    generator = torch.Generator().manual_seed(0)
    step = TrainingStep(model, graph.train, dataclasses.replace(config.train, schedule="constant"), generator)
    for _ in range(count):
        order = step.arrange_batches(torch.randperm(len(graph.train), generator=generator))
        step(order[: config.train.batch_size])
    return step


def assert_close(one: GradientGraph, other: GradientGraph) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


# Options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", ["vector_dropout=0.2", "composed_dropout=0.2", "label_smoothing=0.1"])
@pytest.mark.parametrize(
    "more",
    ["", "model.rank=4", "model.reciprocal=true train.loss=full", "model.harmony=false train.relation_prediction=1"],
)
def test_dropout_on_queries_and_smoothing_change_training_and_are_repeatable(term: str, more: str) -> None:
    graph, config = family(), settings(f"train.{term}", "train.epochs=25", *more.split())
    model, again = trained(graph, config), trained(graph, config)
    without = trained(graph, settings("train.epochs=25", *more.split()))
    assert torch.equal(model.entity, again.entity)
    assert not torch.equal(model.entity, without.entity)
    assert evaluate_scorer(model, graph).metrics["mrr"] > 0.6


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("train.label_smoothing=0.1 train.loss=logistic", "label_smoothing needs a softmax, not train.loss=logistic"),
        ("train.frequency_weight=0.9", "frequency_weight needs the loss against all entities"),
        ("train.dura=0.1 model.composition=concatenation", "dura needs a composition .* concatenation is not"),
        ("train.f2=0.1", "f2 has no effect on vectors of length one"),
    ],
)
def test_terms_that_do_not_fit_the_model_or_the_loss_are_refused(more: str, message: str) -> None:
    config = settings(*more.split())
    model = build_model(config.model, 40, 3, 0)
    with pytest.raises(HarmoniumError, match=message):
        TrainingStep(model, family().train, config.train, torch.Generator())


@pytest.mark.parametrize("more", ["optimiser=row-adagrad", "negative_group_size=8"])
def test_settings_for_large_graphs_learn_on_small_ones(more: str) -> None:
    base = ["model.entity_dim=16", "model.rank=4", "train.learning_rate=0.05"]
    graph, config = family(), Config.read(None, [*base, *f"train.{more}".split()])
    first, one, other = (after_steps(graph, config, count) for count in (0, 30, 30))
    assert one.model.entity.equal(other.model.entity)
    assert one(torch.arange(100)) < 0.8 * first(torch.arange(100))


@pytest.mark.parametrize(
    "setting", ["train.entity_storage=host", "train.optimiser=row-adagrad", "model.entity_dtype=bfloat16"]
)
def test_the_full_softmax_needs_the_whole_table(setting: str) -> None:
    config = settings("train.loss=full", "model.initialisation=paper", setting)
    model = build_model(config.model, 40, 3, 0)
    with pytest.raises(HarmoniumError, match=f"train.loss=full.*{setting}"):
        TrainingStep(model, family().train, config.train, torch.Generator())


# Updates row by row ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("composition", ["hole", "complex"])
@pytest.mark.parametrize(
    "more",
    [
        *("model.harmony=false", "model.rank=2 model.reciprocal=true", "train.n3=0.1"),
        *("train.relation_prediction=0.5", "train.loss=logistic"),
    ],
)
def test_adagrad_by_rows_is_dense_adagrad(composition: str, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without gradient does not change under Adagrad, so both give the same model."""
    graph = make_graph(n_entities=150, sizes=(60, 0, 5))
    config = settings(f"model.composition={composition}", "train.optimiser=adagrad", *FEW, *more.split())
    touched = after_steps(graph, config, 6)
    monkeypatch.setattr(step_module, "updates_rows", lambda *_: False)
    dense = after_steps(graph, config, 6)
    assert touched.row_optimiser is not None
    assert dense.row_optimiser is None
    assert_close(touched.model, dense.model)


@pytest.mark.parametrize("reciprocal", ["true", "false"])
def test_sorting_batches_by_relation_changes_nothing(reciprocal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every triple gets the same negatives, as the order inside a batch differs."""
    same_for_all = torch.arange(20).expand(50, -1)
    monkeypatch.setattr(
        step_module,
        "draw_negatives",
        lambda _, size, *rest: dict.fromkeys((Slot.HEAD, Slot.TAIL), same_for_all[:size]),
    )
    few, models, capacities = make_graph(n_entities=30, n_relations=12, sizes=(320, 0, 5)), [], []
    graph = dataclasses.replace(few, relations=Vocabulary([f"r{i}" for i in range(60)], kind="relation"))
    config = settings("train.epochs=2", "train.batch_size=50", f"model.reciprocal={reciprocal}", "train.n3=0.01")
    arrange = TrainingStep.arrange_batches
    for by_relation in (True, False):

        def arrange_batches(step: TrainingStep, order: Tensor, by_relation: bool = by_relation) -> Tensor:
            step.sorts_by_relation = by_relation
            arranged = arrange(step, order)
            capacities.append(step.relation_capacity)
            for one, other in zip(arranged.split(50), order.split(50), strict=True):
                assert one.sort().values.equal(other.sort().values)
                assert not by_relation or step.train.relation[one].diff().ge(0).all()
            return arranged

        monkeypatch.setattr(TrainingStep, "arrange_batches", arrange_batches)
        models.append(trained(graph, config))
    assert capacities == [16, 16, 60, 60]  # at most 12 relations in a batch, rounded up; or all of them
    assert_close(*models)
