from __future__ import annotations

import math

import pytest
import torch

import harmonium
from harmonium.analysis.entity_tokens import entity_neighbours, entity_tokens
from harmonium.analysis.neighbours import neighbours
from harmonium.config import Config, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Slot
from harmonium.model import GradientGraph
from harmonium.run import Run
from harmonium.training import History
from small import make_graph


def random_model(graph: Graph, composition: str = "distmult", **settings) -> GradientGraph:
    config = ModelConfig(composition, 6, **settings)
    model = harmonium.build_model(config, graph.n_entities, graph.n_relations, seed=1).double()
    if config.harmony:
        with torch.no_grad():
            model.harmony.free.add_(torch.randn(model.harmony.free.shape, generator=torch.Generator().manual_seed(0)))
    return model


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
@pytest.mark.parametrize("composition", ["distmult", "hole", "complex"])
def test_with_hardly_a_ridge_the_entity_token_composes_to_the_token(composition: str, slot: Slot) -> None:
    graph = make_graph()
    model, triples = random_model(graph, composition), graph.train[:9]
    found = entity_tokens(model, triples, slot, ridge=1e-15)
    vectors = {s: model.relations(triples[s]) if s is Slot.RELATION else model.entities(triples[s]) for s in Slot}
    vectors[slot] = found.vectors
    torch.testing.assert_close(
        model.composition.compose(*vectors.values()), model.tokens(triples), rtol=1e-6, atol=1e-6
    )
    assert (found.residual < 1e-6).all()


def test_distmult_by_hand() -> None:
    """T is diagonal, so the token is the elementwise quotient, shrunk towards the entity where T is small."""
    graph = make_graph()
    model, triple = random_model(graph), graph.train[:1]
    known, own = (model.relations(triple.relation) * model.entities(triple.tail))[0], model.entities(triple.head)[0]
    shift = (model.tokens(triple) - model.compose(triple))[0]
    for ridge in (1e-6, 0.1, 100.0):
        found = entity_tokens(model, triple, Slot.HEAD, ridge)
        eps = ridge * known.square().max()
        expected = own + known * shift / (known.square() + eps)
        torch.testing.assert_close(found.vectors[0], expected.detach())
        left = (known * (expected - own) - shift).norm() / shift.norm()
        assert found.residual.item() == pytest.approx(left.item())
        assert found.condition.item() == pytest.approx((known.abs().max() / known.abs().min()).item())
    assert (found.vectors[0] - own).norm() < 0.02 * shift.norm() / known.abs().max()


def test_the_ridge_gives_the_least_regularised_squares() -> None:
    """No other entity vector has a smaller |T e + o - mu|^2 + eps |e - own|^2: its slope there is zero."""
    graph = make_graph()
    model, triple, slot = random_model(graph, "tensorproduct"), graph.train[:1], Slot.TAIL
    found = entity_tokens(model, triple, slot, ridge=0.01)
    snapshot = model.snapshot()
    slot_map, own = snapshot.slot_map(slot, triple), snapshot.entities[triple.tail]
    matrix = torch.stack([slot_map.apply(row)[0] for row in torch.eye(6, dtype=torch.float64)], dim=1)  # T (dim, 6)
    eps = 0.01 * torch.linalg.matrix_norm(matrix, 2) ** 2
    vector = found.vectors.clone().requires_grad_()
    cost = (slot_map.apply(vector) - model.tokens(triple)).square().sum() + eps * (vector - own).square().sum()
    (slope,) = torch.autograd.grad(cost, vector)
    assert slope.abs().max() < 1e-9 * cost
    assert 0 < found.residual.item() <= 1


def test_infinite_faithfulness_leaves_entities_where_they_are() -> None:
    graph = make_graph()
    model = random_model(graph, faithfulness=math.inf)
    found = entity_tokens(model, graph.train, Slot.HEAD)
    torch.testing.assert_close(found.vectors, model.entities(graph.train.head).detach())
    assert (found.residual == 0).all()


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
@pytest.mark.parametrize("typed", [True, False])
def test_neighbours_are_the_nearest_entity_vectors(slot: Slot, typed: bool) -> None:
    graph = make_graph()
    model, triple = random_model(graph), graph.train[:1]
    found = entity_neighbours(model, graph, triple, slot, count=99, typed=typed)
    triplets = {n.name: n for n in neighbours(model, graph, triple, slot, count=99, typed=typed).composed}
    centres = {"entity": model.entities(triple[slot])[0], "token": entity_tokens(model, triple, slot).vectors[0]}
    for kind, centre in centres.items():
        side = getattr(found, kind)
        assert {n.name for n in side} == set(triplets)
        assert [n.distance for n in side] == sorted(n.distance for n in side)
        for near in side:
            vector = model.entities(torch.tensor([graph.entities.index(near.name)]))[0]
            assert near.distance == pytest.approx((vector - centre).norm().item())
            assert (near.true, near.rank) == (triplets[near.name].true, triplets[near.name].rank)
    assert [n.name for n in found.entity] != [n.name for n in found.token]


def test_the_command_asks_for_entities() -> None:
    graph = make_graph()
    run = Run(Config(), graph, random_model(graph), History(), {})
    names = graph.spell(graph.train)[0]
    found = harmonium.neighbours(run, *names, slot="tail", count=3, of="entities", ridge=0.5)
    assert found == entity_neighbours(run.model, graph, graph.train[:1], Slot.TAIL, 3, ridge=0.5)
    assert found != harmonium.neighbours(run, *names, slot="tail", count=3, of="entities")
    printed = found.to_json()
    assert (printed["slot"], printed["ridge"], printed["token"][0]) == ("tail", 0.5, vars(found.token[0]))
    with pytest.raises(HarmoniumError, match="only neighbourhoods of triplets are drawn"):
        harmonium.neighbours(run, *names, of="entities", plot="near.png")
    with pytest.raises(HarmoniumError, match="ridge must be positive, not 0"):
        harmonium.neighbours(run, *names, of="entities", ridge=0)
    with pytest.raises(HarmoniumError, match="plain distmult has no harmony, so no tokens"):
        entity_neighbours(random_model(graph, harmony=False), graph, graph.train[:1])
