from __future__ import annotations

import pytest
import torch

import harmonium
from harmonium.analysis.entity_tokens import entity_tokens
from harmonium.analysis.neighbours import entity_neighbours, nearest_triples
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from small import make_run, random_model


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
@pytest.mark.parametrize("composition", ["distmult", "hole", "complex"])
def test_with_hardly_a_ridge_the_entity_token_composes_to_the_token(graph: Graph, composition: str, slot: Slot) -> None:
    model, triples = random_model(graph, composition, 6), graph.train[:9]
    found = entity_tokens(model, triples, slot, ridge=1e-15)
    vectors = {s: model.relations(triples[s]) if s is Slot.RELATION else model.entities(triples[s]) for s in Slot}
    vectors[slot] = found.vectors
    composed = model.composition.compose(*vectors.values())
    torch.testing.assert_close(composed, model.tokens(triples), rtol=1e-6, atol=1e-6)
    assert (found.residual < 1e-6).all()


def test_the_ridge_gives_the_least_regularised_squares(graph: Graph) -> None:
    """No other entity vector has a smaller |T e + o - mu|^2 + eps |e - entity|^2: its slope there is zero."""
    model, triple, slot = random_model(graph, "tensorproduct", 6), graph.train[:1], Slot.TAIL
    found = entity_tokens(model, triple, slot, ridge=0.01)
    scorer = model.scorer()
    slot_map, entity = scorer.slot_map(slot, triple), scorer.entities[triple.tail]
    matrix = torch.stack([slot_map.apply(row)[0] for row in torch.eye(6, dtype=torch.float64)], dim=1)  # T (dim, 6)
    eps = 0.01 * torch.linalg.matrix_norm(matrix, 2) ** 2
    vector = found.vectors.clone().requires_grad_()
    cost = (slot_map.apply(vector) - model.tokens(triple)).square().sum() + eps * (vector - entity).square().sum()
    (slope,) = torch.autograd.grad(cost, vector)
    assert slope.abs().max() < 1e-9 * cost
    assert 0 < found.residual.item() <= 1


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
@pytest.mark.parametrize("typed", [True, False])
def test_neighbours_are_the_nearest_entity_vectors(graph: Graph, slot: Slot, typed: bool) -> None:
    model, triple = random_model(graph, "distmult", 6), graph.train[:1]
    found = entity_neighbours(model, graph, triple, slot, count=99, typed=typed)
    triplets = {n.name: n for n in nearest_triples(model, graph, triple, slot, count=99, typed=typed).composed}
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


def test_a_run_is_asked_for_entities(graph: Graph) -> None:
    run = make_run(graph, random_model(graph, "distmult", 6))
    names = graph.names_of(graph.train)[0]
    found = harmonium.neighbours(run, *names, slot="tail", top=3, of="entities", ridge=0.5)
    assert found == entity_neighbours(run.model, graph, graph.train[:1], Slot.TAIL, 3, ridge=0.5)
    assert found != harmonium.neighbours(run, *names, slot="tail", top=3, of="entities")
    printed = found.to_json()
    assert (printed["slot"], printed["ridge"], printed["token"][0]) == ("tail", 0.5, vars(found.token[0]))
    with pytest.raises(HarmoniumError, match="ridge must be positive, not 0"):
        harmonium.neighbours(run, *names, of="entities", ridge=0)
    with pytest.raises(HarmoniumError, match="plain distmult has no harmony, so no tokens"):
        entity_neighbours(random_model(graph, "distmult", harmony=False), graph, graph.train[:1])
