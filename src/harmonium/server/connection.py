"""One HTTP connection, with the limits that uvicorn leaves to a proxy: slow clients, and more connections than allowed."""

import asyncio
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from harmonium.server.guard import IS_LAST, WAITING, error_response

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
        self.is_half_closed = False  # the client sends no more

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

    def eof_received(self) -> bool:  # type: ignore[override]  # as in asyncio: whether the connection stays open
        """The client sends no more, and may have gone or wait for its answer: what it has sent in full is answered.

        Only a request that waits for its turn is refused, so that clients that have gone leave the queue.
        """
        self.is_half_closed = True
        if self._is_answering and self.conn.their_state is not h11.SEND_BODY:
            scope = cast(dict[str, Any], self.cycle.scope)
            scope[IS_LAST] = True
            if waiting := scope.get(WAITING):
                waiting.cancel()
        elif self._is_answering or self.conn.trailing_data[0]:
            self._refuse(400, "the request ended early")
        return not self.transport.is_closing() and self._is_answering

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
        if self.is_half_closed and not self._is_answering:  # nor is there another request that came before the end
            self.transport.close()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.read_timer = self.read_timer or self.loop.call_later(READ_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "no valid HTTP request")

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _end_slow_request(self) -> None:
        self._refuse(408, f"no complete request within {HEAD_SECONDS:g} s")

    def _refuse(self, status: int, message: str) -> None:
        """End the connection, with an answer unless the application has begun to send one; it sends nothing any more."""
        if self.transport.is_closing():
            return
        has_begun = self._is_answering and self.cycle.response_started
        if self.cycle is not None:
            self.cycle.disconnected = True
        if not has_begun:
            self.transport.write(_as_bytes(error_response(status, message)))
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
