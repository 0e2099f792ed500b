"""A stub of a Neo4j server: enough of the Bolt protocol for Neo4j's own driver, and a graph in memory.

It speaks Bolt 4.4 to the real driver, but runs no Cypher: it knows the few queries that harmonium sends, by their text, and
does by hand what they say. What a real server makes of that text is not tested here.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

MAGIC = b"\x60\x60\xb0\x17"
HELLO, GOODBYE, RESET, RUN, BEGIN, COMMIT, ROLLBACK, DISCARD, PULL, ROUTE = (
    0x01, 0x02, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x2F, 0x3F, 0x66,
)  # fmt: skip
SUCCESS, RECORD, IGNORED, FAILURE = 0x70, 0x71, 0x7E, 0x7F
VERSION = b"\0\0\x04\x04"

Result = tuple[list[str], list[list[Any]]]  # columns, rows
Answer = Callable[[str, dict[str, Any]], Result]


@dataclass
class Structure:
    """A value with a tag, such as a node (N) or a relationship (R)."""

    tag: int
    fields: list[Any]


def node(number: int, labels: list[str], properties: dict[str, Any]) -> Structure:
    return Structure(ord("N"), [number, labels, properties])


def relationship(number: int, start: int, end: int, type: str, properties: dict[str, Any]) -> Structure:
    return Structure(ord("R"), [number, start, end, type, properties])


# PackStream ----------------------------------------------------------------------------------------------------------


def pack(value: Any) -> bytes:
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcb" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xc1" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xd2" + struct.pack(">I", len(text)) + text
    if isinstance(value, list):
        return b"\xd6" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    if isinstance(value, Mapping):
        pairs = b"".join(pack(key) + pack(item) for key, item in value.items())
        return b"\xda" + struct.pack(">I", len(value)) + pairs
    assert isinstance(value, Structure)
    return bytes([0xB0 + len(value.fields), value.tag]) + b"".join(map(pack, value.fields))


class Unpacker:
    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0

    def take(self, size: int) -> bytes:
        self.position += size
        return self.content[self.position - size : self.position]

    def size(self, marker: int, tiny: int, first: int) -> int | None:
        """The size of a value whose markers are `tiny` + n, or `first` and those after it with 8, 16 or 32 bits."""
        if marker & 0xF0 == tiny:
            return marker & 0x0F
        for step, (width, code) in enumerate(((1, "B"), (2, ">H"), (4, ">I"))):
            if marker == first + step:
                return int(struct.unpack(code, self.take(width))[0])
        return None

    def value(self) -> Any:
        marker = self.take(1)[0]
        if marker < 0x80 or marker >= 0xF0:
            return struct.unpack("b", bytes([marker]))[0]
        if marker in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[marker]
        if marker == 0xC1:
            return struct.unpack(">d", self.take(8))[0]
        for known, width, code in ((0xC8, 1, "b"), (0xC9, 2, ">h"), (0xCA, 4, ">i"), (0xCB, 8, ">q")):
            if marker == known:
                return struct.unpack(code, self.take(width))[0]
        if (size := self.size(marker, 0x80, 0xD0)) is not None:
            return self.take(size).decode()
        if (size := self.size(marker, 0x90, 0xD4)) is not None:
            return [self.value() for _ in range(size)]
        if (size := self.size(marker, 0xA0, 0xD8)) is not None:
            return {self.value(): self.value() for _ in range(size)}
        assert marker & 0xF0 == 0xB0, hex(marker)
        return Structure(self.take(1)[0], [self.value() for _ in range(marker & 0x0F)])


# The server ----------------------------------------------------------------------------------------------------------


@dataclass
class Bolt:
    """A connection of a client."""

    client: socket.socket
    buffer: bytes = b""

    def receive(self, size: int) -> bytes:
        while len(self.buffer) < size:
            block = self.client.recv(1 << 16)
            if not block:
                raise ConnectionError
            self.buffer += block
        content, self.buffer = self.buffer[:size], self.buffer[size:]
        return content

    def message(self) -> Structure:
        content = b""
        while True:
            (size,) = struct.unpack(">H", self.receive(2))
            if size == 0 and content:
                value = Unpacker(content).value()
                assert isinstance(value, Structure)
                return value
            content += self.receive(size)

    def send(self, tag: int, *fields: Any) -> None:
        content = pack(Structure(tag, list(fields)))
        chunks = [content[start : start + 0xFFFF] for start in range(0, len(content), 0xFFFF)]
        self.client.sendall(b"".join(struct.pack(">H", len(chunk)) + chunk for chunk in chunks) + b"\0\0")


@dataclass
class Recorded:
    """What clients sent."""

    address: str
    credentials: list[dict[str, Any]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)  # r or w
    databases: list[str | None] = field(default_factory=list)


def serve_client(bolt: Bolt, answer: Answer, recorded: Recorded, password: str | None) -> None:
    assert bolt.receive(4) == MAGIC
    bolt.receive(16)
    bolt.client.sendall(VERSION)
    rows: list[list[Any]] = []
    failed = in_transaction = False
    while True:
        message = bolt.message()
        tag, fields = message.tag, message.fields
        if tag == GOODBYE:
            return
        if tag == RESET:
            failed = False
            bolt.send(SUCCESS, {})
        elif failed:
            bolt.send(IGNORED, {})
        elif tag == HELLO:
            recorded.credentials.append(fields[0])
            if password is not None and fields[0].get("credentials") != password:
                bolt.send(
                    FAILURE, {"code": "Neo.ClientError.Security.Unauthorized", "message": "The client is unauthorized"}
                )
                return
            bolt.send(SUCCESS, {"server": "Neo4j/5.26.0", "connection_id": "stub-1"})
        elif tag in (RUN, BEGIN):
            extra = fields[-1]
            if not in_transaction:
                recorded.modes.append(extra.get("mode", "w"))
                recorded.databases.append(extra.get("db"))
            if tag == BEGIN:
                in_transaction = True
                bolt.send(SUCCESS, {})
                continue
            recorded.queries.append(fields[0])
            recorded.parameters.append(fields[1])
            try:
                columns, rows = answer(fields[0], fields[1])
            except ValueError as error:
                failed = True
                bolt.send(FAILURE, {"code": "Neo.ClientError.Statement.SyntaxError", "message": str(error)})
                continue
            bolt.send(SUCCESS, {"fields": columns, "t_first": 0, "qid": 0})
        elif tag in (PULL, DISCARD):
            size = fields[0].get("n", -1)
            part, rows = (rows, []) if size < 0 else (rows[:size], rows[size:])
            for row in part if tag == PULL else ():
                bolt.send(RECORD, row)
            bolt.send(SUCCESS, {"has_more": True} if rows else {"type": "rw", "t_last": 0, "db": "neo4j"})
        else:
            in_transaction = in_transaction and tag not in (COMMIT, ROLLBACK)
            bolt.send(SUCCESS, {})


@contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server on loopback; its address."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=attend, args=(client,), daemon=True))
                threads[-1].start()

    def attend(client: socket.socket) -> None:
        with client, suppress(OSError, AssertionError):
            client.settimeout(30)
            handle(client)

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"bolt://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@contextmanager
def bolt_server(answer: Answer, password: str | None = None) -> Iterator[Recorded]:
    """A stub of Neo4j that answers queries by a function; a ValueError is a syntax error."""
    recorded = Recorded("")
    with listening(lambda client: serve_client(Bolt(client), answer, recorded, password)) as address:
        recorded.address = address
        yield recorded
