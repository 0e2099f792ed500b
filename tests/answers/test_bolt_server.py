"""A real Neo4j server, from and to it: skipped unless HARMONIUM_TEST_BOLT names a database to write to.

HARMONIUM_TEST_BOLT=bolt://localhost:7687/scratch, with NEO4J_USERNAME and NEO4J_PASSWORD if it needs them. Its nodes with
the label HarmoniumTest are removed. Without one, the driver is tested against a stub (test_neo4j.py, test_destinations.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import harmonium
from graph_checks import facts
from harmonium.answers.send.destinations import send
from harmonium.data.datasets import load
from harmonium.data.formats.neo4j.address import Neo4jAddress
from harmonium.errors import HarmoniumError
from small import family, make_run, untrained

ADDRESS = os.environ.get("HARMONIUM_TEST_BOLT", "")
pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not ADDRESS, reason="HARMONIUM_TEST_BOLT names no server that speaks Bolt"),
]
GRAPH = family(30)
NASTY = 'it\'s `quoted` \\ {x} "y" // é\U0001f600'
Query = Callable[..., list[list[Any]]]


@pytest.fixture(scope="module")
def run() -> Iterator[Query]:
    """Queries to the server over one connection."""
    import neo4j

    address = Neo4jAddress.parse(ADDRESS)
    password = os.environ.get("NEO4J_PASSWORD")
    auth = (os.environ.get("NEO4J_USERNAME", "neo4j"), password) if password else None
    with neo4j.GraphDatabase.driver(address.url, auth=auth, connection_timeout=5) as driver:

        def send_query(text: str, **parameters: Any) -> list[list[Any]]:
            with driver.session(database=address.database) as session:
                return [list(record) for record in session.run(text, parameters)]

        yield send_query


@pytest.fixture
def query(run: Query) -> Iterator[Query]:
    """The same, with the graph `family` in the database."""
    run("MATCH (n:HarmoniumTest) DETACH DELETE n")
    names = list(GRAPH.entities.ids)
    rows = [{"key": number, "name": name} for number, name in enumerate(names)] + [{"key": "k", "name": NASTY}]
    run("UNWIND $rows AS row CREATE (:HarmoniumTest {key: row.key, name: row.name})", rows=rows)
    for relation in GRAPH.relations.ids:
        pairs = [
            {"head": names.index(head), "tail": names.index(tail)}
            for head, name, tail in GRAPH.names_of(GRAPH.facts())
            if name == relation
        ]
        run(
            "UNWIND $pairs AS pair MATCH (h:HarmoniumTest {key: pair.head}) MATCH (t:HarmoniumTest {key: pair.tail}) "
            f"CREATE (h)-[:`{relation}`]->(t)",
            pairs=pairs,
        )
    run("MATCH (h:HarmoniumTest {key: 'k'}) MATCH (t:HarmoniumTest {key: 0}) CREATE (h)-[:next]->(t)")
    yield run
    run("MATCH (n:HarmoniumTest) DETACH DELETE n")


def read(options: str, **more: Any) -> harmonium.Graph:
    return load(f"{ADDRESS}?label=HarmoniumTest{options}", allow_internal=True, valid=0, test=0, **more)


def test_a_database_is_read_as_it_is(query: Query) -> None:
    graph = read("&id=key")
    expected = {*GRAPH.names_of(GRAPH.facts()), (NASTY, "next", "person 0")}
    assert set(graph.names_of(graph.train)) == expected and len(graph.train) == len(expected)
    assert set(graph.entities.ids) == {*map(str, range(30)), "k"}
    chosen = read("&id=key", query="MATCH (a:HarmoniumTest)-[r:twin]->(b) RETURN a, r, b ORDER BY a.key LIMIT 5")
    assert [fact[1] for fact in chosen.names_of(chosen.train)] == ["twin"] * 5
    assert facts(chosen)[0][0] == "0" and chosen.names_of(chosen.train)[0][0] == "person 0"
    with pytest.raises(HarmoniumError, match="refuses the query"):
        read("&id=key", query="MATCH (n RETURN n")


def test_predictions_are_merged_once_and_not_read_as_facts(query: Query) -> None:
    graph = read("&id=key")
    run = make_run(graph, untrained(graph))
    rows = [
        {"head": head, "relation": relation, "tail": tail, "probability": probability, "rank": rank, "text": ""}
        for rank, (head, relation, tail, probability) in enumerate(
            [("0", "next", "5", 0.9), ("k", NASTY, "7", 0.5), ("3", "twin", "k", None), ("9", "next", "1", 0.1)], 1
        )
    ]
    query("MATCH (n:HarmoniumTest {key: 9}) DETACH DELETE n")
    graph = read("&id=key")
    for _ in range(2):
        assert send(f"{ADDRESS}?label=HarmoniumTest&id=key", rows, run, allow_internal=True) == 3
    written = query(
        "MATCH (h:HarmoniumTest)-[r]->(t) WHERE r.predicted = true "
        "RETURN h.key, type(r), t.key, r.probability, r.rank, r.run ORDER BY r.rank"
    )
    name = graph.name
    assert written == [[0, "next", 5, 0.9, 1, name], ["k", NASTY, 7, 0.5, 2, name], [3, "twin", "k", None, 3, name]]
    assert set(facts(read("&id=key"))) == set(facts(graph))
    query("MATCH (n:HarmoniumTest {key: 5}) SET n.name = 'somebody else'")
    with pytest.raises(HarmoniumError, match="1 of 1 facts were not written"):
        send(f"{ADDRESS}?label=HarmoniumTest&id=key", rows[:1], run, allow_internal=True)


def test_element_ids_identify_nodes(query: Query) -> None:
    graph = read("")
    assert set(graph.names_of(graph.train)) == {*GRAPH.names_of(GRAPH.facts()), (NASTY, "next", "person 0")}
    head, tail = (graph.entities.ids[graph.entities.index(name)] for name in ("person 1", "person 9"))
    row = {"head": head, "relation": "next", "tail": tail, "probability": 0.5, "rank": 1, "text": ""}
    assert send(f"{ADDRESS}?label=HarmoniumTest", [row], make_run(graph, untrained(graph)), allow_internal=True) == 1
    assert query("MATCH (h {key: 1})-[r {predicted: true}]->(t {key: 9}) RETURN r.probability") == [[0.5]]


def test_a_query_cannot_write(query: Query) -> None:
    before = query("MATCH (n:HarmoniumTest) RETURN count(n)")
    with pytest.raises(HarmoniumError, match="refuses the query"):
        read("", query="CREATE (n:HarmoniumTest {key: 99}) RETURN n.key AS head, 'r' AS relation, 't' AS tail")
    assert query("MATCH (n:HarmoniumTest) RETURN count(n)") == before
