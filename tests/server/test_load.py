"""The server among many clients and bad ones."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import resource
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harmonium.config.settings import ModelConfig
from harmonium.run.run import Run
from harmonium.server import api, connection, guard
from harmonium.server.explorer import Explorer
from harmonium.server.results import Match
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


def test_many_clients_at_once_are_queued(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAIT_SECONDS", 25)  # also on a slow machine
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


def test_connections_are_kept_and_those_above_the_limit_are_refused(run: Run) -> None:
    with Server(run, connections=8) as server, contextlib.ExitStack() as stack:
        clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(8)]
        for client in clients:
            stack.callback(client.close)
        for path in ("/api/v1/search", "/explorer.js"):
            for client in clients:
                client.request("GET", path)
            replies = [client.getresponse() for client in clients]
            assert [reply.status for reply in replies if reply.read()] == [200] * 8
        assert server.connections == 8
        refused = server.ask("/api/v1/info")
        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert "too many" in refused.json["error"]
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
        assert until(lambda: server.connections <= guard.AT_WORK and begun >= api.QUICK_THREADS)
        assert server.ask("/").status == 200
        go.set()
        assert until(lambda: not tasks)
        assert most == api.QUICK_THREADS
        assert begun < 30  # the others left the queue
        assert server.get("search").json == []


def test_slow_questions_do_not_hold_up_quick_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(guard, "WAIT_SECONDS", 25)  # also on a slow machine
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


def test_a_thousand_clients_at_once_are_all_answered(run: Run) -> None:
    """More than can be served: each gets its answer, or a refusal that says when to ask again."""
    requests = [ASK.replace(b"info", path) for path in (b"search?q=e", b"facts?entity=e1", b"predictions?entity=e2")]

    async def ask(port: int, request: bytes) -> tuple[int, dict[str, str]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        await reader.readexactly(int(fields["content-length"]))
        writer.close()
        return int(head.split()[1]), fields

    async def ask_all(port: int, count: int) -> list[tuple[int, dict[str, str]]]:
        return await asyncio.gather(*(ask(port, requests[i % len(requests)]) for i in range(count)))

    with Server(run) as server:
        count = min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - 100)  # both ends are in this process
        before = threading.active_count()
        replies = asyncio.run(ask_all(server.port, count))
        assert threading.active_count() <= before + api.QUICK_THREADS + 1
        assert until(lambda: server.connections == 0)
        assert server.get("search").status == 200
    assert {status for status, _ in replies} <= {200, 503}
    assert sum(status == 200 for status, _ in replies) >= guard.AT_WORK
    assert all(int(fields["retry-after"]) > 0 for status, fields in replies if status == 503)


def test_those_who_wait_too_long_are_refused_and_may_ask_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAIT_SECONDS", 0.2)
    go = threading.Event()
    monkeypatch.setattr(Explorer, "search", lambda *_: [] if go.wait(30) else None)
    with Server(run) as server, contextlib.ExitStack() as stack:
        working = [stack.enter_context(connect(server, ASK.replace(b"info", b"search"))) for _ in range(guard.AT_WORK)]
        assert until(lambda: server.app.turns.value == 0)
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        stack.callback(client.close)
        for status in (503, 503, 200):
            if status == 200:
                go.set()
            client.request("GET", "/api/v1/search")  # over the same connection
            reply = client.getresponse()
            assert (reply.status, bool(reply.read())) == (status, True)
            assert (reply.getheader("retry-after") is not None) == (status == 503)
            assert server.ask("/").status == 200  # the page needs no turn
        assert all(each.recv(20).startswith(b"HTTP/1.1 200") for each in working)


SLOW = {  # what a slow client has sent when time is up
    "nothing": b"",
    "half a line": b"GET /api",
    "half a head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
    "half of a second request": ASK + b"GET / HT",
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("connections", [100, 1])
def test_a_request_that_does_not_arrive_is_ended(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, connections: int
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    with Server(run, connections=connections) as server, connect(server), connect(server, SLOW[name]) as client:
        received, begun = b"", time.perf_counter()
        with contextlib.suppress(OSError):  # the server has closed the connection
            client.settimeout(0.1)
            while time.perf_counter() - begun < 10:
                with contextlib.suppress(TimeoutError):
                    if not (part := client.recv(1 << 16)):
                        break
                    received += part
                if name != "nothing":
                    client.sendall(b"a")  # one byte at a time
        refused = connections == 1 and name == "half of a second request"
        assert received.rpartition(b"HTTP/1.1 ")[2].startswith(b"503 " if refused else b"408 ")
        assert until(lambda: server.connections == 0)
        assert server.get("info").status == 200


def test_a_client_that_does_not_read_its_answer_is_dropped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "READ_SECONDS", 0.3)
    monkeypatch.setattr(Explorer, "search", lambda *_: [Match("x" * 1_000_000, "x", 1) for _ in range(20)])
    with Server(run) as server, contextlib.ExitStack() as stack:
        for _ in range(4):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            stack.enter_context(client).sendall(ASK.replace(b"info", b"search"))
        assert until(lambda: server.connections == 4)
        assert until(lambda: server.connections == 0 and not server.server.server_state.tasks)
        assert server.get("info").status == 200


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
    "no chunk": (GET + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
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


ENDED = {  # what a client has sent when it closes its half of the connection, and the statuses of the answers
    "a request": (ASK, [200]),
    "a page": (GET + b"\r\n", [200]),
    "three requests": (3 * ASK, [200, 200, 200]),
    "half a request": (b"GET / HT", [400]),
    "one and a half": (ASK + b"GET / HT", [200, 400]),
    "half a body": (GET + b"Content-Length: 9\r\n\r\nhell", [413]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_client_that_sends_no_more_is_answered(server: Server, name: str) -> None:
    sent, statuses = ENDED[name]
    reply = b""
    with connect(server, sent) as client:
        client.shutdown(socket.SHUT_WR)
        while received := client.recv(1 << 16):
            reply += received
    assert [int(part[:3]) for part in reply.split(b"HTTP/1.1 ")[1:]] == statuses
    assert until(lambda: not server.server.server_state.tasks and server.connections == 0)


def test_the_server_stops_though_clients_stay_connected(run: Run) -> None:
    with contextlib.ExitStack() as stack:
        with Server(run) as server:
            for sent in (b"", b"GET /", ASK):
                stack.enter_context(connect(server, sent))
            assert until(lambda: server.connections == 3)
        assert not server.thread.is_alive()
