"""Predicted facts for Neo4j, GraphRAG and LightRAG, in the shapes that those tools read, and as our readers do.

Neo4j's own driver writes to a stub of its server (tests/bolt_stub.py), which does by hand what the queries say.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import harmonium
from bolt_stub import Result, bolt_server
from harmonium.answers.send.destinations import check_destination, send
from harmonium.answers.send.neo4j_facts import HEADER
from harmonium.data.formats.neo4j.address import Neo4jAddress
from harmonium.data.formats.neo4j.bolt_session import merge_query, nodes_query
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from small import graph_of, make_run, untrained

RELATION = "KNOWS `x` {y}"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An untrained run with a folder, whose entities have identifiers and labels."""
    labels = {"a": "Anna", "b": "Ben's", "c": "Cleo \\ \U0001f600", "d": "d"}
    graph = graph_of("a KNOWS b, b KNOWS c, a type person, c LIKES d", labels=labels)
    relations = Vocabulary([RELATION, "type", "LIKES"], kind="relation")
    graph = replace(graph, relations=relations)
    return replace(make_run(graph, untrained(graph)), path=tmp_path / "my run")


def row(head: str, relation: str, tail: str, rank: int = 1, probability: float | None = 0.75) -> dict[str, Any]:
    text = f"{head}, {relation}, {tail}"
    return {
        "head": head, "relation": relation, "tail": tail, "probability": probability, "known_answers": 0,
        "reason": "because", "rank": rank, "score": 1.5, "text": text,
    }  # fmt: skip


ROWS = [
    row("a", RELATION, "c"),
    row("b", "LIKES", "d", 2, None),
    row("d", RELATION, "a", 3, 0.5),
    row("b", "type", "person", 4),
]


class StubDatabase:
    """Nodes with an identifier and a name, and relationships by what they are merged by."""

    def __init__(self, address: str, nodes: list[tuple[Any, str | None]]) -> None:
        self.address, self.nodes = Neo4jAddress.parse(f"bolt://h{address}"), nodes
        self.relationships: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def answer(self, query: str, parameters: dict[str, Any]) -> Result:
        if query == nodes_query(self.address):
            rows = [[identifier, name] for identifier, name in self.nodes if identifier in parameters["ids"]]
            return ["id", "name"], rows
        (relation,) = [text for text in (RELATION, "LIKES", "type") if query == merge_query(self.address, text)]
        for fact in parameters["rows"]:
            key = fact["head"], relation, fact["tail"], parameters["run"]
            self.relationships.setdefault(key, {}).update(fact["properties"])
        return ["written"], [[len(parameters["rows"])]]


@pytest.mark.network
@pytest.mark.parametrize("address", ["/db", "/db?id=key&label=Person"])
def test_neo4j_stub_gets_relationships_once_however_often_they_are_written(run: Run, address: str) -> None:
    labels = run.graph.entities.labels
    assert labels is not None
    database = StubDatabase(address, list(zip(run.graph.entities.ids, labels, strict=True)))
    with bolt_server(database.answer) as server:
        for _ in range(2):
            assert send(f"{server.address}{address}", ROWS, run, allow_internal=True) == 4
    assert len(database.relationships) == 4
    written = database.relationships["a", RELATION, "c", "my run"]
    assert written == {"probability": 0.75, "rank": 1, "model": run.fingerprint[:12]}
    assert "probability" not in database.relationships["b", "LIKES", "d", "my run"]
    assert set(server.modes) == {"w"} and set(server.databases) == {"db"}
    assert not any("Anna" in query or "my run" in query for query in server.queries)  # values are parameters
    assert all(("n.`key`" in query or "h.`key`" in query) == ("id=key" in address) for query in server.queries)


def test_internal_servers_are_written_to_only_if_allowed(run: Run) -> None:
    with pytest.raises(HarmoniumError, match="--allow-internal"):
        send("bolt://localhost:9", ROWS, run)


# Files ---------------------------------------------------------------------------------------------------------------


