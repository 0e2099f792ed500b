"""Endpoints that are broken, hostile or internal: every one is a clear error, in bounded time and memory."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from harmonium.data import untrusted_server
from harmonium.data.datasets import load
from harmonium.errors import HarmoniumError

pytestmark = pytest.mark.network
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/sparql-results+json\r\n"
Answer = bytes | Callable[[socket.socket], None]


@contextmanager
def endpoint(answer: Answer) -> Iterator[str]:
    """A server on loopback that reads a request and sends this, or does this."""

    def serve() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.settimeout(10)
                    while b"query=" not in client.recv(1 << 16):
                        pass
                    client.sendall(answer) if isinstance(answer, bytes) else answer(client)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"sparql:http://127.0.0.1:{listener.getsockname()[1]}/query"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def endless(block: bytes, pause: float = 0) -> Callable[[socket.socket], None]:
    def send(client: socket.socket) -> None:
        for _ in range(20_000):
            client.sendall(block)
            time.sleep(pause)

    return send


def after(head: bytes, rest: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    return lambda client: (client.sendall(head), rest(client))[1]


def results(content: Any) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


URI = {"type": "uri", "value": "a:b"}
QUOTED = json.dumps({"type": "triple", "value": {"subject": URI, "predicate": URI}}).encode()[:-2] + b',"object":'
BROKEN: dict[str, tuple[Answer, str]] = {
    "nothing": (b"", "broken"),
    "no HTTP": (b"\x00\xff" * 50 + b"\r\n\r\n", "broken"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Ty", "broken|no SPARQL results"),
    "a short body": (OK + b"Content-Length: 1000\r\n\r\n{}", "bytes are missing"),
    "a negative length": (OK + b"Content-Length: -5\r\n\r\n{}", "no SPARQL results"),
    "a broken chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}", "broken"),
    "a short chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n{}", "broken"),
    "a negative chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}", "broken|no SPARQL"),
    "a long line": (OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n", "broken"),
    "endless lines": (after(OK, endless(b"X: y\r\n" * 100)), "broken"),
    "an endless line": (after(OK, endless(b"x" * 10_000)), "broken"),
    "an endless body": (after(OK + b"\r\n", endless(b"x" * 10_000)), "more than 1 MiB"),
    "endless chunks": (
        after(OK + b"Transfer-Encoding: chunked\r\n\r\n", endless(b"2710\r\n" + b"x" * 10_000 + b"\r\n")),
        "more than 1 MiB",
    ),
    "endless interim answers": (endless(b"HTTP/1.1 100 Continue\r\n\r\n", 0.001), "within 2 s|broken"),
    "an endless error": (after(b"HTTP/1.1 500 Oh\r\n\r\n", endless(b"x" * 10_000)), "answers 500 Oh: xxx"),
    "a head byte by byte": (endless(b"H", 0.01), "within 2 s|broken"),
    "a body byte by byte": (after(OK + b"\r\n", endless(b" ", 0.01)), "within 2 s"),
    "silence": (lambda client: time.sleep(3), "within 2 s"),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "redirects to http://169.254"),
    "a redirect to nowhere": (b"HTTP/1.1 301 Moved\r\n\r\n", "redirects to another address"),
    "another encoding": (OK + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08", "no SPARQL results"),
    "a page": (results(b"<html>"), "no SPARQL results"),
    "no object": (results([1]), "no SPARQL results"),
    "a number": (results(b"1" * 5000), "no SPARQL results"),
    "no variables": (results({"results": {"bindings": []}}), "no SPARQL results"),
    "odd variables": (results({"head": {"vars": [1]}, "results": {"bindings": []}}), "no SPARQL results"),
    "odd rows": (results({"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": [1]}}), "no SPARQL results"),
    "rows of null": (results({"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": [None]}}), "no SPARQL results"),
    "odd terms": (results({"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": [{"s": 1}]}}), "no SPARQL results"),
    "a bad IRI": (
        results({"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": [{"s": {"type": "uri", "value": "a b"}}]}}),
        "no SPARQL results",
    ),
    "many unbound rows": (
        results({"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": [{}] * 100_000}}), "unbound"
    ),
    "deep arrays": (results(b"[" * 200_000), "no SPARQL results"),
    "deep quoted triples": (
        results(
            b'{"head":{"vars":["s","p","o"]},"results":{"bindings":[{"s":' + QUOTED * 5_000 + b"1" + b"}}" * 5_000 + b"}]}}"
        ),
        "no SPARQL results",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_endpoint_is_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(untrusted_server, "MAX_ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(untrusted_server, "MAX_ANSWER_BYTES", 1 << 20)
    answer, message = BROKEN[name]
    begun = time.monotonic()
    with endpoint(answer) as address, pytest.raises(HarmoniumError, match=message):
        load(address, allow_internal=True)
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    "url",
    [
        "http://", "http:///query", "http://[::1", "http://a:99999/", "http://a:x/", "http://a b/", "http://ü.example/ü",
        "http://\r\nx/", "http://x/\r\nHost: y", "http://a@b/", "ftp://x/", "file:///etc/passwd", "x", "", "http://..",
        "http://a..b/", "http://%00/", "http://\ud800/", "http://" + "a" * 300,
    ],
)  # fmt: skip
def test_a_bad_address_is_an_error(url: str) -> None:
    with pytest.raises(HarmoniumError):
        load(f"sparql:{url}")


INTERNAL = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "localhost", "[::1]", "[::]", "10.0.0.1", "172.16.0.1",
    "192.168.1.1", "169.254.169.254", "[fe80::1]", "[fc00::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "100.64.0.1",
    "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1", "255.255.255.255", "192.0.2.1", "localhost.",
]  # fmt: skip


@pytest.mark.parametrize("host", INTERNAL)
def test_internal_addresses_need_permission(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connected"))
    with pytest.raises(HarmoniumError, match="--allow-internal|cannot be reached"):
        load(f"sparql:http://{host}:9/query")


def test_a_name_counts_by_its_address_and_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may resolve to a public address for the check, and to an internal one when it is asked again."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **options: Any) -> Any:
        if host != "rebinding.example":
            return real(host, *arguments, **options)
        asked.append(host)
        return real("93.184.215.14" if len(asked) == 1 else "127.0.0.1", *arguments, **options)

    reached: list[str] = []

    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        reached.append(address[0])
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(HarmoniumError, match="refused"):
        load("sparql:http://rebinding.example/query")
    assert reached == ["93.184.215.14"]
    with pytest.raises(HarmoniumError, match=re.escape("127.0.0.1 is an internal address")):
        load("sparql:https://rebinding.example/query")
    assert reached == ["93.184.215.14"]


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(HarmoniumError, match="user name is not supported") as error:
        load("sparql:http://me:secret@127.0.0.1/query")
    assert "secret" not in str(error.value)
