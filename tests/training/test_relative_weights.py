"""Weights of facts in training: what they multiply, and that 0 and 2 are absence and repetition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import Config, TrainConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.kernels import dispatch
from harmonium.model.build import build_model
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training.fit import fit
from harmonium.training.losses import CONTRASTIVE_LOSSES
from harmonium.training.negatives import SIDES
from harmonium.training.relative_weights import relative_weights
from harmonium.training.state import TrainingState
from harmonium.training.step import StepSample, TrainingStep
from laws import models
from small import family, make_graph

ROWS = [[0, 0, 1], [2, 1, 3], [4, 2, 4], [5, 0, 6]]
WEIGHTS = [0.0, 0.3, 1.0, 2.0]
BATCH = replace(Triples.from_rows(ROWS), weight=torch.tensor(WEIGHTS, dtype=torch.float64))
NEGATIVES = {slot: torch.tensor([[5, 6], [2, 0], [9, 10], [7, 1]]) for slot in SIDES}


def weighted(graph: Graph, weights: Tensor | list[float]) -> Graph:
    return replace(graph, train=replace(graph.train, weight=torch.as_tensor(weights, dtype=torch.float64)))


def step_of(model: GradientGraph, settings: TrainConfig) -> TrainingStep:
    return TrainingStep(model, BATCH, settings, torch.Generator().manual_seed(0))


def losses(model: GradientGraph, settings: TrainConfig, negatives: dict[Slot, Tensor], rows: list[int]) -> Tensor:
    """What a step minimises for these facts of the batch."""
    sample = StepSample(None, None, BATCH[rows], {slot: ids[rows] for slot, ids in negatives.items()}, 1.0)
    return step_of(model, settings).loss(sample)


TERMS = {
    "plain": {},
    "smoothed": {"label_smoothing": 0.2},
    "relations": {"relation_prediction": 0.7},
    "regularised": {"n3": 0.3, "f2": 0.2},
}


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize(
    ("loss", "terms"),
    [
        (loss, terms)
        for loss in (*CONTRASTIVE_LOSSES, "full")
        for terms in TERMS
        if terms != "smoothed" or loss in ("full", "sampled")  # only a softmax smooths its labels
    ],
)
def test_all_that_a_fact_adds_to_the_loss_is_multiplied_by_its_weight(loss: str, backend: str, terms: str) -> None:
    """The loss of a batch is the mean of weight * loss of each fact by itself, values and gradients."""
    settings = TrainConfig(loss=loss, margin=0.3, **TERMS[terms])  # type: ignore[arg-type]
    negatives = {} if loss == "full" else NEGATIVES
    for model in models(find_composition("complex"), 4):
        model.normalise = False
        with dispatch.use(backend):
            measured = losses(model, settings, negatives, [0, 1, 2, 3])
            alone = []
            for row, weight in enumerate(WEIGHTS):
                unweighted = replace(BATCH[[row]], weight=None)
                ids = {slot: ids[[row]] for slot, ids in negatives.items()}
                sample = StepSample(None, None, unweighted, ids, 1.0)
                alone.append(weight * step_of(model, settings).loss(sample))
            expected = torch.stack(alone).mean()
        torch.testing.assert_close(measured, expected, rtol=1e-9, atol=1e-9)
        parts = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradients = [torch.autograd.grad(value, parts, materialize_grads=True) for value in (measured, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


# Relative weights ----------------------------------------------------------------------------------------------------


def test_weights_have_the_mean_one_and_facts_without_weight_are_left_out() -> None:
    train = relative_weights(BATCH)
    assert train.to_rows().tolist() == ROWS[1:]
    assert train.weights().mean().item() == pytest.approx(1)
    assert (train.weights() / train.weights()[0]).tolist() == pytest.approx([1, 1 / 0.3, 2 / 0.3])


def test_equal_weights_are_none() -> None:
    for value in (0.3, 1.0, 1e300):
        assert relative_weights(replace(BATCH, weight=torch.full((4,), value, dtype=torch.float64))).weight is None
    assert relative_weights(replace(BATCH, weight=None)).weight is None
    huge = relative_weights(replace(BATCH, weight=torch.tensor([1.0, 1e300, 1e308, 1e308], dtype=torch.float64)))
    assert huge.to("cpu").weights().tolist() == pytest.approx([0, 0, 2, 2], abs=1e-6)


SETTINGS = ["model.composition=complex", "model.entity_dim=8", "train.epochs=4", "train.negatives=6", "train.seed=3"]
SETTINGS += ["train.device=cpu", "train.threads=1", "train.evaluate_every=4", "train.batch_size=16"]
KINDS = {
    "full": "train.loss=full train.n3=0.01 train.relation_prediction=0.1 model.harmony=false model.normalise=false",
    "sampled": "train.loss=sampled",
    "sides": "train.loss=sampled train.alternate_sides=true",
    "margin": "train.loss=linear-margin train.negative_group_size=4",
    "rows": "train.optimiser=row-adagrad",
}


def trained(graph: Graph, kind: str, *more: str) -> GradientGraph:
    config = Config.read(None, [*SETTINGS, *KINDS[kind].split(), *more])
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    fit(model, graph, config)
    return model


def differ(one: GradientGraph, two: GradientGraph) -> bool:
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return not all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fact_of_weight_zero_is_absent_to_the_byte(kind: str) -> None:
    graph = family(20)
    kept = torch.arange(len(graph.train)) % 5 > 0
    absent = replace(graph, train=graph.train[kept])
    assert not differ(trained(weighted(graph, kept.double()), kind), trained(absent, kind))
    assert differ(trained(graph, kind), trained(absent, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_train_as_none_to_the_byte_and_others_do_not(kind: str) -> None:
    graph = family(20)
    count = len(graph.train)
    assert not differ(trained(weighted(graph, [0.3] * count), kind), trained(graph, kind))
    assert differ(trained(weighted(graph, torch.linspace(0.1, 1, count)), kind), trained(graph, kind))


@pytest.mark.parametrize("harmony", ["true", "false"])
def test_a_weight_of_two_is_the_fact_twice(harmony: str) -> None:
    """In a batch of all facts, where the loss is the mean over them."""
    graph = make_graph()
    twice = replace(graph, train=Triples.cat([graph.train, graph.train[:7]]))
    weights = torch.ones(len(graph.train))
    weights[:7] = 2
    more = ["train.batch_size=1000", "train.schedule=constant", f"model.harmony={harmony}"]
    one, two = (trained(g, "full", *more) for g in (weighted(graph, weights), twice))
    torch.testing.assert_close(one.entity, two.entity, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(one.entity, trained(graph, "full", *more).entity, rtol=1e-3, atol=1e-4)


# Batches, checkpoints, processes -------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_cuda_graph_replays_other_weights_in_each_step() -> None:
    graph = weighted(family(20), torch.linspace(0.1, 1, 40))
    models = []
    for replays in (True, False):
        config = Config.read(None, [*SETTINGS, *KINDS["full"].split(), "train.device=cuda", "train.batch_size=8"])
        model = build_model(config.model, graph.n_entities, graph.n_relations, 3).move_to("cuda", "device")
        state = TrainingState(model, relative_weights(graph.train).to("cuda"), config.train)
        if not replays:
            state.training_step.replay = None
        for index in state.batches():
            state.training_step(index)
        models.append(model)
    torch.testing.assert_close(models[0].entity, models[1].entity, rtol=1e-3, atol=1e-4)
