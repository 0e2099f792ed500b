"""What stands between the network and the API: host names, tokens, size, time and number of requests, and headers."""

import asyncio
import hmac
import re
from collections.abc import Mapping
from contextlib import suppress

from anyio import CancelScope, Semaphore, WouldBlock, move_on_after
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harmonium.review.store import reviewer_of
from harmonium.server.results import Problem

LONGEST_QUERY = 60_000  # characters of a query string: three names of 1,500 letters, 12 characters each at most
LONGEST_HEAD = 16_384  # bytes of path and headers
LONGEST_BODY, BODY_SECONDS = 40_000, 10.0  # bytes of a judgement, and the time in which they must come
AT_WORK, SLOW_AT_WORK = 8, 2  # requests that the API has at the same time; its threads always have work
SLOW = ("/api/v1/explain", "/api/v1/missing")
REVIEW = "/api/v1/review/"  # what only reviewers may ask, and the only paths that change anything, by POST
WAIT_SECONDS = 1.0  # for a turn among those; then the server is too busy
WAITING = "harmonium.waiting"  # key of a request's scope: its wait for a turn, which its connection may cancel,
IS_LAST = "harmonium.is_last"  # and whether the client has ended its half of the connection, or gone
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

    With `reviewers` (name -> sha256 of a token), their paths under REVIEW require the token of one of them, which is also
    good for everything else. Only there a request may be a POST with a body: small, JSON, and never from another site.
    With `open_reading` the rest of the API needs no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: set[str] | None,
        token: str | None,
        seconds: float,
        reviewers: Mapping[str, bytes | None] | None = None,
        open_reading: bool = True,
        issued: Mapping[str, str] | None = None,
    ) -> None:
        self.app, self.hosts, self.token, self.seconds = app, hosts, token, seconds
        self.reviewers, self.open_reading = reviewers, open_reading
        self.issued = issued or {}  # tokens to be shown to whoever started the server, by the name of a reviewer
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
        body = await _read_body(receive) if scope["method"] == "POST" else b""
        if body is None:
            await error_response(408, f"the body did not come within {BODY_SECONDS:g} s, or is too long")(
                scope, receive, send
            )
            return

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
                await self._in_turn(scope, _replay(body), send_with_headers)

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

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application when it is this request's turn; the page and its files need none."""
        if not scope["path"].startswith("/api/"):
            await self.app(scope, receive, send)
            return
        turns = self.slow_turns if scope["path"] in SLOW else self.turns
        if not await _acquire(turns, scope):
            retry = RETRY_SECONDS + turns.statistics().tasks_waiting // RETRIES_PER_SECOND
            await error_response(503, BUSY, min(retry, LONGEST_RETRY_SECONDS), close=False)(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send)
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
        is_review = self.reviewers is not None and scope["path"].startswith(REVIEW)
        if refusal := _refuse_body(headers, is_review and scope["method"] == "POST"):
            return refusal
        if not scope["path"].startswith("/api/"):
            return None
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):  # sent by browsers
            return 403, "pages of other sites, and of other ports, may not use this API"
        if is_review and (refusal := _refuse_origin(headers, scope["method"])):
            return refusal
        return self._refuse_token(scope, headers, is_review)

    def _refuse_token(self, scope: Scope, headers: Mapping[str, str], is_review: bool) -> tuple[int, str] | None:
        """Status and reason, unless the request has the token that it needs; the name of a reviewer goes with it."""
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if self.reviewers is not None:
            reviewer = reviewer_of(token, dict(self.reviewers))
            scope.setdefault("state", {})["reviewer"] = reviewer
            if reviewer is not None:
                return None
        if is_review:
            return 401, "this needs a reviewer's token: open the link that `harmonium serve --review` printed for you"
        if self.token is None and self.open_reading:
            return None
        if self.token is not None and hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        return 401, "a token is required: send the header 'Authorization: Bearer TOKEN'"


async def _acquire(turns: Semaphore, scope: Scope) -> bool:
    """Wait for a turn, unless the client may have gone; False if there was none."""
    with suppress(WouldBlock):
        turns.acquire_nowait()
        return True
    with move_on_after(0 if IS_LAST in scope else WAIT_SECONDS) as waiting:
        scope[WAITING] = waiting
        await turns.acquire()
    return not waiting.cancelled_caught


def _refuse_body(headers: Mapping[str, str], may_have_one: bool) -> tuple[int, str] | None:
    """Only judgements have a body: JSON of known and small size."""
    length = headers.get("content-length", "0")
    if not may_have_one:
        if length != "0" or "transfer-encoding" in headers:
            return 413, "requests have no body; send parameters in the query string"
        return None
    if "transfer-encoding" in headers or not length.isdecimal() or int(length) > LONGEST_BODY:
        return 413, f"a judgement has at most {LONGEST_BODY:,} bytes, and says how many (Content-Length)"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "send JSON (Content-Type: application/json)"  # which forms of other pages cannot
    return None


def _refuse_origin(headers: Mapping[str, str], method: str) -> tuple[int, str] | None:
    """A page may only change something if it came from this server; programs that are no browsers say no origin."""
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is not None:
        if origin.lower() not in (f"http://{host}", f"https://{host}"):
            return 403, "the page came from another origin than this server (a proxy must pass the header Host on)"
    elif method != "GET" and headers.get("sec-fetch-site") == "none":
        return 403, "only the page of this server may change something"
    return None


def _host_name(header: str) -> str:
    """The name in a Host header, without the port; empty if the header is malformed."""
    match = HOST.fullmatch(header)
    return (match[1] or match[2] or "").lower() if match else ""


async def _read_body(receive: Receive) -> bytes | None:
    """The body of a request; None if it is too long, too slow, or the client has gone."""
    body, more = b"", True
    with move_on_after(BODY_SECONDS) as waiting:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body, more = body + message.get("body", b""), message.get("more_body", False)
            if len(body) > LONGEST_BODY:
                return None
    return None if waiting.cancelled_caught else body


def _replay(body: bytes) -> Receive:
    """What the application receives: a body that has been read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


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
