"""Predicted facts for Neo4j: merged into a database, as Cypher, or as CSV for neo4j-admin.

Each is a relationship with `predicted: true`, its run, the fingerprint of the model, its probability and its rank, so
it can be told apart from relationships that were there before. Writing a list again adds no duplicates.
"""

import csv
import io
import json
import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harmonium.data.compressed import create_file
from harmonium.data.formats.neo4j.address import Neo4jAddress, quoted
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from harmonium.runtime.limited_process import Limits, stream
from harmonium.runtime.storage import temporary_folder

WRITE_LIMITS = Limits(memory=1 << 31, seconds=3600, output=1 << 26, idle=300)
ADVICE_TO_REPEAT = "what was written stays; the same command again writes the rest"
ELEMENT_ID = re.compile(r"\d+:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+")  # of Neo4j 5
FACTS_PER_STATEMENT = 1_000  # of Cypher
HEADER = (":START_ID", ":END_ID", ":TYPE", "probability:double", "rank:long", "predicted:boolean", "run", "model")
Row = dict[str, Any]
logger = logging.getLogger("harmonium")


@dataclass(frozen=True)
class Provenance:
    """Origin of predicted facts: the run and its model."""

    run: str
    model: str  # the fingerprint of graph and model, shortened

    @classmethod
    def of(cls, run: Run) -> "Provenance":
        return cls(run.graph.name if run.path is None else run.path.resolve().name, run.fingerprint[:12])


def properties(row: Row, provenance: Provenance) -> dict[str, Any]:
    """The properties of a predicted relationship, except those by which it is merged."""
    values = {"probability": row["probability"], "rank": int(row["rank"]), "model": provenance.model}
    return {key: value for key, value in values.items() if value is not None}


# A server ------------------------------------------------------------------------------------------------------------


def write_to_server(text: str, rows: Sequence[Row], run: Run, allow_internal: bool = False) -> int:
    """Merge predicted facts into a database and return their number; a warning counts those whose nodes it lacks."""
    address, provenance = Neo4jAddress.parse(text), Provenance.of(run)
    names = _expected_names(run.graph)
    facts = [[*_ends(row), names(row["head"]), names(row["tail"]), properties(row, provenance)] for row in rows]
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        file = Path(folder) / "facts.json"
        file.write_text(json.dumps(facts), encoding="utf-8")
        arguments = {
            "address": asdict(address),
            "file": str(file),
            "provenance": {"run": provenance.run},
            "allow_internal": allow_internal,
        }
        messages = stream(
            "harmonium.data.formats.neo4j.bolt_session:write_facts",
            arguments,
            WRITE_LIMITS,
            address.location,
            ADVICE_TO_REPEAT,
        )
        (result,) = [json.loads(content) for (content,) in messages]
    _report_missing(address, result, len(facts))
    return int(result["written"])


def _ends(row: Row) -> list[str]:
    return [row["head"], row["relation"], row["tail"]]


def _expected_names(graph: Graph) -> Any:
    """A function identifier -> label; None if the graph has no label that differs from it."""

    def name(identifier: str) -> str | None:
        if graph.entities.labels is None:
            return None
        label = graph.entities.name(graph.entities.index(identifier))
        return None if label == identifier else label

    return name


def _report_missing(address: Neo4jAddress, result: dict[str, Any], n_facts: int) -> None:
    if not result["n_missing"]:
        return
    head, relation, tail = result["missing"][0]
    by = "an element id" if address.id is None else f"the property {address.id}"
    text = (
        f"{address.location}: {result['n_missing']:,} of {n_facts:,} facts were not written, as no single node has {by} "
        f"and a name as in the run, such as ({head}, {relation}, {tail})"
    )
    if result["written"] == 0:
        raise HarmoniumError(f"{text}; name the property that identifies nodes: ?id=PROPERTY at the end of the address")
    logger.warning(text)


# Files ---------------------------------------------------------------------------------------------------------------


def write_csv(path: Path, rows: Sequence[Row], run: Run) -> None:
    """Write relationships as CSV for `neo4j-admin database import` and LOAD CSV."""
    provenance = Provenance.of(run)
    with create_file(path) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEADER)
        for row in rows:
            head, relation, tail = _ends(row)
            probability = "" if row["probability"] is None else row["probability"]
            table.writerow(
                [head, tail, relation, probability, int(row["rank"]), "true", provenance.run, provenance.model]
            )


def write_cypher(path: Path, rows: Sequence[Row], run: Run, id: str | None = None) -> None:
    """Write a script for cypher-shell; nodes are matched by the property `id` (default: `id_property`)."""
    provenance = Provenance.of(run)
    with create_file(path) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:
        file.writelines(_cypher(rows, provenance, id or id_property(run.graph)))


def id_property(graph: Graph) -> str | None:
    """The property that identifies nodes: None (element ids), `id` if the graph has labels, otherwise `name`."""
    if ELEMENT_ID.fullmatch(graph.entities.ids[0]):
        return None
    return "name" if graph.entities.labels is None else "id"


def _cypher(rows: Sequence[Row], provenance: Provenance, id: str | None) -> Iterator[str]:
    by = "their element id" if id is None else f"their property {json.dumps(id)}"
    yield f"// {len(rows):,} facts predicted by harmonium; nodes are matched by {by}. Run it with cypher-shell --file.\n"
    node = (
        "elementId({0}) = row.{1}"
        if id is None
        else "{0}." + quoted(id).replace("{", "{{").replace("}", "}}") + " = row.{1}"
    )
    by_type: dict[str, list[Row]] = {}
    for row in rows:
        by_type.setdefault(row["relation"], []).append(row)
    for relation, facts in by_type.items():
        for start in range(0, len(facts), FACTS_PER_STATEMENT):
            listed = ",\n  ".join(_cypher_map(row, provenance) for row in facts[start : start + FACTS_PER_STATEMENT])
            yield (
                f"UNWIND [\n  {listed}\n] AS row\n"
                f"MATCH (h) WHERE {node.format('h', 'head')}\nMATCH (t) WHERE {node.format('t', 'tail')}\n"
                f"MERGE (h)-[r:{quoted(relation)} {{predicted: true, run: {cypher_text(provenance.run)}}}]->(t)\n"
                "SET r += row.properties;\n"
            )


def _cypher_map(row: Row, provenance: Provenance) -> str:
    inner = ", ".join(f"{key}: {_cypher_value(value)}" for key, value in properties(row, provenance).items())
    return f"{{head: {cypher_text(row['head'])}, tail: {cypher_text(row['tail'])}, properties: {{{inner}}}}}"


def _cypher_value(value: Any) -> str:
    return cypher_text(value) if isinstance(value, str) else repr(value)


def cypher_text(text: str) -> str:
    """A Cypher string literal; everything except printable ASCII is escaped."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + "".join(c if " " <= c <= "~" else _escape(c) for c in escaped) + "'"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
