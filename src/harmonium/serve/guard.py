"""What stands between the network and the API: who may ask, how much, for how long, and what browsers may do with it."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

LONGEST_QUERY = 8_192  # characters of a query string
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI application around another.

    Only requests to `hosts` pass (None: any), which keeps other sites from reaching a loopback server through a name
    of their own that resolves to it. With a `token` the API asks for it. No request has a body, none takes longer
    than `seconds`.
    """

    def __init__(self, app: Any, hosts: set[str] | None, token: str | None, seconds: float) -> None:
        self.app, self.hosts, self.token, self.seconds = app, hosts, token, seconds

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self.refuse(scope["path"], scope["query_string"], headers):
            return await _say(send, *refusal)
        begun = late = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if not late:
                begun = True
                await send(_with_headers(message))

        work = asyncio.ensure_future(self.app(scope, receive, guarded))
        await asyncio.wait({work}, timeout=self.seconds)
        if work.done():
            return work.result()
        late = True  # a thread cannot be stopped: it ends by itself and nobody hears of it
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not begun:
            await _say(send, 503, f"this took longer than {self.seconds:g} s; ask for less")

    def refuse(self, path: str, query: bytes, headers: dict[str, str]) -> tuple[int, str] | None:
        """A status and the reason, if the request may not pass."""
        if self.hosts is not None and _host(headers.get("host", "")) not in self.hosts:
            return 421, "this server does not answer to that host name"
        if len(query) > LONGEST_QUERY:
            return 414, f"the query string is longer than {LONGEST_QUERY:,} characters"
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return 413, "requests have no body here; send parameters in the query string"
        if not path.startswith("/api/"):
            return None
        if headers.get("sec-fetch-site") == "cross-site":
            return 403, "pages of other sites may not ask"
        given = headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self.token is not None and not hmac.compare_digest(given, self.token.encode()):
            return 401, "a token is needed: send the header 'Authorization: Bearer TOKEN'"
        return None


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    return header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0].lower()


def _with_headers(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    return {**message, "headers": [*message.get("headers", ()), *extra]}


async def _say(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message, "unknown": None, "suggestions": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send(_with_headers({"type": "http.response.start", "status": status, "headers": headers}))
    await send({"type": "http.response.body", "body": body})
