"""What stands between the network and the API: host names, token, size and time of requests, headers for browsers."""

import asyncio
import hmac
import re

from anyio import CancelScope
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harmonium.interfaces.serve.results import Problem

LONGEST_QUERY = 20_000  # characters of a query string: three names of 500 letters, 12 characters each at most
LONGEST_HEAD = 16_384  # bytes of path and headers
HOST = re.compile(r"(?:\[([^][]*)\]|([^][:]*))(?::\d+)?")  # [address] or name, and an optional port
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
    """ASGI middleware that refuses what the API must not see.

    Only requests for `hosts` pass (None: any), so that a web site whose name resolves to loopback cannot reach the
    server through a browser. With a `token` the API requires it. Requests have no body and take at most `seconds`.
    """

    def __init__(self, app: ASGIApp, hosts: set[str] | None, token: str | None, seconds: float) -> None:
        self.app, self.hosts, self.token, self.seconds = app, hosts, token, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal := self.refuse(scope):
            await _error(*refusal)(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application until it is done, the client has gone, or time is up."""
        started = finished = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if finished:
                return
            started = True
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        async def run(cancellation: CancelScope) -> None:
            with cancellation:
                await self.app(scope, _no_body, send_with_headers)

        cancellation = CancelScope()
        answer, disconnect = asyncio.ensure_future(run(cancellation)), asyncio.ensure_future(_disconnected(receive))
        await asyncio.wait({answer, disconnect}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
        finished = not answer.done()
        cancellation.cancel()  # leaves the queue; a thread that has started cannot be stopped and runs to its end
        if finished and not started and not disconnect.done():
            await _error(503, f"no answer within {self.seconds:g} s; ask for less, or later")(scope, receive, send)
        disconnect.cancel()
        await answer

    def refuse(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason, if the request may not pass."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if len(scope["path"]) + sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEAD:
            return 431, f"path and headers are longer than {LONGEST_HEAD:,} bytes"
        if self.hosts is not None and _host_name(headers.get("host", "")) not in self.hosts:
            return 421, "this server does not answer to that host name"
        if len(scope["query_string"]) > LONGEST_QUERY:
            return 414, f"the query string is longer than {LONGEST_QUERY:,} characters"
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return 413, "requests have no body; send parameters in the query string"
        if not scope["path"].startswith("/api/"):
            return None
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):  # sent by browsers
            return 403, "pages of other sites, and of other ports, may not use this API"
        token = headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self.token is not None and not hmac.compare_digest(token, self.token.encode()):
            return 401, "a token is required: send the header 'Authorization: Bearer TOKEN'"
        return None


def _host_name(header: str) -> str:
    """The name in a Host header, without the port; empty if the header is malformed."""
    match = HOST.fullmatch(header)
    return (match[1] or match[2] or "").lower() if match else ""


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(status: int, message: str) -> Response:
    body = Problem(error=message).model_dump_json()
    return Response(body, status, {**HEADERS, "Connection": "close"}, media_type="application/json")
