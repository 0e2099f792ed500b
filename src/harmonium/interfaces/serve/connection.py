"""One HTTP connection, with the limits that uvicorn leaves to a proxy: slow clients, and more connections than allowed."""

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from harmonium.interfaces.serve.guard import error_response

HEAD_SECONDS = 10.0  # until the first line and the headers of a request are complete
READ_SECONDS = 20.0  # until a client reads on, once the buffers of its answer are full


class Connection(H11Protocol):
    """A connection of uvicorn that ends when its client is too slow, with an answer where HTTP allows one.

    A connection above `limit` gets the application `busy`, so that its client is refused and not left without an answer.
    """

    def __init__(self, *, limit: int, busy: ASGIApp, **options: Any) -> None:
        super().__init__(**options)
        self.limit, self.busy = limit, busy
        self.head_timer: asyncio.TimerHandle | None = None
        self.read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if len(self.connections) > self.limit:
            self.app = self.busy
        self.head_timer = self.loop.call_later(HEAD_SECONDS, self._end_slow_request)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self.head_timer = _cancelled(self.head_timer)
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_SECONDS, self._end_slow_request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_timer, self.read_timer = _cancelled(self.head_timer), _cancelled(self.read_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.read_timer = self.read_timer or self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self.read_timer = _cancelled(self.read_timer)
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.read_timer = self.read_timer or self.loop.call_later(READ_SECONDS, self.transport.abort)

    def _end_slow_request(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_as_bytes(error_response(408, f"no complete request within {HEAD_SECONDS:g} s")))
            self.transport.close()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer; returns no timer, to be kept instead."""
    if timer is not None:
        timer.cancel()
    return None


def _as_bytes(response: Response) -> bytes:
    head = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])
