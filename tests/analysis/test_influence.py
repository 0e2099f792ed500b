from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harmonium.analysis import influence
from harmonium.analysis.influence import Influence, Vector
from harmonium.analysis.statistics import spearman
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.runtime.config import Config
from harmonium.training.fit import fit
from small import family, make_graph, random_model

SETTINGS = [{}, {"rank": 2}, {"harmony": False}, {"harmony": False, "reciprocal": True}]


def log_probabilities(model: GradientGraph, fact: Triples) -> list[torch.Tensor]:
    """The log-softmax of every entity as the head and as the tail of one fact."""
    return [model.scorer().score_slot(slot, fact)[0].log_softmax(-1) for slot in (Slot.HEAD, Slot.TAIL)]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("is_relation", [True, False])
def test_gradients_and_curvature_are_those_of_the_loss(graph: Graph, is_relation: bool, settings: dict) -> None:
    """Against autograd, fact by fact: dloss/dv, and the Gauss-Newton J'(diag p - pp')J over all entities."""
    model = random_model(graph, normalise=False, **settings)
    vector = Vector(is_relation, int(graph.train.relation[0] if is_relation else graph.train.head[0]))
    facts = graph.train[vector.within(graph.train)][:4]
    chunks = Influence(model, graph).loss_gradients(facts, vector)
    gradients, roots = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    table = model.relation if is_relation else model.entity
    curvature = torch.zeros(5, 5, dtype=torch.float64)
    for row, fact in enumerate(facts.chunks(1)):
        logs = log_probabilities(model, fact)
        loss = -logs[0][fact.head] - logs[1][fact.tail]
        expected = torch.autograd.grad(loss.sum(), table, retain_graph=True)[0][vector.id]
        torch.testing.assert_close(gradients[row], expected)
        for log in logs:
            rows = [torch.autograd.grad(one, table, retain_graph=True)[0][vector.id] for one in log]
            curvature += sum(p * torch.outer(row, row) for p, row in zip(log.exp().detach(), rows, strict=True))
    torch.testing.assert_close(roots.T @ roots, curvature)


def test_pieces_and_samples_change_little_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(sizes=(80, 5, 5))
    model, triple = random_model(graph), graph.test[:1]
    whole = Influence(model, graph).of_removing(graph.train, triple)
    monkeypatch.setattr(influence, "MAX_NUMBERS", 1)
    torch.testing.assert_close(Influence(model, graph).of_removing(graph.train, triple), whole)
    monkeypatch.setattr(influence, "CURVATURE_FACTS", 8)
    monkeypatch.setattr(influence, "NEGATIVES", 8)
    sampled = Influence(model, graph).of_removing(graph.train, triple)
    assert not torch.equal(sampled, whole)
    assert spearman(sampled, whole).rho > 0.5


def test_facts_that_share_nothing_have_no_effect(graph: Graph) -> None:
    triple = graph.test[:1]
    effects = Influence(random_model(graph), graph).of_removing(graph.train, triple)
    apart = (graph.train.relation != triple.relation) & ~torch.isin(
        torch.stack([graph.train.head, graph.train.tail]), torch.cat([triple.head, triple.tail])
    ).any(0)
    assert apart.any()
    assert torch.equal(effects == 0, apart)


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

    whole, found = trained(graph.train), []
    for triple in (graph.test[:1], graph.test[1:2]):
        ends = torch.cat([triple.head, triple.tail])
        touching = torch.isin(graph.train.head, ends) | torch.isin(graph.train.tail, ends)
        others = [graph.train[torch.arange(len(graph.train)) != row] for row in touching.nonzero().flatten()]
        scores = [model.scorer().score_slot(Slot.TAIL, triple)[0, triple.tail].item() for model in map(trained, others)]
        before = whole.scorer().score_slot(Slot.TAIL, triple)[0, triple.tail].item()
        said = Influence(whole, graph).of_removing(graph.train[touching], triple)
        found.append((said, torch.tensor(scores) - before))
    said, true = (torch.cat(parts).double() for parts in zip(*found, strict=True))
    assert len(said) >= 10
    assert spearman(said, true).rho > 0.4
    assert torch.stack([said, true]).corrcoef()[0, 1] > 0.8
    assert all(true[said.argmin()] == true.min() for said, true in found)  # what counts most is found
