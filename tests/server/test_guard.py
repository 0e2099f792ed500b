"""What the server refuses, and what it never says."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import harmonium
from harmonium.errors import HarmoniumError
from harmonium.server import guard
from harmonium.server.explorer import Explorer
from harmonium.server.server import guarded_app
from serving import Server

pytestmark = pytest.mark.network
SCRIPT = "<script>alert(1)</script>"
TOKEN = "a-token-of-some-length"
PROBLEM = {"error", "unknown", "suggestions"}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("answers?head=q1", 400, "give exactly two"),
        ("answers?head=q1&relation=next&limit=0", 422, "limit"),
        ("facts", 400, "give an entity, a relation, or both"),
        ("predictions", 422, "entity"),
        ("facts?entity=q1&offset=-1", 422, "offset"),
        ("neighbours?head=q1&relation=next&tail=q2&slot=relation", 422, "slot"),
        ("neighbours?head=q1&relation=next&tail=q2&lambda=big", 422, "lambda"),
        ("search?kind=other", 422, "kind"),
        ("nothing", 404, "openapi.json"),
        ("../../run.json", 404, "openapi.json"),
        ("%2e%2e/%2e%2e/etc/passwd", 404, "openapi.json"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(server: Server, path: str, status: int, message: str) -> None:
    reply = server.ask(f"/api/v1/{path}")
    assert (reply.status, message in reply.json["error"], set(reply.json)) == (status, True, PROBLEM)


def test_the_page_and_its_files_are_served_and_nothing_else(server: Server) -> None:
    for path, kind in (("/", "text/html"), ("/explorer.css", "text/css"), ("/explorer.js", "text/javascript")):
        reply = server.ask(path)
        assert (reply.status, reply.headers["content-type"].startswith(kind)) == (200, True)
    page = server.ask("/").body.decode().replace("http://www.w3.org", "")
    assert "http://" not in page and "https://" not in page
    for path in ("/static/index.html", "/../pyproject.toml", "/%2e%2e/run.json", "//etc/passwd", "/docs", "/redoc"):
        assert server.ask(path).status == 404


def test_every_reply_has_security_headers(server: Server) -> None:
    for reply in (server.ask("/"), server.get("facts"), server.ask("/", headers={"Host": "evil.example"})):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in reply.headers


HOSTS = {
    421: [
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "", "[::2]", "[::1]evil.example",
        "[::1]:1.evil.example", "127.0.0.1:evil.example", "localhost:", "::1", "user@localhost",
    ],
    200: ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"],
}  # fmt: skip


@pytest.mark.parametrize(("host", "status"), [(host, status) for status, hosts in HOSTS.items() for host in hosts])
def test_only_names_of_this_machine_are_served(server: Server, host: str, status: int) -> None:
    assert server.ask("/api/v1/search", headers={"Host": host}).status == status


def test_other_sites_may_not_ask_and_nobody_may_write(server: Server) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert server.ask("/api/v1/info", headers={"Sec-Fetch-Site": site}).status == status
    assert server.ask("/", headers={"Sec-Fetch-Site": "cross-site"}).status == 200
    assert server.ask("/api/v1/info", "POST").status == 405
    assert server.ask("/api/v1/info", "DELETE").headers["allow"] == "GET"
    assert server.ask("/api/v1/info", body=b"x" * 100).status == 413
    assert server.ask(f"/api/v1/search?q={'x' * 61_000}").status == 414
    assert server.ask(f"/api/v1/search?q={'x' * 300}").status == 422


def test_an_ambiguous_header_is_refused(server: Server) -> None:
    """Of two tokens or origins a proxy may have checked one, and the server the other."""
    for name in ("Authorization", "Origin", "Sec-Fetch-Site"):
        request = f"GET /api/v1/info HTTP/1.1\r\nHost: localhost\r\n{name}: none\r\n{name}: none\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(request.encode())
            assert client.recv(200).startswith(b"HTTP/1.1 400 ")


def test_the_api_requires_the_token_compared_in_constant_time_and_never_told(
    run: harmonium.Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compared, compare = [], guard.hmac.compare_digest
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda *pair: compared.append(pair) or compare(*pair))
    monkeypatch.setattr(Explorer, "search", lambda *_: 1 / 0)
    paths = ("info", "openapi.json", "search", "facts?entity=nobody", "nothing")
    values = ("é", TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", *(f"Bearer {t}" for t in ("no", TOKEN[:-1], TOKEN + "x")))
    wrong = [{"Authorization": value} for value in values]
    with Server(run, token=TOKEN) as server:
        monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
        assert server.ask("/").status == 200
        right = [server.ask(f"/api/v1/{path}", headers={"Authorization": f"Bearer {TOKEN}"}) for path in paths]
        refused = [server.ask(f"/api/v1/{path}", headers=headers) for path in paths for headers in ({}, *wrong)]
        refused.append(server.ask(f"/api/v1/info?token={TOKEN}"))  # addresses are kept in logs and histories
    assert [reply.status for reply in right] == [200, 200, 500, 404, 404]
    assert {reply.status for reply in refused} == {401}
    assert len(compared) == len(right) + len(refused)
    assert "ZeroDivisionError" in caplog.text
    assert b"division" not in right[2].body
    for text in (caplog.text, *(f"{reply.headers}{reply.body}" for reply in (*right, *refused))):
        assert TOKEN[:-1] not in text


@pytest.mark.parametrize("name", [SCRIPT, "x\r\nSet-Cookie: a=b", "\x00", "\u202e", "%0d%0aX-Y: z", "{}" * 200])
def test_what_was_asked_comes_back_as_json_and_never_in_a_header(server: Server, name: str) -> None:
    for reply in (
        server.get("facts", entity=f"no {name}"),
        server.get("answers", head=f"no {name}", relation="next"),
        server.get("search", kind=name),
        server.get("neighbours", head="q4", relation="next", tail="q5", **{"lambda": name}),
        server.ask(f"/{urlencode({'': name})}"),
        server.ask(f"/api/v1/{urlencode({'': name})}", "POST"),
    ):
        assert reply.status in (404, 405, 422)
        assert reply.headers["content-type"] == "application/json"
        assert not {"set-cookie", "x-y"} & reply.headers.keys()
        assert set(reply.json) == PROBLEM


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_let_in_only_with_a_token(run: harmonium.Run, host: str) -> None:
    with pytest.raises(HarmoniumError, match="--token"):
        guarded_app(run, host)
    with pytest.raises(HarmoniumError, match="at least 16"):
        guarded_app(run, host, "short")


def test_an_address_that_is_taken_is_an_error(run: harmonium.Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HarmoniumError, match="--port"):
        harmonium.serve(run, port=taken.getsockname()[1])


@pytest.mark.slow
def test_it_serves_from_a_shell_until_interrupted(run: harmonium.Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    command = [sys.executable, "-W", "error", "-m", "harmonium", "serve", str(folder), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as process:
        try:
            address = process.stdout.readline().split()[1]
            assert address.startswith("http://127.0.0.1:")
            with urlopen(f"{address}api/v1/info", timeout=60) as reply:
                assert json.load(reply)["name"] == "run"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, "Traceback" in out + err) == (130, False)
