from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harmonium.analysis.figures import figure_path, guises_figure
from harmonium.analysis.neighbours import Neighbour, guise_of, nearest_triples
from harmonium.answers.open_run import open_run
from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.gradient_graph import GradientGraph
from small import make_graph, make_run, random_model


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
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    column, row = list(Slot).index(slot), triple.to_rows()[0].tolist()
    scores = model.score_slot(slot, triple)[0].tolist()
    centre = compose_by_hand(model, row, slot)
    triplets = {entity: (*row[:column], entity, *row[column + 1 :]) for entity in range(graph.n_entities)}
    seen = {fact[column] for fact in known if fact[1] == row[1]} if typed else set(triplets)
    distances: dict[str, list] = {"composed": [], "token": []}
    for entity in sorted(seen - {row[column]}):
        shift = compose_by_hand(model, triplets[entity], slot) - centre
        name, true = graph.entities.name(entity), triplets[entity] in known
        better = [e for e in seen if scores[e] > scores[entity] and triplets[e] not in known]
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
    model, triple = random_model(graph, "distmult", **settings), graph.train[:1]
    expected = brute_force(model, graph, triple, slot, typed)
    found = nearest_triples(model, graph, triple, slot, count=99, typed=typed)
    assert shown(found.composed) == expected["composed"]
    assert shown(found.token) == expected["token"]
    assert [n.name for n in found.composed] != [n.name for n in found.token]
    assert {n.true for n in found.token} == {True, False}
    assert len({n.rank for n in found.token}) > 3
    few = nearest_triples(model, graph, triple, slot, count=3, typed=typed)
    assert shown(few.token) == expected["token"][:3]
    assert found.triple == graph.names_of(triple)[0]
    assert found.true
    known = graph.facts().to_rows().tolist()
    false = Triples.from_rows([next(row for row in [[0, 0, e] for e in range(12)] if row not in known)])
    assert not nearest_triples(model, graph, false, slot, typed=typed).true


def test_a_triple_has_its_own_rank(graph: Graph) -> None:
    """That of evaluation, under the same candidates."""
    model = random_model(graph, "distmult")
    for typed, candidates in ((True, "typed-all"), (False, "full")):
        protocol = EvaluateConfig(candidates=candidates)
        for slot in (Slot.HEAD, Slot.TAIL):
            expected = evaluate_scorer(model, graph, replace(protocol, side=slot.value)).ranks.values().tolist()
            near = [nearest_triples(model, graph, fact, slot, typed=typed) for fact in graph.test.chunks(1)]
            assert [each.rank for each in near] == expected


def test_neighbours_of_the_same_name_are_told_apart_by_their_ids() -> None:
    bare = make_graph()
    graph = replace(bare, entities=Vocabulary(bare.entities.ids, ["twin"] * bare.n_entities))
    model, triple = random_model(graph, "distmult"), graph.train[:1]
    found, expected = (nearest_triples(model, g, triple, count=99, typed=False) for g in (graph, bare))
    assert {n.name for n in found.token} == {"twin"}
    assert [n.id for n in found.token] == [n.name for n in expected.token]
    assert found.to_json()["composed"][0]["id"] == expected.composed[0].name


def test_guises_are_of_entities(graph: Graph) -> None:
    with pytest.raises(HarmoniumError, match="choose the slot head or tail"):
        nearest_triples(random_model(graph, "distmult"), graph, graph.train[:1], Slot.RELATION)


@pytest.mark.parametrize("harmony", [True, False])
def test_the_figure_numbers_and_ranks_the_nearest_in_each_space(graph: Graph, harmony: bool, tmp_path: Path) -> None:
    opened = open_run(make_run(graph, random_model(graph, "distmult", harmony=harmony)))
    nearest = guise_of(opened, graph.train[:1], Slot.TAIL).neighbourhood()
    assert len(nearest.token) == 5  # a plain model has tokens too
    path = figure_path(tmp_path / "new" / "near.svg")
    drawn = guises_figure(opened, [graph.train[:1]], path, Slot.TAIL).read_text(encoding="utf-8")
    lines = re.findall(r"<!-- (\d  \S+ \(\d+\)) -->", drawn)
    expected = [*enumerate(nearest.composed, start=1), *enumerate(nearest.token, start=1)]
    assert lines == [f"{number}  {near.name} ({near.rank:g})" for number, near in expected]
