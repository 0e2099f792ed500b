"""What stands between the network and the API: who may ask, how much, for how long, and what browsers may do with it."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from anyio import CancelScope

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

LONGEST_QUERY = 20_000  # characters of a query string: three names of 500 letters, 12 characters each at most
LONGEST_HEAD = 16_384  # bytes of a path and all headers
HOST = re.compile(r"(?:\[([^][]*)\]|([^][:]*))(?::\d+)?")  # [address] or name, and perhaps a port
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
        size = len(scope["path"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if refusal := self.refuse(scope["path"], scope["query_string"], headers, size):
            return await _say(send, *refusal)
        begun = late = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if not late:
                begun = True
                await send(_with_headers(message))

        async def answer(place: CancelScope) -> None:
            with place:
                await self.app(scope, _no_body, guarded)

        place = CancelScope()
        work, left = asyncio.ensure_future(answer(place)), asyncio.ensure_future(_left(receive))
        await asyncio.wait({work, left}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
        late = not work.done()
        place.cancel()  # it leaves the queue; a thread cannot be stopped, so it keeps its place until it ends
        if late and not begun and not left.done():
            await _say(send, 503, f"this took longer than {self.seconds:g} s; ask for less, or later")
        left.cancel()
        await work

    def refuse(self, path: str, query: bytes, headers: dict[str, str], size: int) -> tuple[int, str] | None:
        """A status and the reason, if the request may not pass."""
        if size > LONGEST_HEAD:
            return 431, f"the path and headers of this request are longer than {LONGEST_HEAD:,} bytes"
        if self.hosts is not None and _host(headers.get("host", "")) not in self.hosts:
            return 421, "this server does not answer to that host name"
        if len(query) > LONGEST_QUERY:
            return 414, f"the query string is longer than {LONGEST_QUERY:,} characters"
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return 413, "requests have no body here; send parameters in the query string"
        if not path.startswith("/api/"):
            return None
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):  # as browsers say of a page that asks
            return 403, "pages of other sites, and of other ports, may not ask"
        given = headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self.token is not None and not hmac.compare_digest(given, self.token.encode()):
            return 401, "a token is needed: send the header 'Authorization: Bearer TOKEN'"
        return None


def _host(header: str) -> str:
    """The name in a Host header, without the port; empty where it is no such header."""
    found = HOST.fullmatch(header)
    return (found[1] or found[2] or "").lower() if found else ""


def _with_headers(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    return {**message, "headers": [*message.get("headers", ()), *extra]}


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _left(receive: Any) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _say(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message, "unknown": None, "suggestions": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send(_with_headers({"type": "http.response.start", "status": status, "headers": headers}))
    await send({"type": "http.response.body", "body": body})
