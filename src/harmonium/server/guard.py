"""Protection of the API from the network: checks host names, origins, tokens, sizes and headers.

The server is made for one machine or a few colleagues. It keeps web sites in the same browser, and machines without the
token, away from the data; a public server needs a proxy in front of it.
"""

import hmac
import re
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harmonium.review.store import reviewer_of
from harmonium.server.results import Problem

MAX_QUERY_STRING = 60_000  # characters: three names of 1,500 letters, each encoded as up to 12 characters
MAX_HEAD = 16_384  # bytes of path and headers
MAX_BODY = 40_000  # bytes of a judgement
REVIEW = "/api/v1/review/"  # paths for reviewers only, and the only ones that change anything (by POST)
RETRY_SECONDS = 2  # Retry-After of a 503 response
HOST = re.compile(r"(?:\[([^][]*)\]|([^][:]*))(?::\d+)?")  # [address] or name, and an optional port
UNIQUE_HEADERS = ("authorization", "origin", "sec-fetch-site", "content-type")  # ambiguous if repeated
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
    """ASGI middleware that refuses unwanted requests.

    Only requests for `hosts` pass (None: any), so that a web site whose name resolves to loopback cannot reach the
    server through a browser. With a `token` the API requires it, as `Authorization: Bearer TOKEN`. Requests have no body.

    With `reviewers` (name -> sha256 of a token), paths under REVIEW require the token of a reviewer, which is also
    valid for everything else. Only there a request may be a POST with a body: small, JSON, and never from another site.
    With `open_reading` the rest of the API needs no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: set[str] | None,
        token: str | None,
        reviewers: Mapping[str, bytes | None] | None = None,
        open_reading: bool = True,
        issued: Mapping[str, str] | None = None,
    ) -> None:
        self.app, self.hosts, self.token = app, hosts, token
        self.reviewers, self.open_reading = reviewers, open_reading
        self.issued = issued or {}  # reviewer -> token, shown once to whoever started the server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal := self.refuse(scope):
            await error_response(*refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send_with_headers)

    def refuse(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason of a refusal; None if the request may pass."""
        headers = Headers(scope=scope)
        if len(scope["path"]) + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD:
            return 431, f"path and headers are longer than {MAX_HEAD:,} bytes"
        if self.hosts is not None and _host_name(headers.get("host", "")) not in self.hosts:
            return 421, "this server does not answer to that host name"
        if len(scope["query_string"]) > MAX_QUERY_STRING:
            return 414, f"the query string is longer than {MAX_QUERY_STRING:,} characters"
        if repeated := next((name for name in UNIQUE_HEADERS if len(headers.getlist(name)) > 1), None):
            return 400, f"give the header {repeated.title()} once"
        is_review = self.reviewers is not None and scope["path"].startswith(REVIEW)
        if refusal := _refuse_body(headers, is_review and scope["method"] == "POST"):
            return refusal
        if not scope["path"].startswith("/api/"):
            return None
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):  # sent by browsers
            return 403, "pages of other sites, and of other ports, may not use this API"
        if is_review and (refusal := _refuse_origin(scope, headers)):
            return refusal
        return self._refuse_token(scope, headers, is_review)

    def _refuse_token(self, scope: Scope, headers: Headers, is_review: bool) -> tuple[int, str] | None:
        """Refuse a request without the token that it needs; store the name of the reviewer in the scope."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
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


def _refuse_body(headers: Headers, may_have_one: bool) -> tuple[int, str] | None:
    """Refuse a body, unless the request may have one: JSON of declared, small size."""
    length = headers.get("content-length", "0")
    if not may_have_one:
        if length != "0" or "transfer-encoding" in headers:
            return 413, "requests have no body; send parameters in the query string"
        return None
    if "transfer-encoding" in headers or not length.isdecimal() or int(length) > MAX_BODY:
        return 413, f"a judgement has at most {MAX_BODY:,} bytes, declared in Content-Length"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "send JSON (Content-Type: application/json)"  # forms of other sites cannot send JSON
    return None


def _refuse_origin(scope: Scope, headers: Headers) -> tuple[int, str] | None:
    """Refuse changes by pages of other origins. Programs other than browsers send no origin, and may pass."""
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is not None:
        if origin.lower() != f"{scope['scheme']}://{host}":
            hint = "a proxy must forward the headers Host and X-Forwarded-Proto"
            return 403, f"the page came from another origin than this server ({hint})"
    elif scope["method"] != "GET" and headers.get("sec-fetch-site") == "none":
        return 403, "only the page of this server may change something"
    return None


def _host_name(header: str) -> str:
    """The name in a Host header, without the port; empty if the header is malformed."""
    match = HOST.fullmatch(header)
    return (match[1] or match[2] or "").lower() if match else ""


def error_response(status: int, message: str) -> Response:
    """An error as JSON. It closes the connection, as an unread body would be taken for the next request."""
    content = Problem(error=message).model_dump_json()
    return Response(content, status, {**HEADERS, "Connection": "close"}, media_type="application/json")
