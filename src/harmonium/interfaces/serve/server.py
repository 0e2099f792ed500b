"""Serving a run over HTTP: the public function `serve`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harmonium.run.run import Run, open_run
from harmonium.runtime.errors import HarmoniumError

if TYPE_CHECKING:
    import uvicorn

    from harmonium.interfaces.serve.guard import Guard

REQUEST_SECONDS = 30.0  # for one request, waiting for its turn included
CONNECTIONS = 2000  # at the same time; more are accepted and refused
OTHER_FILES = 200  # that the process has open: libraries, the run, connections to be refused
BACKLOG = 2048  # connections that the system keeps until they are accepted
SHORTEST_TOKEN = 16
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def serve(
    run: Run | str | Path | Sequence[Run | str | Path],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Serve a run as a web page and a JSON API until interrupted; `ready` is called with the address.

    Of several runs the page shows one at a time, and their answers side by side. A `host` that other machines can reach
    requires a `token`.

    >>> harmonium.serve("runs/demo", ready=print)
    >>> harmonium.serve(["runs/demo", "runs/plain"], ready=print)
    """
    app = guarded_app(run, host, token, progress)
    listener = _listen(host, port)
    if ready:
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        address = f"[{address}]" if ":" in address else address
        fragment = f"#token={token}" if token else ""
        ready(f"http://{address}:{listener.getsockname()[1]}/{fragment}")
    http_server(app).run(sockets=[listener])


def guarded_app(
    run: Run | str | Path | Sequence[Run | str | Path],
    host: str = "127.0.0.1",
    token: str | None = None,
    progress: Callable[[int], None] | None = None,
    seconds: float = REQUEST_SECONDS,
) -> Guard:
    """The ASGI application of one or several runs, for a server of your own."""
    if token is None and host not in LOOPBACK:
        raise HarmoniumError(
            f"--host {host} lets other machines in: give --token, {SHORTEST_TOKEN} or more characters that are hard to guess"
        )
    if token is not None and not (len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise HarmoniumError(f"--token needs at least {SHORTEST_TOKEN} letters, digits or signs")
    try:
        import uvicorn  # noqa: F401

        from harmonium.interfaces.serve.api import MOST_RUNS, build_app
        from harmonium.interfaces.serve.guard import Guard
    except ImportError as error:
        raise HarmoniumError(f"the explorer needs {error.name}: pip install 'harmonium[serve]'") from error
    from harmonium.interfaces.serve.explorer import Explorer

    runs = [run] if isinstance(run, Run | str | Path) else list(run)
    if not 1 <= len(runs) <= MOST_RUNS:
        raise HarmoniumError(f"give 1 to {MOST_RUNS} runs to serve, not {len(runs)}")
    explorers = [Explorer(open_run(each)) for each in runs]
    for explorer in explorers:
        explorer.prepare(progress)
    hosts = None if host in ("0.0.0.0", "::") else {*LOOPBACK, host.lower()}
    return Guard(build_app(explorers), hosts, token, seconds)


def http_server(app: Guard, connections: int = CONNECTIONS) -> uvicorn.Server:
    """A uvicorn server with limits; clients above `connections`, or above the open files allowed, are answered with 503."""
    import uvicorn

    from harmonium.interfaces.serve.connection import Connection
    from harmonium.interfaces.serve.guard import busy

    limit = max(1, min(connections, _open_files(connections + OTHER_FILES) - OTHER_FILES))
    return uvicorn.Server(
        uvicorn.Config(
            app, http=partial(Connection, limit=limit, busy=busy), ws="none",  # type: ignore[arg-type]  # any factory
            log_level="error", access_log=False, server_header=False, proxy_headers=False, backlog=BACKLOG,
            timeout_keep_alive=30, timeout_graceful_shutdown=1, h11_max_incomplete_event_size=40_000,
        )
    )  # fmt: skip


def _open_files(wanted: int) -> int:
    """How many files this process may have open, after asking the system for as many as `wanted`."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or allowed >= wanted:
        return wanted
    allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return allowed


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; a wrong address is an error here, and port 0 becomes any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HarmoniumError(f"cannot listen on {host}, port {port} ({reason}); choose another --port") from error
    return listener
