"""HTTP connections that nobody can hold for nothing: slow, silent and deaf clients are dropped, and make room first."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """One client. A request must be whole, and an answer taken, `patience` seconds after the one before.

    Of more than `at_once` connections the one that has waited longest without a question in work is dropped.
    """

    def __init__(self, *args: Any, patience: float, at_once: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patience, self.at_once = patience, at_once

    @property
    def working(self) -> bool:
        """A question was asked, and the client takes what is sent."""
        return self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.at_once:
            idle = [other for other in self.connections if not other.working]
            min(idle, key=lambda other: other.deadline.when()).drop()

    def send_400_response(self, message: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # the answer to the part that could be read is not waited for
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(message)
        else:
            self.drop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self.deadline.cancel()
        super().connection_lost(error)
        self._unset_keepalive_if_required()

    def drop(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def _wait(self) -> None:
        if hasattr(self, "deadline"):
            self.deadline.cancel()
        self.deadline = self.loop.call_later(self.patience, self._late)

    def _late(self) -> None:
        if self.working and not self.transport.is_closing():
            self._wait()  # the guard limits how long an answer may take
        else:
            self.drop()
