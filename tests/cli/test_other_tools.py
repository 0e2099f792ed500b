"""Commands that read from and write to other tools; Neo4j's server is a stub that its own driver talks to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bolt_stub import Result, bolt_server
from command_line import FAST
from harmonium.data.formats.neo4j.address import Neo4jAddress, facts_query
from harmonium.data.formats.neo4j.bolt_session import merge_query, nodes_query

FACTS = [(f"person {i}", "LIKES", f"thing {(i * 3 + j) % 12}") for i in range(30) for j in (0, 1, 4)]
FACTS += [(f"person {i}", "KNOWS", f"person {(i + j) % 30}") for i in range(30) for j in (3, 6)]
NAMES = sorted({name for head, _, tail in FACTS for name in (head, tail)})


class StubNeo4j:
    """A graph of people in a database whose nodes are identified by their position."""

    def __init__(self) -> None:
        self.predicted: list[dict[str, Any]] = []
        self.address = Neo4jAddress.parse("bolt://h")

    def answer(self, query: str, parameters: dict[str, Any]) -> Result:
        if query == facts_query(self.address):
            return ["head", "relation", "tail", "head_name", "tail_name"], [
                [f"4:x:{NAMES.index(head)}", relation, f"4:x:{NAMES.index(tail)}", head, tail]
                for head, relation, tail in FACTS
            ]
        if query == nodes_query(self.address):
            return ["id", "name"], [[id, NAMES[int(id.split(":")[2])]] for id in parameters["ids"]]
        assert query in [merge_query(self.address, relation) for relation in ("LIKES", "KNOWS")]
        self.predicted += parameters["rows"]
        return ["written"], [[len(parameters["rows"])]]


@pytest.mark.network
def test_from_a_neo4j_stub_and_back(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEO4J_PASSWORD", "s3cret")
    database = StubNeo4j()
    with bolt_server(database.answer, "s3cret") as server:
        address = f"{server.address}/people"
        refused = call("train", "--data", address, "--preset", "paper", *FAST)
        assert (refused.code, "--allow-internal" in refused.err) == (2, True)
        trained = call("train", "--data", address, "--preset", "paper", *FAST, "--allow-internal")
        assert trained.code == 0, trained.err
        assert (tmp_path / "runs" / "people" / "run.json").is_file()
        result = call("complete", "runs/people", "--top", 20, "--to", address, "--allow-internal")
        assert result.code == 0, result.err
        assert f"merged into {address}" in result.out and "person " in result.out
    assert len(database.predicted) == 20 and database.predicted[0]["properties"]["rank"] == 1
    texts = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(b"s3cret" in text for text in texts) and "s3cret" not in trained.out + trained.err + result.out


def test_missing_facts_for_other_tools(call, tmp_path: Path) -> None:
    facts, run = tmp_path / "facts.tsv", tmp_path / "run"
    facts.write_text("".join("\t".join(fact) + "\n" for fact in FACTS), encoding="utf-8")
    assert call("train", "--data", facts, "--preset", "paper", *FAST, "--out", run).code == 0
    for to, name in (("neo4j", "p.cypher"), ("neo4j", "p.csv"), ("graphrag", "p.parquet"), ("lightrag", "p.json")):
        result = call("complete", run, "--top", 5, "--no-reasons", "--to", to, "--out", tmp_path / name)
        assert result.code == 0 and f"all 5 facts: {tmp_path / name}" in result.out, result.err
    wrong = call("complete", run, "--to", "neo4j")
    assert (wrong.code, "add --out FILE.csv or --out FILE.cypher" in wrong.err) == (2, True)
    assert wrong.err.count("\n") == 1
