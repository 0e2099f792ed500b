"""What stands between the network and the API: host names, token, size, time and number of requests, and headers."""

import asyncio
import hmac
import re

from anyio import CancelScope, Semaphore, move_on_after
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harmonium.interfaces.serve.results import Problem

LONGEST_QUERY = 20_000  # characters of a query string: three names of 500 letters, 12 characters each at most
LONGEST_HEAD = 16_384  # bytes of path and headers
AT_WORK, SLOW_AT_WORK = 8, 2  # requests that the API has at the same time; its threads always have work
SLOW = ("/api/v1/explain", "/api/v1/missing")
WAIT_SECONDS = 1.0  # for a turn among those; then the server is too busy
BUSY = "too many requests at the same time; ask again in a moment"
RETRY_SECONDS, LONGEST_RETRY_SECONDS, RETRIES_PER_SECOND = 2, 30, 50  # when refused clients should ask again: in turn
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
    server through a browser. With a `token` the API requires it. Requests have no body and take at most `seconds`. When
    more ask than can be answered, the others wait a moment for their turn and are then refused with Retry-After.
    """

    def __init__(self, app: ASGIApp, hosts: set[str] | None, token: str | None, seconds: float) -> None:
        self.app, self.hosts, self.token, self.seconds = app, hosts, token, seconds
        self.turns, self.slow_turns = Semaphore(AT_WORK), Semaphore(SLOW_AT_WORK)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal := self.refuse(scope):
            await error_response(*refusal)(scope, receive, send)
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
                await self._in_turn(scope, send_with_headers)

        cancellation = CancelScope()
        answer, disconnect = asyncio.ensure_future(run(cancellation)), asyncio.ensure_future(_disconnected(receive))
        await asyncio.wait({answer, disconnect}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
        finished = not answer.done()
        cancellation.cancel()  # leaves the queue; a thread that has started cannot be stopped and runs to its end
        if finished and not started and not disconnect.done():
            late = f"no answer within {self.seconds:g} s; ask for less, or later"
            await error_response(503, late)(scope, receive, send)
        disconnect.cancel()
        await answer

    async def _in_turn(self, scope: Scope, send: Send) -> None:
        """Run the application when it is this request's turn; the page and its files need none."""
        if not scope["path"].startswith("/api/"):
            await self.app(scope, _no_body, send)
            return
        turns = self.slow_turns if scope["path"] in SLOW else self.turns
        with move_on_after(WAIT_SECONDS) as waiting:
            await turns.acquire()
        if waiting.cancelled_caught:
            retry = RETRY_SECONDS + turns.statistics().tasks_waiting // RETRIES_PER_SECOND
            await error_response(503, BUSY, min(retry, LONGEST_RETRY_SECONDS), close=False)(scope, _no_body, send)
            return
        try:
            await self.app(scope, _no_body, send)
        finally:
            turns.release()

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


async def busy(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of connections above the limit."""
    await error_response(503, BUSY)(scope, receive, send)


def error_response(status: int, message: str, retry: int = RETRY_SECONDS, close: bool = True) -> Response:
    """A refusal; 503 says when to ask again. `close` ends the connection, as a body that was not read would confuse it."""
    headers = {**HEADERS, "Connection": "close"} if close else dict(HEADERS)
    if status == 503:
        headers["Retry-After"] = str(retry)
    return Response(Problem(error=message).model_dump_json(), status, headers, media_type="application/json")