def test_neo4j_csv_has_the_header_of_neo4j_admin(run: Run, tmp_path: Path) -> None:
    send("neo4j", ROWS, run, tmp_path / "predicted.csv")
    with open(tmp_path / "predicted.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == list(HEADER)
    assert rows[0] == ["a", "c", RELATION, "0.75", "1", "true", "my run", run.fingerprint[:12]]


def cypher_strings(script: str) -> list[str]:
    """The strings of a script, as Cypher reads them; all else must be free of quotes."""
    strings = re.findall(r"'((?:[^'\\]|\\.)*)'", script)
    return [s.encode().decode("unicode_escape") for s in strings]


def test_cypher_script_quotes_whatever_names_hold(run: Run, tmp_path: Path) -> None:
    nasty = "x'}) DETACH DELETE n //\\' \n\u2028é\U0001f600"
    send("neo4j", [row(nasty, RELATION, "c"), *ROWS], run, tmp_path / "p.cypher")
    script = (tmp_path / "p.cypher").read_text(encoding="utf-8")
    assert script.isascii() and nasty in cypher_strings(script)
    assert script.count(";\n") == 3 and "[r:`KNOWS ``x`` {y}` {predicted: true, run: 'my run'}]" in script
    without_strings = re.sub(r"'(?:[^'\\]|\\.)*'", "''", script)
    assert "DELETE" not in without_strings and "'" not in without_strings.replace("''", "")
    assert "h.`id` = row.head" in script and "probability: 0.75" in script
    send("neo4j?id=imdb`", ROWS, run, tmp_path / "p.cypher")
    assert "h.`imdb``` = row.head" in (tmp_path / "p.cypher").read_text(encoding="utf-8")


def test_graphrag_relationships_have_its_columns(run: Run, tmp_path: Path) -> None:
    """Those of its relationships.parquet, with which a user's can be joined; facts about types are no links."""
    assert send("graphrag", ROWS, run, tmp_path / "p.parquet") == 3
    table = pl.read_parquet(tmp_path / "p.parquet")
    expected = {
        "id": pl.String, "human_readable_id": pl.Int64, "source": pl.String, "target": pl.String, "description": pl.String,
        "weight": pl.Float64, "combined_degree": pl.Int64, "text_unit_ids": pl.List(pl.String),
    }  # fmt: skip
    assert dict(list(table.schema.items())[:8]) == expected
    assert table["source"].to_list() == ["a", "b", "d"] and table["target"].to_list() == ["c", "d", "a"]
    assert table["weight"].to_list() == [0.75, 0.0, 0.5] and table["predicted"].all()
    assert table["combined_degree"].to_list() == [3, 3, 2]
    assert table["description"][0] == f"a, {RELATION}, c (predicted, probability 0.75): because"
    send("graphrag", ROWS, run, tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet")["id"].to_list() == table["id"].to_list()


def test_lightrag_knowledge_graph_has_what_insert_custom_kg_reads(run: Run, tmp_path: Path) -> None:
    send("lightrag", ROWS, run, tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert set(content) == {"chunks", "entities", "relationships"} and content["entities"] == []
    (chunk,) = content["chunks"]
    for link in content["relationships"]:
        assert {"src_id", "tgt_id", "description", "keywords", "weight", "source_id"} <= set(link)
        assert link["source_id"] == chunk["source_id"] == "harmonium:my run"
    assert [link["src_id"] for link in content["relationships"]] == ["a", "b", "d"]


def test_destinations_are_checked_before_any_work(tmp_path: Path) -> None:
    for to, out, message in (
        ("neo5j", None, "--to must be neo4j, graphrag, lightrag or bolt://HOST"),
        ("graphrag?id=x", tmp_path / "p.parquet", "--to must be"),
        ("neo4j", None, "add --out FILE.csv or --out FILE.cypher"),
        ("graphrag", tmp_path / "p.csv", r"add --out FILE\.parquet"),
        ("lightrag", tmp_path / "nowhere" / "p.json", "cannot be written"),
        ("bolt://me:s3cret@h", None, "NEO4J_PASSWORD"),
        ("graphrag", tmp_path / "p.parquet.gz", "drop .gz"),
    ):
        with pytest.raises(HarmoniumError, match=message) as caught:
            check_destination(to, out)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(HarmoniumError, match="--to must be"):
        harmonium.complete("atlas", to="nothing")
