from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from harmonium.analysis import influence
from harmonium.analysis.influence import Influence, Losses
from harmonium.analysis.statistics import spearman
from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training.fit import fit
from small import family, random_model

SETTINGS = [{}, {"rank": 2}, {"harmony": False}, {"harmony": False, "reciprocal": True}]
LINEAR = [{"harmony": False}, {"harmony": False, "reciprocal": True}]


def loss_of(model: GradientGraph, facts: Triples, entity: int, vector: Tensor) -> Tensor:
    """The cross-entropies of the heads and tails of facts, with another vector for an entity."""
    scorer = model.scorer(torch.where(torch.arange(model.n_entities)[:, None] == entity, vector, model.entity))
    logs = {slot: scorer.score_slot(slot, facts).log_softmax(-1) for slot in (Slot.HEAD, Slot.TAIL)}
    return -sum(log.gather(1, facts[slot][:, None]).sum() for slot, log in logs.items())


def without_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(influence, "_rivals", lambda *_: [])


def facts_about(graph: Graph, entity: int) -> Triples:
    """Its training facts without loops, in which a vector stands twice."""
    train = graph.train
    return train[((train.head == entity) ^ (train.tail == entity))]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradients_are_those_of_the_loss(graph: Graph, settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against autograd; all entities compete."""
    without_rivals(monkeypatch)
    model, entity = random_model(graph, normalise=False, **settings), int(graph.train.head[0])
    facts, value = facts_about(graph, entity), model.entity[entity].detach()
    gradients = Losses(Influence(model, graph), facts, entity).gradients(
        torch.zeros(1, 5).double(), torch.ones(1, len(facts)).double()
    )
    vector = value.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss_of(model, facts, entity, vector), vector)
    torch.testing.assert_close(gradients[0], expected)


@pytest.mark.parametrize("settings", LINEAR, ids=str)
def test_the_curvature_is_the_derivative_of_the_gradient(graph: Graph, settings: dict) -> None:
    model, entity = random_model(graph, normalise=False, **settings), int(graph.train.head[0])
    facts = facts_about(graph, entity)
    losses, weights = Losses(Influence(model, graph), facts, entity), torch.rand(len(facts)).double()
    assert len(losses.rival_weights)
    jacobian = torch.autograd.functional.jacobian(
        lambda shift: losses.gradients(shift[None], weights[None])[0], torch.zeros(5).double()
    )
    torch.testing.assert_close(losses.curvature(weights), jacobian)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "settings"),
    [
        (family(40), ["model.composition=distmult", "model.harmony=false", "model.entity_dim=16", "train.epochs=100"]),
        (family(20), ["model.composition=complex", "model.rank=2", "model.entity_dim=8", "train.epochs=60"]),
    ],
    ids=["plain", "harmony"],
)
def test_the_estimate_goes_with_removing_facts_and_training_again(graph: Graph, settings: list[str]) -> None:
    """Every batch is the whole graph and every entity a negative, so that nothing but the removed fact differs."""
    common = ["train.loss=full", "train.batch_size=1000", "train.learning_rate=0.05", "train.device=cpu"]
    config, graph = Config.read(None, [*common, *settings]), replace(graph, valid=graph.valid[:0])

    def trained(train: Triples) -> GradientGraph:
        model = build_model(config.model, graph.n_entities, graph.n_relations)
        fit(model, replace(graph, train=train), config)
        return model

    whole, pairs = trained(graph.train), []
    for triple in (graph.test[:1], graph.test[1:2]):
        ends = torch.cat([triple.head, triple.tail])
        touching = torch.isin(graph.train.head, ends) | torch.isin(graph.train.tail, ends)
        others = [graph.train[torch.arange(len(graph.train)) != row] for row in touching.nonzero().flatten()]
        scores = [model.scorer().score_slot(Slot.TAIL, triple)[0, triple.tail].item() for model in map(trained, others)]
        before = whole.scorer().score_slot(Slot.TAIL, triple)[0, triple.tail].item()
        estimated = Influence(whole, graph).of_removing(graph.train[touching], triple)
        pairs.append((estimated, torch.tensor(scores) - before))
    estimated, true = (torch.cat(parts).double() for parts in zip(*pairs, strict=True))
    assert len(estimated) >= 10
    assert spearman(estimated, true).rho > 0.4
    assert torch.stack([estimated, true]).corrcoef()[0, 1] > 0.8
    assert all(true[estimated.argmin()] == true.min() for estimated, true in pairs)  # what counts most comes first
