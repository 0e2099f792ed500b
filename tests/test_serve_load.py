"""The server among many clients and bad ones: everyone is answered, and nobody can make others wait."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import pytest

from harmonium.config import ModelConfig
from harmonium.run import Run
from harmonium.serve import api, connection
from harmonium.serve.explorer import Explorer
from serving import Server, untrained
from small import make_graph

PATIENCE = 0.5
ASK = b"GET /api/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def run() -> Run:
    return untrained(make_graph(), ModelConfig("hole", 6, rank=2))


@pytest.fixture
def server(run: Run) -> Iterator[Server]:
    with Server(run, PATIENCE) as made:
        yield made


def join(server: Server, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    made.sendall(sent)
    return made


def closed_after(client: socket.socket) -> float:
    """Seconds until the server hangs up."""
    begun = time.perf_counter()
    with contextlib.suppress(ConnectionError):
        while client.recv(1 << 16):
            pass
    return time.perf_counter() - begun


def connected(server: Server) -> int:
    return len(server.server.server_state.connections)


def until(condition: Any, seconds: float = 5) -> bool:
    end = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < end:
        time.sleep(0.01)
    return condition()


def test_many_clients_at_once_wait_for_their_turn_and_none_is_refused(server: Server) -> None:
    fact = {"head": "e1", "relation": "r0", "tail": "e2"}
    asked = [
        ("info", {}, 200), ("search", {"q": "e"}, 200), ("facts", {"entity": "e1"}, 200), ("map", {}, 200),
        ("predictions", {"entity": "e2"}, 200), ("answers", {"head": "e1", "relation": "r0"}, 200),
        ("neighbours", fact, 200), ("explain", fact, 200), ("facts", {"entity": "nobody"}, 404),
        ("search", {"limit": 0}, 422), ("answers", {"head": "e1"}, 400), ("nothing", {}, 404),
    ]  # fmt: skip
    turns = [one for one, _ in zip(cycle(asked), range(20 * len(asked)), strict=False)]
    with ThreadPoolExecutor(16) as clients:
        found = list(clients.map(lambda one: server.get(one[0], **one[1]).status, turns))
    assert found == [status for *_, status in turns]


def test_more_clients_than_threads_are_served_over_connections_they_keep(run: Run) -> None:
    with Server(run) as server:
        clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(64)]
        for path in ("/api/v1/search", "/explorer.js"):
            for client in clients:
                client.request("GET", path)
            replies = [client.getresponse() for client in clients]
            assert [reply.status for reply in replies if reply.read()] == [200] * 64
        assert connected(server) == 64
        for client in clients:
            client.close()


def test_a_client_that_connects_and_says_nothing_is_dropped(server: Server) -> None:
    with join(server) as silent:
        assert PATIENCE / 2 < closed_after(silent) < 4 * PATIENCE


@pytest.mark.parametrize("before", [b"", ASK], ids=["first", "after an answer"])
def test_a_client_that_sends_a_byte_now_and_then_is_dropped(server: Server, before: bytes) -> None:
    begun = time.perf_counter()
    with join(server, before) as slow, pytest.raises(ConnectionError):
        for byte in cycle(b"GET /api/v1/info HTTP/1.1\r\nX-" + b"y" * 10_000):
            slow.sendall(bytes([byte]))
            time.sleep(0.05)
            assert time.perf_counter() - begun < 5 * PATIENCE


def test_a_client_that_does_not_take_its_answers_is_dropped(server: Server) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", server.port))
        deaf.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                deaf.sendall(b"GET /explorer.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        assert connected(server) == 1
        assert server.ask("/api/v1/info").status == 200
        assert until(lambda: connected(server) == 0, 6 * PATIENCE)


def test_clients_that_vanish_leave_the_queue_and_no_thread_is_added(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, most, begun, go = 0, 0, 0, threading.Event()

    def slow(*_: Any) -> list[Any]:
        nonlocal at_work, most, begun
        begun, at_work = begun + 1, at_work + 1
        most = max(most, at_work)
        go.wait(5)
        at_work -= 1
        return []

    with Server(run) as server:
        monkeypatch.setattr(Explorer, "search", slow)
        tasks = server.server.server_state.tasks
        for _ in range(30):
            join(server, ASK.replace(b"info", b"search")).close()
        assert until(lambda: connected(server) == 0 and len(tasks) == begun == api.QUICK)
        assert server.get("info").status == 200
        go.set()
        assert until(lambda: not tasks)
        assert (begun, most) == (api.QUICK, api.QUICK)
        assert server.get("search").json == []


def test_slow_questions_do_not_hold_up_quick_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(Explorer, "explain", lambda *_: {"waited": go.wait(5)})
    fact = {"head": "e1", "relation": "r0", "tail": "e2"}
    with Server(run) as server, ThreadPoolExecutor(8) as clients:
        slow = [clients.submit(server.get, "explain", **fact) for _ in range(8)]
        assert until(lambda: connected(server) == 8)
        assert server.get("search").status == 200
        assert not any(one.done() for one in slow)
        go.set()
        assert [one.result().json for one in slow] == [{"waited": True}] * 8


def test_idle_connections_do_not_keep_others_out(run: Run) -> None:
    with Server(run, at_once=200) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(join(server)) for _ in range(200)]
        assert until(lambda: connected(server) == 200)
        assert server.ask("/api/v1/info").status == 200
        assert idle[0].recv(1) == b""  # the one that had waited longest made room
        idle[-1].sendall(ASK)
        assert idle[-1].recv(12) == b"HTTP/1.1 200"


def test_where_all_are_at_work_one_more_is_dropped_and_those_are_answered(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(Explorer, "search", lambda *_: [] if go.wait(5) else None)
    with Server(run, at_once=3) as server, ThreadPoolExecutor(3) as clients:
        asked = [clients.submit(server.get, "search") for _ in range(3)]
        held = server.server.server_state.connections
        assert until(lambda: sum(one.working for one in list(held)) == 3)
        with join(server) as more:
            assert closed_after(more) < 2
        go.set()
        assert [one.result().status for one in asked] == [200] * 3
        assert all(isinstance(one, connection.Connection) for one in held)


def test_one_that_is_late_is_told_so_before_its_turn_came(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(Explorer, "search", lambda *_: [] if go.wait(5) else None)
    with Server(run, seconds=0.3) as server, ThreadPoolExecutor(10) as clients:
        begun = time.perf_counter()
        replies = list(clients.map(lambda _: server.get("search"), range(10)))
        assert time.perf_counter() - begun < 2
        assert [reply.status for reply in replies] == [503] * 10
        assert "longer than 0.3 s" in replies[0].json["error"]
        go.set()


HOST = b"Host: localhost\r\n"
MALFORMED = {  # what is sent, and the status of each answer
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", [400]),
    "a chunk that is none": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n", [400]),
    "nonsense after a question": (ASK + b"NONSENSE\r\n\r\n", [200, 400]),
    "two hosts": (b"GET / HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n", [400]),
    "two lengths": (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", [400]),
    "length and chunks": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        [413],
    ),
    "a body of some size": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n" + b"x" * 99, [413]),
    "a long header": (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 20_000 + b"\r\n\r\n", [431]),
    "a long path": (b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", [431]),
    "markup for a method": (b"<script> / HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "an address of another": (b"GET http://evil.example/api/v1/info HTTP/1.1\r\n" + HOST + b"\r\n", [404]),
    "a tunnel": (b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n", [404]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_request_is_refused_in_silence(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    sent, statuses = MALFORMED[name]
    with join(server, sent) as client:
        got = b""
        with contextlib.suppress(ConnectionError):
            while some := client.recv(1 << 16):
                got += some
    assert [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]] == statuses
    assert b"<script>" not in got
    assert until(lambda: not server.server.server_state.tasks and connected(server) == 0)
    assert not caplog.records


def test_the_server_stops_though_clients_hang_on(run: Run) -> None:
    with contextlib.ExitStack() as stack:
        with Server(run, PATIENCE) as server:
            for sent in (b"", b"GET /", ASK):
                stack.enter_context(join(server, sent))
            assert until(lambda: connected(server) == 3)
            begun = time.perf_counter()
        assert time.perf_counter() - begun < 4 * PATIENCE
