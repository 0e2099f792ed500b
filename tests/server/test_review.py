"""Judging over HTTP: who may, what is refused (each kind of forged request), and two reviewers at once."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import harmonium
from harmonium.review.store import load_judgements
from harmonium.server import guard
from serving import ReviewServer, Server
from small import fitted, make_graph, make_run

pytestmark = pytest.mark.network
SCRIPT = "<script>alert(1)</script>"
PATHS = {
    "state": "GET", "judgements": "GET", "next": "POST", "judge": "POST", "undo": "POST", "fact": "POST",
    "update": "POST", "open": "POST",
}  # fmt: skip


@pytest.fixture(scope="module")
def predicted() -> harmonium.Run:
    """A run with many predictions."""
    graph = make_graph(n_entities=30, sizes=(150, 40, 10))
    return make_run(graph, fitted(graph, graph.train))


@pytest.fixture
def review(predicted: harmonium.Run, tmp_path: Path) -> Iterator[ReviewServer]:
    with ReviewServer(predicted, tmp_path / "judged.sqlite") as server:
        yield server


# What it does --------------------------------------------------------------------------------------------------------


def test_a_fact_is_offered_judged_and_undone(review: ReviewServer) -> None:
    offered = review.post("next", {}).json
    assert offered["rank"] == 1 and offered["left"] == 40 and offered["earlier"] == []
    assert 0 < offered["fact"]["probability"] < 1 and offered["fact"]["reason"]
    fact = review.offer()
    kept = review.judge(fact, "accepted", comment=f"{SCRIPT}\n ok").json
    assert (kept["reviewer"], kept["verdict"], kept["comment"]) == ("ana", "accepted", f"{SCRIPT} ok")
    assert kept["probability"] == offered["fact"]["probability"] and kept["rank"] == 1
    assert load_judgements(review.path)[0].to_json() == kept
    state = review.read("state")
    assert (state["reviewer"], state["summary"]["accepted"], state["recent"][0]["id"]) == ("ana", 1, kept["id"])
    assert review.read("judgements", "ben") == [kept]
    assert review.offer() != fact
    assert review.post("undo", {}, "ben").status == 400
    assert review.post("undo", {}).json["id"] == kept["id"]
    assert review.post("next", {"first": fact}).json["fact"]["head"]["id"] == fact["head"]
    assert load_judgements(review.path) == []


def test_both_judgements_are_kept_and_disagreement_is_shown_until_it_ends(review: ReviewServer) -> None:
    fact = review.offer()
    review.judge(fact, "accepted", "ana")
    review.judge(fact, "rejected", "ben", comment="no")
    (disputed,) = review.read("state")["summary"]["disputed"]
    assert [(each["reviewer"], each["verdict"]) for each in disputed] == [("ana", "accepted"), ("ben", "rejected")]
    assert review.offer("ana") != fact != review.offer("ben")
    review.judge(fact, "rejected", "ana")
    assert review.read("state")["summary"]["disputed"] == []


def test_the_reviewer_is_whose_token_it_is(review: ReviewServer) -> None:
    """Nobody can judge in the name of another, whatever the request says."""
    fact = review.offer()
    for more in ({"reviewer": "ana"}, {"probability": 1.0}, {"time": "2020-01-01"}):
        assert review.post("judge", {**fact, "verdict": "accepted", **more}, "ben").status == 422
    assert review.ask(
        "/api/v1/review/judge?reviewer=ana", "POST",
        {"Authorization": f"Bearer {review.app.issued['ben']}", "Content-Type": "application/json"},
        json.dumps({**fact, "verdict": "accepted"}),
    ).json["reviewer"] == "ben"  # fmt: skip
    assert [each.reviewer for each in load_judgements(review.path)] == ["ben"]
    assert review.post("undo", {}, "ana").status == 400  # of another's judgement


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"head": "e1", "relation": "r0", "tail": "e2", "verdict": "maybe"}, 422),
        ({"head": "e1", "relation": "r0", "verdict": "accepted"}, 422),
        ({"head": 1, "relation": "r0", "tail": "e2", "verdict": "accepted"}, 422),
        ({"head": "nobody", "relation": "r0", "tail": "e2", "verdict": "accepted"}, 400),
        ({"head": "e1", "relation": "r0", "tail": "e2", "verdict": "accepted", "comment": "x" * 3000}, 400),
        ({"head": "e1", "relation": "r0", "tail": "e2", "verdict": "accepted", "comment": "x" * 5000}, 422),
        ({"head": SCRIPT, "relation": "r0", "tail": "e2", "verdict": "accepted"}, 400),
        (["accepted"], 422),
        ("accepted", 422),
        (None, 422),
    ],
)
def test_a_wrong_judgement_is_refused_and_nothing_is_kept(review: ReviewServer, body: Any, status: int) -> None:
    reply = review.post("judge", body)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
    assert set(reply.json) == {"error", "unknown", "suggestions"}
    assert load_judgements(review.path) == []


# What is refused -----------------------------------------------------------------------------------------------------


def test_without_a_review_there_is_nothing_to_change(server: Server) -> None:
    for name, method in PATHS.items():
        reply = server.ask(f"/api/v1/review/{name}", method)
        assert reply.status == 404
        with_body = server.ask(f"/api/v1/review/{name}", "POST", {"Content-Type": "application/json"}, "{}")
        assert with_body.status == 413
    assert "/review/" not in server.ask("/api/v1/openapi.json").body.decode()
    assert server.get("runs").json[0]["is_reviewed"] is False


TOKENS = ["", "x" * 32, "Bearer", "null", "é", "' OR 1=1 --", "\x00"]


@pytest.mark.parametrize("name", PATHS)
def test_every_part_of_a_review_needs_a_reviewers_token(review: ReviewServer, name: str) -> None:
    ana = review.app.issued["ana"]
    for token in [*TOKENS, ana[:-1], ana + "x", ana.swapcase(), ana.encode().hex()]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}".replace("\x00", "")}
        reply = review.ask(f"/api/v1/review/{name}", PATHS[name], headers, "{}" if PATHS[name] == "POST" else None)
        assert reply.status == 401
        assert ana[:-1] not in f"{reply.headers}{reply.body!r}"
    assert (
        review.ask(f"/api/v1/review/{name}?token={ana}", PATHS[name], {"Content-Type": "application/json"}).status
        == 401
    )


FORGED = {  # a page of another site sends the token that it does not have, and what browsers add
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "another port": {"Sec-Fetch-Site": "same-site"},
    "an address that was typed": {"Sec-Fetch-Site": "none"},
    "another origin": {"Origin": "http://evil.example"},
    "another port by origin": {"Origin": "http://127.0.0.1:1"},
    "no origin at all": {"Origin": "null"},
    "an origin that begins alike": {"Origin": "http://127.0.0.1.evil.example"},
    "another scheme": {"Origin": "https://127.0.0.1:PORT"},
    "an origin with user": {"Origin": "http://127.0.0.1@evil.example"},
    "a file": {"Origin": "file://"},
    "no address": {"Origin": "http://["},
    "no address in brackets": {"Origin": "http://[zz]"},
    "a form": {"Content-Type": "application/x-www-form-urlencoded"},
    "a form with files": {"Content-Type": "multipart/form-data; boundary=x"},
    "text, as forms can send JSON": {"Content-Type": "text/plain"},
    "no content type": {"Content-Type": ""},
    "another host": {"Host": "evil.example"},
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_requests_are_refused_even_with_a_token(review: ReviewServer, kind: str) -> None:
    fact = review.offer()
    headers = {name: value.replace("PORT", str(review.port)) for name, value in FORGED[kind].items()}
    reply = review.post("judge", {**fact, "verdict": "accepted"}, **headers)
    assert reply.status in (403, 415, 421)
    assert load_judgements(review.path) == []
    assert "access-control-allow-origin" not in reply.headers and "set-cookie" not in reply.headers


def test_bodies_are_limited_in_size(review: ReviewServer) -> None:
    assert review.post("judge", {"comment": "x" * guard.MAX_BODY}).status == 413
    token = f"Authorization: Bearer {review.app.issued['ana']}\r\n"
    head = f"POST /api/v1/review/judge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{token}"
    for rest, status in (
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n{}   \r\n0\r\n\r\n", 413),
        (f"Content-Length: {guard.MAX_BODY + 1}\r\n\r\n", 413),
        ("Content-Length: -1\r\n\r\n{", 400),
    ):
        with socket.create_connection(("127.0.0.1", review.port), timeout=20) as connection:
            connection.sendall((head + rest).encode())
            assert f" {status} ".encode() in connection.recv(200)
    assert review.post("judge", {}).status == 422  # the server goes on


# Tokens --------------------------------------------------------------------------------------------------------------
