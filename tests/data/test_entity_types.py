"""Which entities could fill a slot."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from harmonium import load
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from small import graph_of, ladder, make_graph

SLOTS = (Slot.HEAD, Slot.TAIL)


def names(graph: Graph, entities: torch.Tensor) -> set[str]:
    return {graph.entities.ids[entity] for entity in entities.tolist()}


def by_definition(graph: Graph, slot: Slot, relation: int) -> list[float]:
    """The log-odds of each entity, from sets."""
    facts = [tuple(row) for row in graph.facts().to_rows().tolist()]
    fill = {
        (side, r): {f[0 if side is Slot.HEAD else 2] for f in facts if f[1] == r} for side in SLOTS for r in range(3)
    }
    everyone = set().union(*fill.values())
    log_odds = []
    for entity in range(graph.n_entities):
        inside = fill[slot, relation] - {entity}
        outside = everyone - inside
        value = math.log((len(inside) + 0.5) / (len(outside) + 0.5))
        for role, members in fill.items():
            if entity in members and role != (slot, relation):
                value += math.log((len(members & inside) + 0.5) / (len(inside) + 1))
                value -= math.log((len(members & outside) + 0.5) / (len(outside) + 1))
        log_odds.append(value)
    return log_odds


@pytest.mark.parametrize("sizes", [(8, 0, 0), (20, 4, 4), (60, 8, 10)])
def test_the_log_odds_are_those_of_naive_bayes(sizes: tuple[int, int, int]) -> None:
    graph = make_graph(sizes=sizes)
    types = EntityTypes.infer(graph)
    for slot in SLOTS:
        for relation in range(3):
            everyone = types.of_slot(slot, relation, typed=False)
            assert everyone.entities.tolist() == list(range(12))
            assert everyone.log_odds.tolist() == pytest.approx(by_definition(graph, slot, relation))
            seen = set(graph.facts()[slot][graph.facts().relation == relation].tolist())
            assert set(everyone.entities[everyone.fills].tolist()) == seen
            assert seen <= set(types.of_slot(slot, relation).entities.tolist())


def test_a_role_that_never_goes_with_the_slot_speaks_against_it() -> None:
    """Of the cities with a time zone, capitals are never `located in` anything."""
    cities = ladder("{i} zone z, {i} in c", 20)
    graph = graph_of(cities + ", " + ladder("{j} zone z, n capital {j}", 20) + ", m zone z")
    heads = EntityTypes.infer(graph).of_slot(Slot.HEAD, graph.relations.index("in"), typed=False)
    ordinary, capital = (heads.log_odds[graph.entities.index(name)] for name in ("m", "y3"))
    assert ordinary > capital + 2


def test_an_entity_that_fills_a_slot_is_as_likely_as_without_that_fact() -> None:
    """The held-out fact of an entity does not count for it."""
    graph = load("atlas")
    relation = graph.relations.index("continent")
    types = EntityTypes.infer(graph)
    inside = types.of_slot(Slot.HEAD, relation, typed=False)
    for row in (graph.train.relation == relation).nonzero()[:5, 0].tolist():
        kept = torch.arange(len(graph.train)) != row
        without = EntityTypes.infer(replace(graph, train=graph.train[kept])).of_slot(Slot.HEAD, relation, typed=False)
        head = graph.train.head[row]
        assert not without.fills[head]
        assert without.log_odds[head] == pytest.approx(inside.log_odds[head].item())


def test_entities_with_the_same_roles_are_candidates() -> None:
    """Every country but one has a currency; a city and a coin are no countries."""
    facts = ladder("{i} capital {j}, {i} currency coin") + ", z capital w"
    graph = graph_of(facts)
    types = EntityTypes.infer(graph)
    currency = graph.relations.index("currency")
    heads = types.of_slot(Slot.HEAD, currency)
    assert names(graph, heads.entities) == {*(f"x{i}" for i in range(10)), "z"}
    assert names(graph, heads.entities[~heads.fills]) == {"z"}
    capitals = types.of_slot(Slot.TAIL, graph.relations.index("capital"))
    assert names(graph, capitals.entities) == {*(f"y{i}" for i in range(10)), "w"}


def test_all_entities_are_candidates_of_a_slot_that_none_fills() -> None:
    graph = make_graph()
    empty = replace(graph, **{split: facts[facts.relation != 1] for split, facts in graph.splits.items()})
    assert len(EntityTypes.infer(empty).of_slot(Slot.TAIL, 1).entities) == 12


def test_held_out_entities_are_candidates() -> None:
    """Types inferred from train keep at least 99 of 100 entities of valid and test, among less than half of all."""
    graph = load("atlas")
    types, held_out = EntityTypes.infer(graph, ("train",)), graph.facts(("valid", "test"))
    kept = candidates = 0
    for slot in SLOTS:
        index = types.candidates(slot, held_out.relation)
        kept += int(index.contains(held_out.relation, held_out[slot]).sum())
        candidates += len(index.lookup(held_out.relation)[1])
    assert kept >= 0.99 * 2 * len(held_out)
    assert candidates < 0.5 * 2 * len(held_out) * graph.n_entities
