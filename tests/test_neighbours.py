from __future__ import annotations

import math

import pytest
import torch

import harmonium
from harmonium.analysis.neighbours import Neighbour, candidates, neighbours
from harmonium.config import Config, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Slot, Triples
from harmonium.model import GradientGraph
from harmonium.run import Run
from harmonium.training import History
from small import make_graph


def random_model(graph: Graph, **settings) -> GradientGraph:
    """A model whose W is not aligned with anything."""
    config = ModelConfig("distmult", 5, **settings)
    model = harmonium.build_model(config, graph.n_entities, graph.n_relations, seed=1).double()
    if config.harmony:
        with torch.no_grad():
            model.harmony.free.add_(torch.randn(model.harmony.free.shape, generator=torch.Generator().manual_seed(0)))
    return model


def token_map_by_hand(model: GradientGraph) -> torch.Tensor:
    """(I - W / lambda)^-1 from the definition."""
    harmony = model.harmony
    return torch.linalg.inv(torch.eye(harmony.dim) - harmony.matrix() / harmony.faithfulness)


def brute_force(model: GradientGraph, graph: Graph, triple: Triples, slot: Slot, typed: bool) -> dict:
    """Every other entity written into the slot, its distance by composed vector and by token, sorted."""
    known = {tuple(row) for row in graph.facts().rows().tolist()}
    place, row = list(Slot).index(slot), triple.rows()[0].tolist()
    distances: dict[str, list] = {"composed": [], "token": []}
    for entity in range(graph.n_entities):
        seen = any(fact[1] == row[1] and fact[place] == entity for fact in known)
        if entity == row[place] or (typed and not seen):
            continue
        other = (*row[:place], entity, *row[place + 1 :])
        shift = (model.compose(Triples.from_rows([other])) - model.compose(triple))[0]
        name, true = graph.entities.name(entity), other in known
        distances["composed"].append((name, shift.norm().item(), true))
        distances["token"].append((name, (token_map_by_hand(model) @ shift).norm().item(), true))
    return {kind: sorted(found, key=lambda entry: entry[1]) for kind, found in distances.items()}


def shown(found: list[Neighbour]) -> list[tuple]:
    return [(n.name, pytest.approx(n.distance), n.true) for n in found]


@pytest.mark.parametrize("settings", [{}, {"faithfulness": 3.0, "rank": 2}, {"reciprocal": True}], ids=str)
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_neighbours_are_the_nearest_triplets(slot: Slot, typed: bool, settings: dict) -> None:
    graph = make_graph(sizes=(70, 10, 10))
    model, triple = random_model(graph, **settings), graph.train[:1]
    expected = brute_force(model, graph, triple, slot, typed)
    found = neighbours(model, graph, triple, slot, count=99, typed=typed)
    assert shown(found.composed) == expected["composed"]
    assert shown(found.token) == expected["token"]
    assert [n.name for n in found.composed] != [n.name for n in found.token]
    assert {n.true for n in found.token} == {True, False}
    few = neighbours(model, graph, triple, slot, count=3, typed=typed)
    assert shown(few.token) == expected["token"][:3]
    assert found.triple == graph.spell(triple)[0]


def test_token_distance_is_that_of_tokens() -> None:
    graph = make_graph()
    model, triple = random_model(graph), graph.train[:1]
    found = neighbours(model, graph, triple, count=1, typed=False).token[0]
    other = Triples(torch.tensor([graph.entities.index(found.name)]), triple.relation, triple.tail)
    assert found.distance == pytest.approx((model.tokens(other) - model.tokens(triple)).norm().item())


def test_infinite_faithfulness_leaves_tokens_where_they_are() -> None:
    graph = make_graph()
    found = neighbours(random_model(graph, faithfulness=math.inf), graph, graph.train[:1], count=5)
    assert shown(found.token) == [(n.name, n.distance, n.true) for n in found.composed]


def test_typed_candidates_were_seen_in_that_slot() -> None:
    graph = make_graph(n_entities=30, sizes=(20, 3, 3))
    triple = Triples.from_rows([[0, 1, 2]])
    for slot, place, own in ((Slot.HEAD, 0, 0), (Slot.TAIL, 2, 2)):
        seen = {row[place] for row in graph.facts().rows().tolist() if row[1] == 1}
        assert candidates(graph, triple, slot).tolist() == sorted(seen | {own})
        assert candidates(graph, triple, slot, typed=False).tolist() == list(range(30))


def test_a_plain_model_has_no_tokens() -> None:
    graph = make_graph()
    found = neighbours(random_model(graph, harmony=False), graph, graph.train[:1])
    assert found.token == []
    assert len(found.composed) == 5
    assert found.to_json()["token"] == []


def test_the_command_asks_by_name_and_for_head_or_tail() -> None:
    graph = make_graph()
    model = random_model(graph)
    run = Run(Config(), graph, model, History(), {})
    head, relation, tail = graph.spell(graph.train)[0]
    found = harmonium.neighbours(run, head, relation, tail, slot="tail", count=2, typed=False)
    assert found == neighbours(model, graph, graph.train[:1], Slot.TAIL, 2, typed=False)
    assert found.to_json()["slot"] == "tail"
    assert found.to_json()["composed"][0] == vars(found.composed[0])
    with pytest.raises(HarmoniumError, match="neighbourhoods change the head or the tail, not 'relation'"):
        harmonium.neighbours(run, head, relation, tail, slot="relation")
    with pytest.raises(HarmoniumError, match="choose the slot head or tail"):
        neighbours(model, graph, graph.train[:1], Slot.RELATION)
    with pytest.raises(HarmoniumError, match="no entity named 'nobody'"):
        harmonium.neighbours(run, "nobody", relation, tail)
