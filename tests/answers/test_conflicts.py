"""Facts that do not go together with known facts of their entities."""

from __future__ import annotations

import pytest

from harmonium.answers.conflicts import Conflicts
from harmonium.answers.contradictions import find_contradictions, with_contradictions
from harmonium.answers.open_run import open_run
from harmonium.answers.reasons import Reason
from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.graph import Graph
from small import graph_of, make_run, untrained


@pytest.fixture(scope="module")
def cities() -> Graph:
    """Thirty cities in six states, each in one of two countries; Rajshahi in a third one."""
    rows = [f"c{i} state s{i % 6}, c{i} country k{i % 2}, c{i} likes s{(i * 5 + i // 7) % 6}" for i in range(30)]
    return graph_of(", ".join([*rows, "Rajshahi country B", "Dhaka country B", "c1 country k1"]))


def conflicts_of(graph: Graph) -> Conflicts:
    return Conflicts(graph.facts(), RelationTraits.infer(graph), graph.n_entities)


def strength(graph: Graph, *fact: str, is_known: bool = False) -> float:
    triple = graph.triple(*fact)
    return float(conflicts_of(graph).strengths(int(triple.relation), triple, [is_known])[0])


def test_a_state_has_cities_of_one_country(cities: Graph) -> None:
    assert strength(cities, "Rajshahi", "state", "s0") == pytest.approx(5 / 6)  # all five cities of s0 are in k0
    assert strength(cities, "c1", "state", "s0") == pytest.approx(5 / 6)
    assert strength(cities, "c2", "state", "s0") == 0
    assert strength(cities, "B", "state", "s0") == 0  # a country has no country


def test_what_does_not_agree_is_no_conflict(cities: Graph) -> None:
    assert strength(cities, "Rajshahi", "likes", "s0") == 0


def test_a_known_fact_does_not_agree_with_itself(cities: Graph) -> None:
    odd = graph_of(", ".join(" ".join(names) for names in cities.names_of(cities.facts())) + ", Rajshahi state s0")
    assert strength(odd, "Rajshahi", "state", "s0") == 0
    assert strength(odd, "Rajshahi", "state", "s0", is_known=True) > 0.7
    assert strength(odd, "c0", "state", "s0", is_known=True) == 0


def test_conflicts_are_told(cities: Graph) -> None:
    opened = open_run(make_run(cities, untrained(cities)))
    triples = cities.triple("Rajshahi", "state", "s0")
    ((found,),) = find_contradictions(opened, triples)
    assert found.rule == "it would give Rajshahi 'country: k0', as other facts of s0 do"
    (reason,) = with_contradictions(opened, triples, [Reason("none", 0.0, "no reason")])
    assert reason.text == f"no reason. Against it: {found.rule}; known: Rajshahi country B"
    assert with_contradictions(opened, cities.triple("c2", "state", "s2"), [reason]) == [reason]
