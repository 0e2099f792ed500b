"""The server among many clients and bad ones."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harmonium.config.settings import ModelConfig
from harmonium.run.run import Run
from serving import Server, untrained
from small import make_graph

pytestmark = pytest.mark.network
ASK = b"GET /api/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"
FACT = {"head": "e1", "relation": "r0", "tail": "e2"}


@pytest.fixture(scope="module")
def run() -> Run:
    return untrained(make_graph(), ModelConfig("hole", 6, rank=2))


def connect(server: Server, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    client.sendall(sent)
    return client


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < end:
        time.sleep(0.01)
    return condition()


def test_many_clients_at_once_are_queued(run: Run) -> None:
    requests = [
        ("info", {}, 200), ("search", {"q": "e"}, 200), ("facts", {"entity": "e1"}, 200), ("map", {}, 200),
        ("predictions", {"entity": "e2"}, 200), ("answers", {"head": "e1", "relation": "r0"}, 200),
        ("neighbours", FACT, 200), ("explain", FACT, 200), ("facts", {"entity": "nobody"}, 404),
        ("missing", {}, 200), ("missing", {"relation": "r1"}, 200), ("compare", {"first": "e1", "second": "e2"}, 200),
        ("neighbourhood", {"entity": "e1"}, 200), ("fact", FACT, 200), ("relations", {}, 200), ("info", {"run": 1}, 404),
        ("search", {"limit": 0}, 422), ("answers", {"head": "e1"}, 400), ("nothing", {}, 404),
    ]  # fmt: skip
    with Server(run) as server, ThreadPoolExecutor(16) as clients:
        statuses = list(clients.map(lambda request: server.get(request[0], **request[1]).status, 20 * requests))
    assert statuses == 20 * [status for *_, status in requests]


HOST = b"Host: localhost\r\n"
GET, POST = b"GET / HTTP/1.1\r\n" + HOST, b"POST / HTTP/1.1\r\n" + HOST
MALFORMED = {  # what is sent, and the status of the answer
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
    "two hosts": (GET + b"Host: evil.example\r\n\r\n", 400),
    "two lengths": (GET + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", 400),
    "length and chunks": (POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
    "a large body": (POST + b"Content-Length: 99999999\r\n\r\n" + b"x" * 99, 413),
    "a long header": (GET + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
    "a longer header": (GET + b"X: " + b"y" * 100_000, 400),
    "a long path": (b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
    "markup for a method": (b"<script> / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "another address": (b"GET http://evil.example/api/v1/info HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    "half a chunk": (GET + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhell", 413),
    "a tunnel": (b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n", 404),
}


@pytest.fixture(scope="module")
def server(run: Run):
    with Server(run) as started:
        yield started


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_request_is_refused_without_a_log(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    sent, status = MALFORMED[name]
    reply = b""
    with contextlib.suppress(ConnectionError), connect(server, sent) as client:
        while b"\r\n\r\n" not in reply and (received := client.recv(1 << 16)):
            reply += received
    assert reply.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"<script>" not in reply
    assert until(lambda: not server.server.server_state.tasks and server.connections == 0)
    assert not caplog.records


def test_the_server_stops_though_clients_stay_connected(run: Run) -> None:
    with contextlib.ExitStack() as stack:
        with Server(run) as server:
            for sent in (b"", b"GET /", ASK):
                stack.enter_context(connect(server, sent))
            assert until(lambda: server.connections == 3)
        assert not server.thread.is_alive()
