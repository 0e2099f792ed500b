"""The explorer: a JSON API and one page to look around in a run, on this machine unless told otherwise."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from harmonium.errors import HarmoniumError

SECONDS = 30.0  # that one request may take, waiting for its turn included
PATIENCE = 20.0  # seconds for a request to arrive whole, or an answer to be taken
AT_ONCE = 200  # connections; many systems allow a process 256 open files
SHORTEST_TOKEN = 16


def guarded_app(
    run: Any,
    host: str = "127.0.0.1",
    token: str | None = None,
    watch: Callable[[int], None] | None = None,
    seconds: float = SECONDS,
) -> Any:
    """The ASGI application of a run, for a server of your own; refuses to be reachable by others without a token."""
    from harmonium.serve.guard import LOOPBACK, Guard

    if token is None and host not in LOOPBACK:
        raise HarmoniumError(
            f"--host {host} lets other machines in: give --token, {SHORTEST_TOKEN} characters or more that are hard to guess"
        )
    if token is not None and not (len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise HarmoniumError(f"--token needs at least {SHORTEST_TOKEN} letters, digits or signs")
    try:
        from harmonium.serve.api import build_app
    except ImportError as error:
        raise HarmoniumError(f"the explorer needs {error.name}: pip install 'harmonium[serve]'") from error
    from harmonium.commands import open_run
    from harmonium.kernels.memory import give_back_freed_memory
    from harmonium.serve.explorer import Explorer

    give_back_freed_memory()
    explorer = Explorer(open_run(run))
    explorer.prepare(watch)
    hosts = None if host in ("0.0.0.0", "::") else {*LOOPBACK, host.lower()}
    return Guard(build_app(explorer), hosts, token, seconds)


def serve(
    run: Any,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """Serve a run folder as a JSON API and a page until interrupted; `ready` is told the address.

    >>> harmonium.serve("runs/demo", ready=print)
    """
    app = guarded_app(run, host, token, watch)
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    if ready:
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        shown = f"[{shown}]" if ":" in shown else shown
        ready(f"http://{shown}:{port}/" + (f"#token={token}" if token else ""))
    http_server(app).run(sockets=[listener])


def http_server(app: Any, patience: float = PATIENCE, at_once: int = AT_ONCE) -> Any:
    """What speaks HTTP for an application: requests wait for their turn, clients that stall are dropped."""
    import uvicorn

    from harmonium.serve.connection import Connection

    return uvicorn.Server(
        uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, proxy_headers=False, ws="none",
            timeout_keep_alive=5, h11_max_incomplete_event_size=40_000,
            http=partial(Connection, patience=patience, at_once=at_once),
        )
    )  # fmt: skip


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens now, so that a wrong address is a message and port 0 is any free one."""
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
