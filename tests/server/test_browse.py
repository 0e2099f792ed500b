"""What the page shows besides predictions: neighbourhoods, comparisons, relations and types, missing facts, several runs."""

from __future__ import annotations

from typing import Any

import pytest

import harmonium
from harmonium.answers.reasons import find_reasons
from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.server.explorer import Explorer
from serving import Server, untrained
from small import graph_of, ladder, make_graph

pytestmark = pytest.mark.network
COUNTRIES = (
    ladder("{i} borders {j}, {j} borders {i}, {i} type country, {i} in Europe", 20)
    + ", x0 borders x1, x1 borders x0, y1 type island, z type country, z speaks French, x0 speaks French, x1 speaks German"
)


@pytest.fixture(scope="module")
def countries() -> Explorer:
    return Explorer(untrained(graph_of(COUNTRIES, "x2 speaks French"), ModelConfig("hole", 6)))


@pytest.fixture(scope="module")
def random() -> Explorer:
    return Explorer(untrained(make_graph(20, 3, (200, 60, 60)), ModelConfig("hole", 6)))


def ids(matches: list[Any]) -> set[str]:
    return {match.id for match in matches}


# Search --------------------------------------------------------------------------------------------------------------


def test_entities_are_searched_by_relation_slot_and_type(countries: Explorer) -> None:
    assert ids(countries.search("", "entity", 99, "speaks")) == {"x0", "x1", "x2", "z", "French", "German"}
    assert ids(countries.search("", "entity", 99, "speaks", Slot.HEAD)) == {"x0", "x1", "x2", "z"}
    assert ids(countries.search("ger", "entity", 99, "speaks", Slot.TAIL)) == {"German"}
    assert ids(countries.search("", "entity", 99, None, None, "country")) == {"z", *(f"x{i}" for i in range(20))}
    assert ids(countries.search("", "entity", 99, "speaks", Slot.HEAD, "country")) == {"x0", "x1", "x2", "z"}
    assert ids(countries.search("", "entity", 99, None, None, "French")) == set()
    assert [(match.id, match.facts) for match in countries.types(9)] == [("country", 21), ("island", 1)]
    assert ids(countries.search("bor", "relation", 1)) == {"borders"}


def test_facts_of_a_relation_and_of_an_entity_in_it(countries: Explorer) -> None:
    page = countries.facts(None, "speaks", 0, 99)
    assert [(fact.head.id, fact.tail.id, fact.split) for fact in page.facts] == [
        ("z", "French", "train"), ("x0", "French", "train"), ("x1", "German", "train"), ("x2", "French", "valid"),
    ]  # fmt: skip
    assert (page.entity, page.relation.id, page.total) == (None, "speaks", 4)
    assert countries.facts("x0", "borders", 0, 99).total == 4
    with pytest.raises(HarmoniumError, match="give an entity, a relation, or both"):
        countries.facts(None, None, 0, 1)


def test_relations_say_what_their_facts_show(countries: Explorer) -> None:
    by_name = {summary.relation.id: summary for summary in countries.relation_summaries}
    borders, speaks, within = (by_name[name] for name in ("borders", "speaks", "in"))
    assert (borders.facts, borders.heads, borders.tails, borders.symmetric) == (42, 40, 40, True)
    assert (speaks.symmetric, speaks.one_tail, speaks.heads, speaks.tails) == (False, False, 4, 2)
    assert (within.one_tail, within.one_head) == (True, False)
    assert {named.id for named in borders.head_examples[:2]} == {"x0", "x1"}
    sizes = [summary.facts for summary in countries.relation_summaries]
    assert sizes == sorted(sizes, reverse=True)


# Neighbourhood and comparison ----------------------------------------------------------------------------------------


