"""Facts supported or contradicted by the rest of a graph."""

from __future__ import annotations

import dataclasses

import pytest

from harmonium.answers.contradictions import find_contradictions
from harmonium.answers.fact_check import check_facts, supporting
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from small import CONFIGS, countries, graph_of, ladder, make_run, run_with_constraints, untrained


@pytest.fixture(scope="module")
def opened() -> OpenRun:
    return open_run(run_with_constraints())


def rules(opened: OpenRun, *fact: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    (found,) = find_contradictions(opened, opened.graph.triple(*fact))
    return [(each.rule, opened.graph.names_of(Triples.from_rows(each.facts)) if each.facts else []) for each in found]


def plain(graph: Graph) -> OpenRun:
    return open_run(make_run(graph, untrained(graph, CONFIGS["plain"])))


def test_a_second_answer_contradicts_the_first_one_and_a_known_fact_not_itself(opened) -> None:
    known = "City 7", "located in", "CountryHland"
    assert rules(opened, *known) == []
    second, conflict = rules(opened, "City 7", "located in", "CountryBland")
    assert second == ("a head of 'located in' has one tail", [known])
    assert conflict[1] == [("City 7", "language", "Language 3")]  # as no other city there
    assert rules(opened, "CountryAland", "borders", "CountryHland") == []  # has several


def test_facts_of_an_entity_with_itself_and_the_wrong_way_round() -> None:
    opened = plain(graph_of(ladder("{i} part_of {j}", 30) + ", x0 near y0, y0 near x0, y3 near y3"))
    assert rules(opened, "y4", "part_of", "x4")[-1] == ("'part_of' holds in one direction", [("x4", "part_of", "y4")])
    assert ("no entity is 'part_of' of itself", []) in rules(opened, "x4", "part_of", "x4")
    assert rules(opened, "y3", "near", "y3") == rules(opened, "x0", "near", "y0") == []  # too few to set a rule


def test_a_fact_recorded_as_false_is_contradicted() -> None:
    graph = graph_of("a likes b, b likes c")
    graph = dataclasses.replace(graph, rejected=graph.triple("a", "likes", "c"))
    assert rules(plain(graph), "a", "likes", "c") == [("the graph records this fact as false", [])]


def test_true_facts_are_supported_without_themselves_and_made_up_ones_are_not(opened) -> None:
    graph = opened.graph
    located = graph.valid[graph.valid.relation == graph.relations.index("language")]
    assert {check.status for check in check_facts(opened, located)} == {"supported"}
    wrong = Triples(located.head, located.relation, located.tail.roll(1))
    wrong = wrong[[split is None for split in graph.splits_of(wrong)].index(True) :][:1]
    (check,) = check_facts(opened, wrong)
    assert not check.known and not check.is_supported


def test_what_supports_a_known_fact_does_not_rest_on_it(opened) -> None:
    fact = opened.graph.triple("City 7", "language", "Language 3")
    parts = supporting(opened, fact, 5)
    assert parts and tuple(fact.to_rows()[0].tolist()) not in [f for part in parts for f in part.evidence.facts]
    assert [part.value for part in parts] == sorted((part.value for part in parts), reverse=True)


def test_a_run_without_constraints_judges_by_reasons() -> None:
    graph = countries()
    borders = graph.train[graph.train.relation == graph.relations.index("borders")]
    checks = check_facts(plain(graph), borders)  # most are known the other way round
    assert all(check.known for check in checks)
    assert sum(check.status == "supported" for check in checks) > len(checks) / 2
