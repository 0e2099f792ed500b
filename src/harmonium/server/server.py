"""Serving a run over HTTP: the public function `serve`."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harmonium.errors import HarmoniumError, whole_number
from harmonium.run.run import Run

if TYPE_CHECKING:
    import uvicorn

    from harmonium.review.queue import Order
    from harmonium.review.store import ReviewStore
    from harmonium.server.guard import Guard

MAX_CONNECTIONS = 200  # at the same time; uvicorn refuses further ones with 503
MIN_TOKEN_LENGTH = 16  # characters
TOKEN_BYTES = 24  # random bytes in the token of a reviewer
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class ReviewOptions:
    """How the facts of a run are reviewed in the explorer."""

    reviewers: Sequence[str]  # names; each gets a token of its own
    path: str | Path | None = None  # file of judgements; default: beside the run folder
    order: Order = "use"  # of the queue
    top: int = 1000  # facts in it


def serve(
    run: Run | str | Path | Sequence[Run | str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
    progress: Callable[[int], None] | None = None,
    review: ReviewOptions | Sequence[str] | None = None,
) -> None:
    """Serve a run as a web page and a JSON API until interrupted; `ready` is called with the address.

    With several runs the page shows one at a time, and answers of all side by side. A `host` that other machines can reach
    requires a `token`. Nothing can be changed, unless `review` names reviewers: then `ready` is called once for each, with
    a personal address where they judge predicted facts.

    >>> harmonium.serve("runs/demo", ready=print)
    >>> harmonium.serve(["runs/demo", "runs/plain"], ready=print)
    >>> harmonium.serve("runs/demo", ready=print, review=["Ana", "Ben"])
    """
    options = review if review is None or isinstance(review, ReviewOptions) else ReviewOptions(review)
    app = guarded_app(run, host, token, progress, review=options)
    listener = _listen(host, port)
    if ready:
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        address = f"[{address}]" if ":" in address else address
        home = f"http://{address}:{listener.getsockname()[1]}/"
        for secret in app.issued.values():
            ready(f"{home}#token={secret}&view=review")
        if not app.issued:
            ready(f"{home}#token={token}" if token else home)
    http_server(app).run(sockets=[listener])


def guarded_app(
    run: Run | str | Path | Sequence[Run | str | Path],
    host: str = "127.0.0.1",
    token: str | None = None,
    progress: Callable[[int], None] | None = None,
    review: ReviewOptions | None = None,
) -> Guard:
    """The ASGI application of one or several runs, for a server of your own."""
    if token is None and review is None and host not in LOOPBACK:
        raise HarmoniumError(
            f"--host {host} lets other machines in: give --token, at least {MIN_TOKEN_LENGTH} characters, hard to guess"
        )
    if token is not None and not (len(token) >= MIN_TOKEN_LENGTH and token.isascii() and token.isprintable()):
        raise HarmoniumError(f"--token needs at least {MIN_TOKEN_LENGTH} letters, digits or signs")
    try:
        import uvicorn  # noqa: F401

        from harmonium.server.api import MAX_RUNS, build_app
        from harmonium.server.guard import Guard
    except ImportError as error:
        raise HarmoniumError(f"the explorer needs {error.name}: pip install 'harmonium[serve]'") from error
    from harmonium.review.session import Review
    from harmonium.server.explorer import Explorer

    runs = [run] if isinstance(run, Run | str | Path) else list(run)
    if not 1 <= len(runs) <= (MAX_RUNS if review is None else 1):
        most = f"1 to {MAX_RUNS} runs to serve" if review is None else "one run to review"
        raise HarmoniumError(f"give {most}, not {len(runs)}")
    explorers = [Explorer(Run.of(each)) for each in runs]
    for explorer in explorers:
        explorer.prepare(progress)
    hosts = None if host in ("0.0.0.0", "::") else {*LOOPBACK, host.lower()}
    if review is None:
        return Guard(build_app(explorers), hosts, token)
    opened = Review.open(explorers[0].run, review.path, order=review.order, top=review.top, progress=progress)
    issued = _issue_tokens(opened.store, review.reviewers)
    app = build_app(explorers, opened)
    return Guard(app, hosts, token, opened.store.reviewers(), host in LOOPBACK, issued)


def _issue_tokens(store: ReviewStore, names: Sequence[str]) -> dict[str, str]:
    """Create a token for each reviewer; earlier tokens of the same names become invalid."""
    if isinstance(names, str) or not names:
        raise HarmoniumError("name one or more reviewers (--reviewer NAME)")
    issued = {}
    for name in names:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        issued[store.set_token(name, token)] = token
    if len(issued) < len(names):
        raise HarmoniumError(f"each reviewer must be named once, not {', '.join(names)}")
    return issued


def http_server(app: Guard) -> uvicorn.Server:
    """A uvicorn server for the application."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app, http="h11", ws="none", log_level="error", access_log=False, server_header=False,
            limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=30, timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=80_000,
        )
    )  # fmt: skip


def _listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 means any free port. A wrong address is an error."""
    port = whole_number("port", port, most=65_535)  # the system would silently truncate larger ones to 16 bits
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HarmoniumError(f"cannot listen on {host}, port {port} ({reason}); choose another --port") from error
    return listener
