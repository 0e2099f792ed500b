from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.analysis.neighbours import Guise, Neighbour, neighbours
from harmonium.config import Config, EvaluateConfig, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate
from harmonium.graph import Graph, Slot, Triples, Vocabulary
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


def compose_by_hand(model: GradientGraph, row: tuple, slot: Slot) -> torch.Tensor:
    """The vector of one triplet; a reciprocal model asks for heads by the second vector of the relation."""
    head, relation, tail = row
    if model.reciprocal and slot is Slot.HEAD:
        head, relation, tail = tail, relation + model.n_relations, head
    vectors = model.entities()[head], model.relations()[relation], model.entities()[tail]
    return model.composition.compose(*vectors)


def brute_force(model: GradientGraph, graph: Graph, triple: Triples, slot: Slot, typed: bool) -> dict:
    """Every other entity written into the slot: distance by composed vector and by token, truth, filtered rank."""
    known = {tuple(row) for row in graph.facts().rows().tolist()}
    place, row = list(Slot).index(slot), triple.rows()[0].tolist()
    scores = model.score_slot(slot, triple)[0].tolist()
    centre = compose_by_hand(model, row, slot)
    places = {entity: (*row[:place], entity, *row[place + 1 :]) for entity in range(graph.n_entities)}
    seen = {fact[place] for fact in known if fact[1] == row[1]} if typed else set(places)
    distances: dict[str, list] = {"composed": [], "token": []}
    for entity in sorted(seen - {row[place]}):
        shift = compose_by_hand(model, places[entity], slot) - centre
        name, true = graph.entities.name(entity), places[entity] in known
        better = [e for e in seen if scores[e] > scores[entity] and places[e] not in known]
        entry = true, 1 + len(better)
        distances["composed"].append((name, shift.norm().item(), *entry))
        distances["token"].append((name, (token_map_by_hand(model) @ shift).norm().item(), *entry))
    return {kind: sorted(found, key=lambda entry: entry[1]) for kind, found in distances.items()}


def shown(found: list[Neighbour]) -> list[tuple]:
    return [(n.name, pytest.approx(n.distance), n.true, n.rank) for n in found]


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
    assert len({n.rank for n in found.token}) > 3
    few = neighbours(model, graph, triple, slot, count=3, typed=typed)
    assert shown(few.token) == expected["token"][:3]
    assert found.triple == graph.spell(triple)[0]
    assert found.true
    false = Triples.from_rows([next(row for row in [[0, 0, e] for e in range(12)] if row not in facts(graph))])
    assert not neighbours(model, graph, false, slot, typed=typed).true


def facts(graph: Graph) -> list[list[int]]:
    return graph.facts().rows().tolist()


def test_a_triple_has_its_own_rank() -> None:
    """That of evaluation, under the same candidates."""
    graph = make_graph()
    model = random_model(graph)
    for typed, candidates in ((True, "typed-all"), (False, "full")):
        protocol = EvaluateConfig(candidates=candidates)
        for slot in (Slot.HEAD, Slot.TAIL):
            expected = evaluate(model, graph, replace(protocol, side=slot.value)).ranks.values().tolist()
            assert expected == [
                neighbours(model, graph, graph.test[i : i + 1], slot, typed=typed).rank for i in range(len(graph.test))
            ]


def test_token_distance_is_that_of_tokens() -> None:
    graph = make_graph()
    model, triple = random_model(graph), graph.train[:1]
    found = neighbours(model, graph, triple, count=1, typed=False).token[0]
    other = Triples(torch.tensor([graph.entities.index(found.name)]), triple.relation, triple.tail)
    assert found.distance == pytest.approx((model.tokens(other) - model.tokens(triple)).norm().item())


def test_infinite_faithfulness_leaves_tokens_where_they_are() -> None:
    graph = make_graph()
    found = neighbours(random_model(graph, faithfulness=math.inf), graph, graph.train[:1], count=5)
    assert shown(found.token) == [(n.name, n.distance, n.true, n.rank) for n in found.composed]


def test_typed_candidates_were_seen_in_that_slot() -> None:
    graph = make_graph(n_entities=30, sizes=(20, 3, 3))
    triple, model = Triples.from_rows([[0, 1, 2]]), random_model(graph)
    for slot, place, own in ((Slot.HEAD, 0, 0), (Slot.TAIL, 2, 2)):
        seen = {row[place] for row in graph.facts().rows().tolist() if row[1] == 1}
        assert Guise(model, graph, triple, slot).others.tolist() == sorted(seen | {own})
        assert Guise(model, graph, triple, slot, typed=False).others.tolist() == list(range(30))


def test_neighbours_of_the_same_name_are_told_apart_by_their_ids() -> None:
    bare = make_graph()
    graph = replace(bare, entities=Vocabulary(bare.entities.ids, ["twin"] * bare.n_entities))
    model, triple = random_model(graph), graph.train[:1]
    found, expected = (neighbours(model, g, triple, count=99, typed=False) for g in (graph, bare))
    assert {n.name for n in found.token} == {"twin"}
    assert [n.id for n in found.token] == [n.name for n in expected.token]
    assert found.to_json()["composed"][0]["id"] == expected.composed[0].name


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
    with pytest.raises(HarmoniumError, match="of triplets or of entities, not of 'relations'"):
        harmonium.neighbours(run, head, relation, tail, of="relations")


@pytest.mark.parametrize("harmony", [True, False])
def test_the_figure_has_a_map_for_each_kind_of_vector(
    harmony: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph()
    run = Run(Config(), graph, random_model(graph, harmony=harmony), History(), {})
    drawn = []
    monkeypatch.setattr("harmonium.figures._map", lambda axes, guise, vectors, count: drawn.append((guise, vectors)))
    found = harmonium.neighbours(run, *graph.spell(graph.train)[0], slot="tail", plot=tmp_path / "new" / "near.png")
    assert (tmp_path / "new" / "near.png").read_bytes().startswith(b"\x89PNG")
    spaces = [found.composed, found.token] if harmony else [found.composed]
    for (guise, vectors), near in zip(drawn, spaces, strict=True):
        assert guise.nearest(vectors, vectors[guise.here], 5) == near


def test_the_figure_numbers_and_ranks_the_nearest(tmp_path: Path) -> None:
    graph = make_graph()
    run = Run(Config(), graph, random_model(graph), History(), {})
    found = harmonium.neighbours(run, *graph.spell(graph.train)[0], plot=tmp_path / "near.svg")
    drawn = (tmp_path / "near.svg").read_text(encoding="utf-8")
    for place, near in enumerate(found.composed, start=1):
        assert f"<!-- {place}  {near.name} ({near.rank:g}) -->" in drawn
    with pytest.raises(HarmoniumError, match=r"near.txt: a figure ends in .png, .pdf or .svg"):
        harmonium.neighbours(run, *graph.spell(graph.train)[0], plot=tmp_path / "near.txt")
