"""The server among many clients and bad ones."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harmonium.interfaces.serve import api
from harmonium.interfaces.serve.explorer import Explorer
from harmonium.run.run import Run
from harmonium.runtime.config import ModelConfig
from serving import Server, untrained
from small import make_graph

pytestmark = pytest.mark.network
ASK = b"GET /api/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"
FACT = {"head": "e1", "relation": "r0", "tail": "e2"}


@pytest.fixture(scope="module")
def run() -> Run:
    return untrained(make_graph(), ModelConfig("hole", 6, rank=2))


def connect(server: Server, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    client.sendall(sent)
    return client


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < end:
        time.sleep(0.01)
    return condition()


def test_many_clients_at_once_are_queued_and_none_is_refused(run: Run) -> None:
    requests = [
        ("info", {}, 200), ("search", {"q": "e"}, 200), ("facts", {"entity": "e1"}, 200), ("map", {}, 200),
        ("predictions", {"entity": "e2"}, 200), ("answers", {"head": "e1", "relation": "r0"}, 200),
        ("neighbours", FACT, 200), ("explain", FACT, 200), ("facts", {"entity": "nobody"}, 404),
        ("search", {"limit": 0}, 422), ("answers", {"head": "e1"}, 400), ("nothing", {}, 404),
    ]  # fmt: skip
    with Server(run) as server, ThreadPoolExecutor(16) as clients:
        statuses = list(clients.map(lambda request: server.get(request[0], **request[1]).status, 20 * requests))
    assert statuses == 20 * [status for *_, status in requests]


def test_connections_are_kept_and_those_above_the_limit_are_refused(run: Run) -> None:
    with Server(run, connections=8) as server, contextlib.ExitStack() as stack:
        clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(8)]
        for client in clients:
            stack.callback(client.close)
        for path in ("/api/v1/search", "/explorer.js"):
            for client in clients:
                client.request("GET", path)
            replies = [client.getresponse() for client in clients]
            assert [reply.status for reply in replies if reply.read()] == [200] * 8
            assert until(lambda: not server.server.server_state.tasks)  # they count towards uvicorn's limit
        assert server.connections == 8
        assert server.ask("/api/v1/info").status == 503
        stack.close()
        assert until(lambda: server.connections == 0)
        assert server.ask("/api/v1/info").status == 200


def test_clients_that_vanish_leave_the_queue_and_no_thread_is_added(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    working, most, begun, go = 0, 0, 0, threading.Event()

    def slow(*_: Any) -> list[Any]:
        nonlocal working, most, begun
        begun, working = begun + 1, working + 1
        most = max(most, working)
        go.wait(30)
        working -= 1
        return []

    with Server(run) as server:
        monkeypatch.setattr(Explorer, "search", slow)
        tasks = server.server.server_state.tasks
        for _ in range(30):
            connect(server, ASK.replace(b"info", b"search")).close()
        assert until(lambda: server.connections == 0 and begun >= api.QUICK_THREADS)
        assert server.get("info").status == 200
        go.set()
        assert until(lambda: not tasks)
        assert most == api.QUICK_THREADS
        assert begun < 30  # the others left the queue
        assert server.get("search").json == []


def test_slow_questions_do_not_hold_up_quick_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(Explorer, "explain", lambda *_: {"waited": go.wait(30)})
    with Server(run) as server, ThreadPoolExecutor(8) as clients:
        slow = [clients.submit(server.get, "explain", **FACT) for _ in range(8)]
        assert until(lambda: server.connections == 8)
        assert server.get("search").status == 200
        assert not any(reply.done() for reply in slow)
        go.set()
        assert [reply.result().json for reply in slow] == [{"waited": True}] * 8


def test_a_request_that_takes_too_long_is_given_up_even_in_the_queue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(Explorer, "search", lambda *_: [] if go.wait(30) else None)
    with Server(run, seconds=0.3) as server, ThreadPoolExecutor(10) as clients:
        replies = list(clients.map(lambda _: server.get("search"), range(10)))
        assert not go.is_set()
        assert [reply.status for reply in replies] == [503] * 10
        assert "0.3 s" in replies[0].json["error"]
        assert server.get("info").status == 200
        go.set()


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