def test_a_neighbourhood_has_every_relation_of_the_entity(random: Explorer) -> None:
    facts = random.graph.names_of(random.graph.facts())
    around = random.neighbourhood("e7", 3)
    expected: dict[tuple[str, str], set[str]] = {}
    for head, relation, tail in facts:
        if head == "e7":
            expected.setdefault((relation, "head"), set()).add(tail)
        elif tail == "e7":
            expected.setdefault((relation, "tail"), set()).add(head)
    assert {(g.relation.id, g.slot.value): g.total for g in around.groups} == {k: len(v) for k, v in expected.items()}
    for group in around.groups:
        assert len(group.facts) == min(3, group.total)
        assert all((f.head.id, f.relation.id, f.tail.id) in facts and f.split for f in group.facts)


# One probability everywhere ------------------------------------------------------------------------------------------


def test_a_missing_fact_has_the_same_probability_on_every_page(random: Explorer) -> None:
    predicted = random.predictions("e7", 30).facts
    assert len(predicted) == 30
    for fact in predicted:
        triple = fact.head.id, fact.relation.id, fact.tail.id
        rated = random.fact(*triple)
        assert rated.probability == pytest.approx(fact.probability, rel=1e-4)
        assert rated.score == pytest.approx(fact.score, abs=1e-4)
        other = fact.tail.id if fact.head.id == "e7" else fact.head.id
        links = random.compare("e7", other).predicted
        by_triple = {(link.head.id, link.relation.id, link.tail.id): link.probability for link in links}
        assert by_triple[triple] == pytest.approx(fact.probability, rel=1e-4)


# Missing facts -------------------------------------------------------------------------------------------------------


def test_missing_facts_of_a_relation_are_those_of_complete(random: Explorer) -> None:
    expected = harmonium.complete(random.run, "r1", top=10)
    reply = random.missing("r1", 10)
    assert (reply.relations, reply.searched) == (1, 1)
    assert [(f.head.id, f.tail.id) for f in reply.facts] == [(row.head, row.tail) for row in expected]
    probabilities = [row.probability for row in expected]
    assert [f.probability for f in reply.facts] == pytest.approx(probabilities, rel=1e-4)
    assert [f.reason for f in reply.facts] == [row.reason for row in expected]


def test_missing_facts_of_the_graph_are_new_diverse_and_have_reasons(random: Explorer) -> None:
    reply = random.missing(None, 9)
    assert (reply.relations, reply.searched, len(reply.facts)) == (3, 3, 9)
    known = set(random.graph.names_of(random.graph.facts()))
    triples = [(f.head.id, f.relation.id, f.tail.id) for f in reply.facts]
    assert not known & set(triples)
    assert len({relation for _, relation, _ in triples}) > 1
    probabilities = [fact.probability for fact in reply.facts]
    assert max(probabilities) == max(
        f.probability for name in ("r0", "r1", "r2") for f in random.missing(name, 1).facts
    )
    for fact, triple in zip(reply.facts, triples, strict=True):
        (reason,) = find_reasons(random.opened.evidence, random.graph.triple(*triple))
        assert fact.reason == reason.text
    assert random.missing(None, 4).facts == reply.facts[:4]


# Several runs --------------------------------------------------------------------------------------------------------


def test_several_runs_are_asked_by_number() -> None:
    runs = [untrained(make_graph(seed=seed), ModelConfig(name, 6)) for seed, name in ((0, "hole"), (1, "distmult"))]
    with Server(runs) as server:
        listed = server.get("runs").json
        assert [(run["number"], run["composition"]) for run in listed] == [(0, "hole"), (1, "distmult")]
        for number, run in enumerate(runs):
            reply = server.get("answers", head="e1", relation="r0", run=number).json
            expected = harmonium.predict(run, head="e1", relation="r0")
            assert [a["tail"]["id"] for a in reply["answers"]] == [a.id for a in expected]
        assert server.get("info").json == server.get("info", run=0).json != server.get("info", run=1).json
        missing = server.get("info", run=2)
        assert (missing.status, missing.json["error"]) == (404, "no run 2: the last one is 1")
        assert server.get("info", run=-1).status == 422
