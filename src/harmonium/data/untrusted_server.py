"""A POST request to a server that is not trusted: its answer is limited in size and time, and internal addresses are
reached only if allowed, whatever a name resolves to. Redirects are not followed."""

import ipaddress
import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from harmonium.data.formats.neo4j.address import without_user
from harmonium.errors import HarmoniumError
from harmonium.version import __version__

MAX_ANSWER_BYTES = 1 << 26
MAX_ANSWER_SECONDS = 300.0  # from the connection to the last byte
BYTES_PER_READ = 1 << 16


def post(url: str, form: bytes, accept: str, allow_internal: bool = False) -> bytes:
    """POST a form and return the body of the answer. Any status but 200, and too long or too slow an answer, is an error."""
    parts = _split(url)
    connection = _connection(parts, allow_internal)
    timer = threading.Timer(MAX_ANSWER_SECONDS, _hang_up, [connection])
    timer.daemon = True
    timer.start()
    try:
        path = url.partition("#")[0] if connection.is_proxied else _path(parts)
        headers = {"Accept": accept, "User-Agent": f"harmonium/{__version__}", "Connection": "close"}
        connection.request("POST", path, form, headers | {"Content-Type": "application/x-www-form-urlencoded"})
        body = _read(connection.getresponse(), url)
        if connection.is_late:
            raise TimeoutError
        return body
    except HarmoniumError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # a chunk may have no length, which is a ValueError
        if connection.is_late or isinstance(error, TimeoutError):
            raise HarmoniumError(f"{url}: no complete answer within {MAX_ANSWER_SECONDS:g} s; ask for less") from error
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise HarmoniumError(f"{url}: cannot be reached, or its answer is broken ({reason})") from error
    finally:
        timer.cancel()
        connection.close()


def _split(url: str) -> SplitResult:
    """Parse an http or https URL; others, and those with a user name, are an error."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises a ValueError for an invalid port
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError as error:  # UnicodeError is one
        raise HarmoniumError(f"{url}: no address of a server ({error})") from error
    if parts.scheme not in ("http", "https") or not host:
        raise HarmoniumError(f"{url}: expected http://host/path or https://host/path")
    if parts.username is not None:
        raise HarmoniumError(f"{without_user(url)}: an address with a user name is not supported")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise HarmoniumError(f"{url}: no address of a server; write other characters as %XX")
    return parts


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _connection(parts: SplitResult, allow_internal: bool) -> Any:
    """A connection to the server, or to the proxy that the environment sets for it."""
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)  # else HTTPConnection would parse a port out of an IPv6 address
    proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
    connection_type = _SecureConnection if secure else _Connection
    if proxy is None:
        connection = connection_type(host, port, timeout=MAX_ANSWER_SECONDS)
        connection.allow_internal = allow_internal
        return connection
    with suppress(socket.gaierror):  # the proxy may know names that this machine does not
        _check(host, port, allow_internal)
    proxy_url = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = connection_type(proxy_url.hostname or "", proxy_url.port, timeout=MAX_ANSWER_SECONDS)
    connection.allow_internal = True  # the proxy itself, which the user chose
    if secure:
        connection.set_tunnel(host, port)
    else:
        connection.is_proxied = True
    return connection


class _Connection(HTTPConnection):
    """A connection that checks the very address it connects to: a second lookup of the name cannot lead elsewhere."""

    allow_internal = False
    is_proxied = False  # if so, the request line has the full URL
    is_late = False
    raw: socket.socket | None = None  # the connection forgets its own when the answer has begun

    def connect(self) -> None:
        self._create_connection = self._connect
        super().connect()
        self.raw = self.sock

    def _connect(self, address: tuple[str, int], timeout: float, source: Any = None) -> socket.socket:
        failure: OSError | None = None
        for resolved in _check(*address, self.allow_internal):
            try:
                return socket.create_connection(resolved[:2], timeout, source)
            except OSError as error:
                failure = error
        raise failure or OSError("no address")


class _SecureConnection(_Connection, HTTPSConnection):
    """A checked connection over TLS; the certificate must match the host name."""


def _check(host: str, port: int, allow_internal: bool) -> list[Any]:
    """The addresses of a host; internal ones are an error unless allowed."""
    addresses = [info[4] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not allow_internal:
        for address in addresses:
            check_public(str(address[0]), f"http://{host}")
    return addresses


def check_public(address: str, location: str) -> None:
    """Refuse an address of this machine or of its network."""
    if not _is_public(address):
        raise HarmoniumError(
            f"{location}: {address} is an internal address, which data from elsewhere could abuse; if you mean it, add "
            "--allow-internal to train, complete or convert (in Python: load(..., allow_internal=True))"
        )


def _is_public(text: str) -> bool:
    """Whether an address is on the public internet; an IPv4 address inside an IPv6 one counts by itself."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in ipaddress.ip_network("64:ff9b::/96"):  # NAT64
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(str(inner))
    return address.is_global and not address.is_multicast


def _hang_up(connection: _Connection) -> None:
    """End a connection from another thread, so that its read returns."""
    connection.is_late = True
    sock = connection.raw or connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _read(response: HTTPResponse, url: str) -> bytes:
    if 300 <= response.status < 400:
        target = response.getheader("Location", "another address")
        raise HarmoniumError(f"{url}: redirects to {target}, which is not followed; give that address if you trust it")
    if response.status != 200:
        message = " ".join(response.read(2000).decode("utf-8", "replace").split())[:300]
        raise HarmoniumError(f"{url}: the endpoint answers {response.status} {response.reason}: {message}")
    blocks, size = [], 0
    while block := response.read1(BYTES_PER_READ):
        blocks.append(block)
        size += len(block)
        if size > MAX_ANSWER_BYTES:
            raise HarmoniumError(
                f"{url}: an answer of more than {MAX_ANSWER_BYTES >> 20:,} MiB; ask for less, or without a LIMIT for pages"
            )
    if response.length:  # read1 does not notice that the end is missing
        raise HTTPException(f"{response.length:,} bytes are missing")
    return b"".join(blocks)
