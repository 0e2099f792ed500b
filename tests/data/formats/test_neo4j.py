"""Neo4j over Bolt: its own driver against a stub of its server (tests/bolt_stub.py), which runs no Cypher."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harmonium
from bolt_stub import VERSION, Bolt, bolt_server, listening
from graph_checks import facts
from harmonium.data.datasets import graph_name, is_server, load
from harmonium.data.formats.neo4j import server as neo4j_server
from harmonium.data.formats.neo4j.address import Neo4jAddress, quoted, without_user
from harmonium.errors import HarmoniumError
from harmonium.runtime.limited_process import Limits

pytestmark = pytest.mark.network
COLUMNS = ["head", "relation", "tail", "head_name", "tail_name"]
ROWS = [
    ["4:x:0", "ACTED_IN", "4:x:1", "Keanu Reeves", "The Matrix"],
    ["4:x:2", "ACTED_IN", "4:x:1", "Carrie-Anne Moss", "The Matrix"],
    ["4:x:3", "DIRECTED", "4:x:1", "Lana Wachowski", "The Matrix"],
    ["4:x:4", "ACTED_IN", "4:x:1", None, "The Matrix"],
]


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEO4J_USERNAME", "NEO4J_USER", "NEO4J_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def read(address: str, **options: Any) -> harmonium.Graph:
    return load(address, allow_internal=True, valid=0, test=0, **options)


# Addresses -----------------------------------------------------------------------------------------------------------


def test_an_address_has_a_database_and_options() -> None:
    address = Neo4jAddress.parse("neo4j+s://db.example.org:7688/movies?label=Person,Movie&name=title&name=name&id=imdb")
    assert (address.url, address.database) == ("neo4j+s://db.example.org:7688", "movies")
    assert (address.labels, address.names, address.id) == (("Person", "Movie"), ("title", "name"), "imdb")
    assert address.location == "neo4j+s://db.example.org:7688/movies"
    assert Neo4jAddress.parse("bolt://[::1]:7687").url == "bolt://[::1]:7687"
    assert graph_name("bolt://localhost:7687/my%2Fmovies?id=x") == "my_movies"
    assert graph_name("bolt://localhost:7687") == "localhost"
    assert is_server("bolt+ssc://h") and is_server("sparql:http://x") and not is_server("bolt.csv")


@pytest.mark.parametrize(
    "address",
    [
        "bolt://neo4j:s3cret@localhost:7687/db",
        "neo4j+s://a:s3cret@x@host?id=a,b",
        "bolt://:s3cret@host:bad",
        "bolt://s3cret@h",
    ],
)
def test_a_password_in_an_address_is_refused_and_never_shown(address: str, tmp_path: Path, capfd: Any) -> None:
    for use in (
        lambda: load(address),
        lambda: harmonium.train(address, out=tmp_path / "run"),
        lambda: graph_name(address),
    ):
        with pytest.raises(HarmoniumError) as caught:
            use()
        assert "s3cret" not in str(caught.value)
    assert "NEO4J_PASSWORD" in str(caught.value) or "no address" in str(caught.value)
    assert "s3cret" not in without_user(address)
    assert not any(b"s3cret" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


# Reading -------------------------------------------------------------------------------------------------------------


def test_a_neo4j_stub_is_read_with_names_and_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEO4J_USERNAME", "me")
    monkeypatch.setenv("NEO4J_PASSWORD", "s3cret")
    with bolt_server(lambda query, parameters: (COLUMNS, ROWS), "s3cret") as server:
        graph = read(f"{server.address}/movies?label=Person,Movie")
    assert graph.name == "movies"
    assert facts(graph, "train") == [tuple(row[:3]) for row in ROWS]
    assert graph.names_of(graph.train)[0] == ("Keanu Reeves", "ACTED_IN", "The Matrix")
    assert graph.names_of(graph.train)[3][0] == "4:x:4"
    assert server.parameters == [{"labels": ["Person", "Movie"]}]
    assert "coalesce(r.predicted, false) <> true" in server.queries[0]
    assert server.modes == ["r"] and server.databases == ["movies"]
    assert server.credentials[0]["principal"] == "me"


# Hostile servers and internal addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
def test_internal_addresses_are_not_reached(host: str) -> None:
    with pytest.raises(HarmoniumError, match="is an internal address.*--allow-internal"):
        load(f"bolt://{host}:9")


def after_handshake(content: bytes, endless: bool = False) -> Callable[[socket.socket], None]:
    """Accept the driver's greeting, then send bytes that are no answer to it."""

    def handle(client: socket.socket) -> None:
        bolt = Bolt(client)
        bolt.receive(20)
        client.sendall(VERSION)
        bolt.message()
        while True:
            client.sendall(content)
            if not endless:
                return

    return handle


def silent(client: socket.socket) -> None:
    while client.recv(1 << 16):
        pass


def chunk(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


BROKEN: dict[str, Callable[[socket.socket], None]] = {
    "nothing": lambda client: None,
    "HTTP": lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "another version": lambda client: client.sendall(b"\0\0\0\x63"),
    "half a message": after_handshake(chunk(b"\xb1\x70")[:3]),
    "no structure": after_handshake(chunk(b"\x01") + b"\0\0"),
    "a wrong size": after_handshake(chunk(b"\xb1\x70\xda\xff\xff\xff\xff") + b"\0\0"),
    "bytes that are no text": after_handshake(chunk(b"\xb1\x70\xa1\x81\xff\x01") + b"\0\0"),
    "deep lists": after_handshake(chunk(b"\xb1\x70" + b"\x91" * 60_000) * 20 + b"\0\0"),
    "an endless message": after_handshake(chunk(b"x" * 60_000), endless=True),
    "silence": silent,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_hostile_server_is_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(neo4j_server, "READ_LIMITS", Limits(memory=1 << 29, seconds=20, output=1 << 24, idle=3))
    with listening(BROKEN[name]) as address, pytest.raises(HarmoniumError, match=address):
        read(address)


@pytest.mark.parametrize("name", ["a`b", r"a\u0060b", r"a\uu0060]->() DETACH DELETE n //", r"\\u0060"])
def test_a_name_in_cypher_stays_between_its_backticks(name: str) -> None:
    text = quoted(name)
    decoded = re.sub(r"\\u+([0-9a-fA-F]{4})", lambda escape: chr(int(escape[1], 16)), text)  # as a server does first
    assert decoded[0] == decoded[-1] == "`" and decoded[1:-1].replace("``", "`") == name
    assert "`" not in decoded[1:-1].replace("``", "")
