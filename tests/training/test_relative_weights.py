"""Weights of facts in training: what they multiply, and that 0 and 2 are absence and repetition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import Config, TrainConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.kernels import dispatch
from harmonium.model.build import build_model
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.runtime.distributed import World
from harmonium.training.fit import fit
from harmonium.training.harmony_fit import fit_harmony
from harmonium.training.losses import CONTRASTIVE_LOSSES
from harmonium.training.negatives import SIDES
from harmonium.training.regularisers import dura, f2, n3
from harmonium.training.relative_weights import relative_weights
from harmonium.training.state import TrainingState
from harmonium.training.step import StepSample, TrainingStep, batch_shard, distinct_entities, distinct_relations
from harmonium.training.train import resume, train
from kills import config as small_config
from kills import outcome, signal_at
from laws import models
from small import family, make_graph

ROWS = [[0, 0, 1], [2, 1, 3], [4, 2, 4], [5, 0, 6]]
WEIGHTS = [0.0, 0.3, 1.0, 2.0]
BATCH = replace(Triples.from_rows(ROWS), weight=torch.tensor(WEIGHTS, dtype=torch.float64))
NEGATIVES = {slot: torch.tensor([[5, 6], [2, 0], [9, 10], [7, 1]]) for slot in SIDES}
SHARED = {slot: torch.tensor([[5, 6], [9, 10]]) for slot in SIDES}


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


@pytest.mark.parametrize("loss", CONTRASTIVE_LOSSES)
def test_facts_that_share_negatives_have_their_own_weights(loss: str) -> None:
    settings = TrainConfig(loss=loss, margin=0.3)
    expanded = {slot: ids[[0, 0, 1, 1]] for slot, ids in SHARED.items()}
    for model in models(find_composition("distmult"), 4):
        values = [step_of(model, settings).loss(StepSample(None, None, BATCH, ids, 1.0)) for ids in (SHARED, expanded)]
        torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("penalty", [n3, f2, dura])
@pytest.mark.parametrize("name", ["complex", "hole"])
def test_regularisers_count_a_fact_as_often_as_its_weight_says(name: str, penalty) -> None:
    for model in models(find_composition(name), 4):
        scorer = model.scorer()
        alone = [penalty(scorer.for_batch(replace(BATCH[[row]], weight=None))) for row in range(4)]
        expected = torch.stack(alone) @ torch.tensor(WEIGHTS, dtype=torch.float64) / 4
        torch.testing.assert_close(penalty(scorer.for_batch(BATCH)), expected, rtol=1e-9, atol=1e-12)


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


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_weights_have_a_power(power: float) -> None:
    weights = relative_weights(BATCH, power).weights()
    expected = torch.tensor(WEIGHTS[1:], dtype=torch.float64) ** power
    torch.testing.assert_close(weights, expected / expected.mean())
    assert relative_weights(BATCH, 0.0).weight is None and len(relative_weights(BATCH, 0.0)) == 3


def test_the_power_is_a_setting() -> None:
    graph = weighted(family(20), torch.linspace(0.1, 1, 40))
    squared = weighted(family(20), torch.linspace(0.1, 1, 40, dtype=torch.float64) ** 2)
    assert differ(trained(graph, "full", "train.weight_power=2"), trained(graph, "full"))
    one, two = (
        trained(g, "full", power) for g, power in ((graph, "train.weight_power=2"), (squared, "train.weight_power=1"))
    )
    torch.testing.assert_close(one.entity, two.entity, rtol=1e-3, atol=1e-4)


def test_nothing_but_zeros_is_an_error() -> None:
    with pytest.raises(HarmoniumError, match="all training facts have the weight 0"):
        relative_weights(replace(BATCH, weight=torch.zeros(4, dtype=torch.float64)))


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


def test_a_doubtful_fact_is_learned_less() -> None:
    graph = family(20)
    weights = torch.ones(len(graph.train))
    weights[:10] = 0.05
    model, doubtful = (
        trained(g, "full", "train.epochs=25", "train.learning_rate=0.05") for g in (graph, weighted(graph, weights))
    )
    scores = [m.scorer().score_slot(Slot.TAIL, graph.train[:10]).log_softmax(1) for m in (model, doubtful)]
    true = [s.gather(1, graph.train.tail[:10, None]).mean().item() for s in scores]
    assert true[1] < true[0] - 0.5


def test_a_harmony_is_fitted_to_weighted_facts() -> None:
    """Validation facts of weight 0 are absent, and equal weights are none."""
    graph = family()
    graph = replace(graph, valid=Triples.cat([graph.valid, graph.test, graph.train[:20]]))
    config = Config.read(None, ["model.entity_dim=8", "model.harmony=false", "model.composition=complex"])
    model, kept = build_model(config.model, graph.n_entities, graph.n_relations, 0), torch.arange(40) % 4 > 0
    fits = {}
    for name, weights in {
        "none": None,
        "equal": torch.full((40,), 0.3),
        "zeros": kept,
        "ramp": torch.linspace(0.1, 1, 40),
    }.items():
        valid = graph.valid if weights is None else replace(graph.valid, weight=weights.double())
        fits[name] = fit_harmony(model, replace(graph, valid=valid), config)
    fits["absent"] = fit_harmony(model, replace(graph, valid=graph.valid[kept]), config)
    facts = {name: fit.to_json() for name, fit in fits.items()}
    assert facts["equal"] == facts["none"] != facts["ramp"]
    assert facts["zeros"] == facts["absent"] != facts["none"]


# Batches, checkpoints, processes -------------------------------------------------------------------------------------


def test_samples_keep_the_weights_of_their_facts() -> None:
    for batch in (distinct_entities(BATCH, NEGATIVES)[1], distinct_relations(BATCH[[0, 3, 1, 2]], 4)[1]):
        assert batch.weight is not None
        assert sorted(batch.weight.tolist()) == WEIGHTS


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_losses_of_processes_add_up_to_that_of_the_batch(size: int) -> None:
    """Also where some processes have no fact, or only facts of weight 0."""
    model, settings = next(models(find_composition("complex"), 4)), TrainConfig()
    total = torch.zeros((), dtype=torch.float64)
    for rank in range(size):
        weight, batch, negatives = batch_shard(World(rank, size), BATCH, NEGATIVES)
        total += weight * step_of(model, settings).loss(StepSample(None, None, batch, negatives, weight))
    torch.testing.assert_close(total, losses(model, settings, NEGATIVES, [0, 1, 2, 3]))


@pytest.mark.parametrize("kind", ["train.optimiser=adam", "train.loss=full train.n3=0.01"])
def test_a_stopped_training_with_weights_ends_the_same_to_the_byte(kind: str, tmp_path: Path) -> None:
    graph = make_graph(n_entities=150, sizes=(60, 12, 12))
    graph = weighted(graph, torch.linspace(0, 2, 60))
    train(graph, small_config(kind), tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(graph, small_config(kind), tmp_path / "stopped", progress=signal_at(11))
    run = resume(tmp_path / "stopped")
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "stopped")
    assert run.graph.train.weight is not None
    assert torch.equal(run.graph.train.weight.sort().values, graph.train.weights())


def test_processes_that_train_on_other_weights_notice() -> None:
    graph = make_graph()
    one, two = (weighted(graph, torch.full((40,), value)).fingerprint() for value in (0.5, 0.6))
    assert len({graph.fingerprint(), one, two}) == 3


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
