"""Reads rows of a query from a Neo4j server over Bolt, and writes predicted facts back. Runs in a separate limited process.

User and password come from the environment variables NEO4J_USERNAME and NEO4J_PASSWORD, and are sent nowhere else.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harmonium.data.formats.neo4j.address import Neo4jAddress, id_of, name_of, quoted
from harmonium.data.names import clean_name
from harmonium.data.untrusted_server import check_public
from harmonium.errors import HarmoniumError
from harmonium.version import __version__

ROWS_PER_MESSAGE = 10_000  # also the number fetched at a time
FACTS_PER_TRANSACTION = 1_000
MAX_NAME_LENGTH = 1 << 20  # characters
CONNECT_SECONDS = 30.0


def read_rows(
    address: dict[str, Any], query: str, parameters: dict[str, Any], allow_internal: bool
) -> Iterator[list[bytes]]:
    """Yield the column names of the result of a query, then its rows in batches, as JSON.

    A cell is text or null; that of a node is [identifier, name], that of a relationship its type.
    """
    server = _address(address)
    with _session(server, allow_internal, writes=False) as session:
        result = session.run(query, parameters)
        yield [json.dumps([str(key) for key in tuple(result.keys())]).encode()]
        rows: list[list[Any]] = []
        for record in result:
            rows.append([_cell(value, server) for value in record.values()])
            if len(rows) == ROWS_PER_MESSAGE:
                yield [json.dumps(rows).encode()]
                rows = []
        yield [json.dumps(rows).encode()]


def _cell(value: Any, address: Neo4jAddress) -> Any:
    """A value as text; a node as its identifier and name."""
    from neo4j.graph import Node, Relationship

    if isinstance(value, Node):
        names = (value.get(name) for name in address.names)
        identifier = value.element_id if address.id is None else value.get(address.id)
        return [_text(identifier, address), _text(next((name for name in names if name is not None), None), address)]
    return value.type if isinstance(value, Relationship) else _text(value, address)


def _text(value: Any, address: Neo4jAddress) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise HarmoniumError(
            f"{address.location}: a {kind} cannot be a name; as head, relation and tail select text, "
            "numbers, nodes or relationships"
        )
    text = str(value)
    if len(text) > MAX_NAME_LENGTH:
        raise HarmoniumError(f"{address.location}: a name of {len(text):,} characters; choose another property")
    return text


# Writing -------------------------------------------------------------------------------------------------------------


def write_facts(
    address: dict[str, Any], file: str, provenance: dict[str, Any], allow_internal: bool
) -> Iterator[list[bytes]]:
    """Write the facts of a JSON file; yields as JSON how many were written and which were not.

    A fact is [head, relation, tail, name of the head, name of the tail, properties]. Its nodes must exist, be unique
    and have these names; relationships are merged by their type and `provenance`, so writing again changes nothing.
    """
    server = _address(address)
    facts = json.loads(Path(file).read_bytes())
    with _session(server, allow_internal, writes=True) as session:
        nodes = _find_nodes(session, server, {name: label for fact in facts for name, label in _ends(fact)})
        missing = [fact[:3] for fact in facts if not (fact[0] in nodes and fact[2] in nodes)]
        rows: dict[str, list[dict[str, Any]]] = {}
        for head, relation, tail, _, _, properties in facts:
            if head in nodes and tail in nodes:
                row = {"head": nodes[head], "tail": nodes[tail], "properties": properties}
                rows.setdefault(relation, []).append(row)
        count = 0
        for relation, facts_of_type in rows.items():
            for batch in _batches(facts_of_type, FACTS_PER_TRANSACTION):
                count += session.execute_write(_merge, merge_query(server, relation), batch, provenance)
    yield [json.dumps({"written": count, "n_missing": len(missing), "missing": missing[:3]}).encode()]


def merge_query(address: Neo4jAddress, relation: str) -> str:
    """Cypher query that merges relationships of one type between nodes given by identifier."""
    label, head, tail = _label(address), id_of("h", address.id), id_of("t", address.id)
    return (
        f"UNWIND $rows AS row MATCH (h{label}) WHERE {head} = row.head MATCH (t{label}) WHERE {tail} = row.tail "
        f"MERGE (h)-[r:{quoted(relation)} {{predicted: true, run: $run}}]->(t) "
        "SET r += row.properties RETURN count(r) AS written"
    )


def nodes_query(address: Neo4jAddress) -> str:
    """Cypher query for the nodes with given identifiers, and their names."""
    identifier = id_of("n", address.id)
    return (
        f"MATCH (n{_label(address)}) WHERE {identifier} IN $ids "
        f"RETURN {identifier} AS id, {name_of('n', address.names)} AS name"
    )


def _label(address: Neo4jAddress) -> str:
    """The label restriction if the address has exactly one label, which lets the server use an index; else empty."""
    return f":{quoted(address.labels[0])}" if len(address.labels) == 1 else ""


def _find_nodes(session: Any, address: Neo4jAddress, names: dict[str, str | None]) -> dict[str, str | int]:
    """identifier -> its value in the database, for nodes that exist exactly once and have the expected name."""
    values: dict[str, str | int | None] = {}
    query = nodes_query(address)
    for batch in _batches(list(names), ROWS_PER_MESSAGE):
        ids = [*batch, *([int(name) for name in batch if _is_number(name)] if address.id else [])]
        for identifier, name in session.run(query, {"ids": ids}).values():
            key = str(identifier)
            expected = names.get(key)
            is_same = expected is None or name is None or clean_name(str(name)) == expected
            values[key] = identifier if is_same and key not in values else None  # two nodes: ambiguous
    return {key: value for key, value in values.items() if value is not None and key in names}


def _merge(transaction: Any, query: str, rows: list[dict[str, Any]], provenance: dict[str, Any]) -> int:
    return int(transaction.run(query, {"rows": rows, **provenance}).single(strict=True)["written"])


def _ends(fact: list[Any]) -> list[tuple[str, str | None]]:
    return [(fact[0], fact[3]), (fact[2], fact[4])]


def _is_number(text: str) -> bool:
    """Whether an identifier may be a number in the database."""
    return text.isascii() and text.isdecimal() and len(text) < 19 and str(int(text)) == text


def _batches(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    return (list(items[start : start + size]) for start in range(0, len(items), size))


# The connection ------------------------------------------------------------------------------------------------------


def _address(values: dict[str, Any]) -> Neo4jAddress:
    return Neo4jAddress(**values | {"labels": tuple(values["labels"]), "names": tuple(values["names"])})


@contextmanager
def _session(address: Neo4jAddress, allow_internal: bool, writes: bool) -> Iterator[Any]:
    """Open a session; any exception inside it becomes an error that names the address."""
    try:
        import neo4j
        from neo4j.exceptions import AuthError, DriverError, Neo4jError, ServiceUnavailable
    except ImportError as error:
        raise HarmoniumError("Neo4j needs its driver: pip install 'harmonium[neo4j]'") from error
    refused = [] if allow_internal else _guard_connections(address.location)
    mode = neo4j.WRITE_ACCESS if writes else neo4j.READ_ACCESS
    try:
        with (
            neo4j.GraphDatabase.driver(
                address.url,
                auth=_credentials(),
                user_agent=f"harmonium/{__version__}",
                connection_timeout=CONNECT_SECONDS,
                max_transaction_retry_time=CONNECT_SECONDS,
            ) as driver,
            driver.session(database=address.database, default_access_mode=mode, fetch_size=ROWS_PER_MESSAGE) as session,
        ):
            yield session
    except HarmoniumError:
        raise
    except Exception as error:  # a server may send anything
        if refused:
            raise refused[0] from error
        if isinstance(error, AuthError):
            text = "refuses the user or the password; set NEO4J_USERNAME and NEO4J_PASSWORD"
        elif isinstance(error, ServiceUnavailable):
            text = f"cannot be reached, or is not a Neo4j server ({_message(error)})"
        elif isinstance(error, Neo4jError | DriverError):
            text = f"refuses the query ({_message(error)})"
        else:
            text = f"its answer is broken ({type(error).__name__}: {_message(error)})"
        raise HarmoniumError(f"{address.location}: {text}") from error


def _credentials() -> tuple[str, str] | None:
    """User and password, if the environment has a password."""
    password = os.environ.get("NEO4J_PASSWORD")
    user = os.environ.get("NEO4J_USERNAME") or os.environ.get("NEO4J_USER") or "neo4j"
    return None if password is None else (user, password)


def _guard_connections(location: str) -> list[HarmoniumError]:
    """Refuse connections to internal addresses for the rest of this process, whatever names or routing tables resolve to."""
    refused: list[HarmoniumError] = []

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1]
            try:
                check_public(str(address[0]) if isinstance(address, tuple) else "", location)
            except ValueError as error:  # a HarmoniumError is a ValueError; so is the error for an invalid address
                refused.append(error if isinstance(error, HarmoniumError) else HarmoniumError(f"{location}: {error}"))
                raise refused[-1] from error

    sys.addaudithook(check)
    return refused


def _message(error: BaseException) -> str:
    """The message of an error, in one line."""
    return " ".join(str(error).split())[:300]
