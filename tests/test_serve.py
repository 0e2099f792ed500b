"""The explorer's API: what it answers is what the library says, and it is careful with whom it talks to."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import torch

import harmonium
from harmonium.analysis.neighbours import neighbours
from harmonium.config import ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Slot, Vocabulary
from harmonium.run import Run
from harmonium.serve import guard, guarded_app, serve
from harmonium.serve.explorer import Explorer, Names, plain
from serving import Server, large_run, untrained
from small import family, make_graph

SCRIPT = "<script>alert(1)</script>"
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def run() -> Run:
    graph = family()
    names = [*graph.entities.ids[:-1], SCRIPT]
    graph = dataclasses.replace(graph, entities=Vocabulary([f"q{i}" for i in range(40)], names, "entity"))
    sets = ["model.entity_dim=16", "train.epochs=15", "train.learning_rate=0.05", "train.batch_size=32"]
    return harmonium.train(data=graph, sets=[*sets, "train.negatives=16"])


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[Server]:
    with Server(run) as made:
        yield made


# Answers -------------------------------------------------------------------------------------------------------------


def test_names_are_found_by_beginning_then_part_then_likeness() -> None:
    vocabulary = Vocabulary(["Zürich", "New York", "York", "Yorkshire", "Ayork", "Genoa"])
    names = Names(vocabulary, torch.tensor([9, 5, 1, 7, 99, 3]))
    assert [found.name for found in names.search("york", 4)] == ["York", "Yorkshire", "New York", "Ayork"]
    assert [found.name for found in names.search("ZURI", 1)] == ["Zürich"]
    assert names.search("Yrok", 2)[0].name in ("York", "Ayork")
    assert [found.facts for found in names.search("", 2)] == [99, 9]
    assert plain("  É t é ") == "e t e"


def test_facts_are_all_that_mention_an_entity(server: Server, run: Run) -> None:
    found = server.get("facts", entity="person 3", limit=50).json
    entity = run.graph.entities.index("person 3")
    expected = {
        (*names, split)
        for split in SPLITS
        for names, row in zip(
            run.graph.spell(run.graph.split(split)), run.graph.split(split).rows().tolist(), strict=True
        )
        if entity in (row[0], row[2])
    }
    assert {
        (f["head"]["name"], f["relation"]["name"], f["tail"]["name"], f["split"]) for f in found["facts"]
    } == expected
    assert found["total"] == len(expected) == len(found["facts"])
    second = server.get("facts", entity="q3", offset=1, limit=2).json
    assert second["facts"] == found["facts"][1:3]
    assert second["total"] == found["total"]


def test_answers_are_those_of_predict_by_any_open_slot(server: Server, run: Run) -> None:
    for given in ({"head": "q2", "relation": "next"}, {"relation": "twin", "tail": "q5"}, {"head": "q2", "tail": "q3"}):
        for new_only in (False, True):
            reply = server.get("answers", **given, limit=6, new_only=new_only).json
            expected = harmonium.predict(run, **given, top=6, new_only=new_only)
            assert [a[reply["open"]]["id"] for a in reply["answers"]] == [a.id for a in expected]
            assert [a["score"] for a in reply["answers"]] == pytest.approx([a.score for a in expected], rel=1e-5)
            assert [a["split"] for a in reply["answers"]] == [a.known for a in expected]


def test_predictions_are_new_typed_and_by_falling_probability(server: Server, run: Run) -> None:
    found = server.get("predictions", entity="q7", limit=100).json
    known, fillers = run.graph.answers(Slot.TAIL), {slot: run.graph.fillers(slot) for slot in (Slot.HEAD, Slot.TAIL)}
    assert found["facts"]
    assert found["asked"] <= found["questions"] <= 6
    for fact in found["facts"]:
        triple = run.graph.triple(fact["head"]["id"], fact["relation"]["id"], fact["tail"]["id"])
        assert "q7" in (fact["head"]["id"], fact["tail"]["id"])
        assert not known.contain(triple).item()
        slot = Slot(fact["open"])
        assert fillers[slot].contains(triple.relation, triple[slot]).item()
        assert fact["score"] == pytest.approx(run.model.snapshot().form(run.model.compose(triple)).item(), rel=1e-3)
        assert fact["probability"] is None or 0 <= fact["probability"] <= 1
    chances = [fact["probability"] or 0 for fact in found["facts"]]
    assert chances == sorted(chances, reverse=True)
    answers = server.get("answers", head="q7", relation="next", new_only=True, limit=40).json["answers"]
    triples = [run.graph.triple(*(answer[slot]["id"] for slot in ("head", "relation", "tail"))) for answer in answers]
    seen = [fillers[Slot.TAIL].contains(triple.relation, triple.tail).item() for triple in triples]
    best = answers[seen.index(True)]  # of those that the relation has been seen with
    (same,) = (
        fact for fact in found["facts"] if all(fact[slot] == best[slot] for slot in ("head", "relation", "tail"))
    )
    assert same["score"] == pytest.approx(best["score"], rel=1e-5)
    assert same["probability"] == pytest.approx(best["probability"], rel=1e-5)


def test_neighbours_are_those_of_the_library_at_the_trained_lambda(server: Server, run: Run) -> None:
    for slot in (Slot.HEAD, Slot.TAIL):
        triple = run.graph.triple("q4", "next", "q5")
        expected = neighbours(run.model, run.graph, triple, slot, 4).to_json()
        found = server.get("neighbours", head="q4", relation="next", tail="q5", slot=slot.value, limit=4).json
        assert found["rank"] == expected["rank"]
        for side in ("composed", "token"):
            assert [n["name"] for n in found[side]] == [n["name"] for n in expected[side]]
            assert [n["rank"] for n in found[side]] == [n["rank"] for n in expected[side]]
            assert [n["distance"] for n in found[side]] == pytest.approx(
                [n["distance"] for n in expected[side]], rel=1e-4
            )


def test_lambda_recomputes_tokens_with_the_same_w(server: Server, run: Run) -> None:
    fact, harmony = {"head": "q4", "relation": "next", "tail": "q5"}, run.model.harmony
    largest = torch.linalg.eigvalsh(harmony.matrix().detach().double())[-1].item()
    allowed = server.get("neighbours", **fact).json["faithfulness"]
    assert allowed["now"] == allowed["trained"] == harmony.faithfulness
    assert allowed["largest_eigenvalue"] == pytest.approx(largest, rel=1e-5)
    assert largest < allowed["lowest"] < 1.1 * largest
    guise = server.explorer.graph.triple("q4", "next", "q5")
    for faithfulness in (allowed["lowest"], 2.5, 40.0):
        found = server.get("neighbours", **fact, **{"lambda": faithfulness}).json
        assert found["faithfulness"]["now"] == pytest.approx(faithfulness)
        spread = torch.linalg.inv(torch.eye(harmony.dim) - harmony.matrix().detach() / faithfulness)
        composed = run.model.compose(guise).detach()
        for near in found["token"][:3]:
            other = run.model.compose(run.graph.triple(near["name"], "next", "q5")).detach()
            assert near["distance"] == pytest.approx(((other - composed) @ spread).norm().item(), rel=1e-3)
    still = server.get("neighbours", **fact, **{"lambda": "inf"}).json
    assert still["faithfulness"]["now"] is None
    assert [n["name"] for n in still["token"]] == [n["name"] for n in still["composed"]]
    assert [p["token"] for p in still["places"]] == [pytest.approx(p["composed"], abs=1e-3) for p in still["places"]]
    assert server.get("neighbours", **fact).json["faithfulness"]["now"] == harmony.faithfulness  # nothing stuck


@pytest.mark.parametrize("value", [0, -1, "nan", 1e-9, "-inf"])
def test_a_lambda_that_w_does_not_allow_is_refused(server: Server, value: Any) -> None:
    reply = server.get("neighbours", head="q4", relation="next", tail="q5", **{"lambda": value})
    assert reply.status == 400
    assert "largest eigenvalue of W" in reply.json["error"]


def test_a_plain_model_has_neither_tokens_nor_lambda() -> None:
    explorer = Explorer(untrained(make_graph(), ModelConfig("complex", 6, harmony=False)))
    found = explorer.surroundings("e1", "r0", "e2", Slot.HEAD, 3, False, None)
    assert (found.token, found.faithfulness) == ([], None)
    assert all(place.token is None for place in found.places)
    assert explorer.info["lambda"] is None
    with pytest.raises(HarmoniumError, match="no harmony"):
        explorer.surroundings("e1", "r0", "e2", Slot.HEAD, 3, False, 2.0)


def test_a_model_of_infinite_lambda_may_take_a_finite_one() -> None:
    with Server(untrained(make_graph(), ModelConfig("hole", 6, faithfulness=float("inf")))) as server:
        fact = {"head": "e1", "relation": "r0", "tail": "e2", "typed": False}
        still, moved = (server.get("neighbours", **fact, **other).json for other in ({}, {"lambda": 4}))
        assert server.get("info").json["lambda"]["trained"] is None
        assert [n["distance"] for n in still["token"]] == [n["distance"] for n in still["composed"]]
        assert [n["distance"] for n in moved["token"]] != [n["distance"] for n in still["token"]]


def test_the_map_shows_the_principal_axes(server: Server, run: Run) -> None:
    found = server.get("map").json
    assert len(found["points"]) == 40
    vectors = run.model.entities().detach().double()
    centred = vectors - vectors.mean(0)
    expected = torch.linalg.svd(centred).S[:2]
    for axis, size in zip(("x", "y"), expected.tolist(), strict=True):
        assert sum(p[axis] ** 2 for p in found["points"]) ** 0.5 == pytest.approx(size, rel=1e-2)
    assert found["share"] == pytest.approx((expected.square().sum() / centred.square().sum()).item(), rel=1e-2)
    facts = run.graph.facts()
    for point in found["points"]:
        index = run.graph.entities.index(point["id"])
        sides = {"head": facts.relation[facts.head == index], "tail": facts.relation[facts.tail == index]}
        times = {f"{name} ({side})": int((seen == r).sum()) for side, seen in sides.items()
                 for r, name in enumerate(run.graph.relations.ids)}  # fmt: skip
        assert times[found["roles"][point["role"]]] == max(times.values())
    assert server.get("map", limit=3, entity="q9").json["points"][-1]["id"] == "q9"


def test_an_explanation_is_that_of_the_library(server: Server, run: Run) -> None:
    found = server.get("explain", head="q4", relation="next", tail="q5").json
    assert found["triple"] == ["person 4", "next", "person 5"]
    triple = run.graph.triple("q4", "next", "q5")
    assert found["score"] == pytest.approx(run.model.snapshot().form(run.model.compose(triple)).item(), rel=1e-3)


def test_info_says_what_was_trained_and_not_where_it_lies(server: Server, run: Run, tmp_path: Any) -> None:
    found = server.get("info").json
    assert found["graph"]["entities"] == 40
    assert found["run"]["metrics"]["protocol"]["split"] == "test"
    saved = dataclasses.replace(run, path=tmp_path / "mine")
    assert Explorer(saved).info["name"] == "mine"
    assert str(tmp_path) not in json.dumps(Explorer(saved).info, default=vars)


def test_questions_leave_the_run_as_it_was(server: Server, run: Run) -> None:
    assert "snapshot" not in vars(run.model)
    assert run.model.harmony is not server.explorer.at(3.0).harmony
    assert all(parameter.requires_grad for parameter in run.model.parameters())


# Errors --------------------------------------------------------------------------------------------------------------


def test_a_wrong_name_gets_the_nearest_ones(server: Server) -> None:
    reply = server.get("facts", entity="persn 12")
    assert reply.status == 404
    assert reply.json["error"] == "no entity named 'persn 12' among 40"
    assert reply.json["unknown"] == "persn 12"
    assert {"id": "q12", "name": "person 12"} in reply.json["suggestions"]
    assert server.get("answers", head="q1", relation="nxt").json["suggestions"][0]["name"] == "next"


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("answers?head=q1", 400, "give exactly two"),
        ("answers?head=q1&relation=next&limit=0", 422, "limit"),
        ("facts", 422, "entity"),
        ("facts?entity=q1&offset=-1", 422, "offset"),
        ("neighbours?head=q1&relation=next&tail=q2&slot=relation", 422, "slot"),
        ("neighbours?head=q1&relation=next&tail=q2&lambda=big", 422, "lambda"),
        ("search?kind=other", 422, "kind"),
        ("nothing", 404, "openapi.json"),
        ("../../run.json", 404, "openapi.json"),
        ("%2e%2e/%2e%2e/etc/passwd", 404, "openapi.json"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(server: Server, path: str, status: int, message: str) -> None:
    reply = server.ask(f"/api/v1/{path}")
    assert reply.status == status
    assert message in reply.json["error"]
    assert set(reply.json) == {"error", "unknown", "suggestions"}


def test_every_operation_of_the_description_survives_odd_values(server: Server) -> None:
    """A small fuzzer: each parameter takes odd values in turn; nothing is a mistake of the server."""
    schema = server.ask("/api/v1/openapi.json").json
    odd = ["", "q1", SCRIPT, "\x00", "é" * 200, "-1", "1e400", "null", "99999999999999999999", "' OR 1=1", "[]", "true"]
    usual = {"head": "q1", "relation": "next", "tail": "q2", "entity": "q1"}
    assert len(schema["paths"]) == 8
    for path, methods in schema["paths"].items():
        documented = set(methods["get"]["responses"])
        for parameter in methods["get"].get("parameters", []):
            for value in odd:
                needed = {p["name"]: usual[p["name"]] for p in methods["get"]["parameters"] if p["required"]}
                reply = server.ask(f"{path}?{urlencode(needed | {parameter['name']: value})}")
                assert str(reply.status) in documented, (path, parameter["name"], value, reply)
                assert reply.headers["content-type"] == "application/json"


def test_the_longest_names_of_the_description_fit_into_a_question(server: Server) -> None:
    """Found by schemathesis: the limit of the whole was below the sum of its parts."""
    longest = "\U0001f600" * 500
    assert server.get("explain", head=longest, relation=longest, tail=longest).status == 404
    assert server.get("explain", head=longest + "x", relation=longest, tail=longest).status == 422


# Care ----------------------------------------------------------------------------------------------------------------


def test_the_page_and_its_files_are_served_and_nothing_else(server: Server) -> None:
    for path, kind in (("/", "text/html"), ("/explorer.css", "text/css"), ("/explorer.js", "text/javascript")):
        reply = server.ask(path)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith(kind)
    page = server.ask("/").body.decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    for path in ("/static/index.html", "/../pyproject.toml", "/%2e%2e/run.json", "//etc/passwd", "/docs", "/redoc"):
        assert server.ask(path).status == 404


def test_every_reply_carries_the_headers_that_keep_browsers_careful(server: Server) -> None:
    for reply in (server.ask("/"), server.get("facts"), server.ask("/", headers={"Host": "evil.example"})):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8000",
        "",
        "[::2]",
        "[::1]evil.example",
        "[::1]:1.evil.example",
        "127.0.0.1:evil.example",
        "localhost:",
        "::1",
        "user@localhost",
    ],
)
def test_another_host_name_is_refused(server: Server, host: str) -> None:
    assert server.ask("/api/v1/info", headers={"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
def test_names_of_this_machine_are_served(server: Server, host: str) -> None:
    assert server.ask("/api/v1/search", headers={"Host": host}).status == 200


def test_other_sites_may_not_ask_and_nobody_may_write(server: Server) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert server.ask("/api/v1/info", headers={"Sec-Fetch-Site": site}).status == status
    assert server.ask("/", headers={"Sec-Fetch-Site": "cross-site"}).status == 200
    assert server.ask("/api/v1/info", "POST").status == 405
    assert server.ask("/api/v1/info", "DELETE").headers["allow"] == "GET"
    assert server.ask("/api/v1/info", body=b"x" * 100).status == 413
    assert server.ask(f"/api/v1/search?q={'x' * 21_000}").status == 414
    assert server.ask(f"/api/v1/search?q={'x' * 300}").status == 422


def test_a_token_is_asked_for_by_the_api_alone(run: Run) -> None:
    with Server(run, token=TOKEN) as server:
        assert server.ask("/").status == 200
        for wrong in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": "é"},
        ):
            assert server.ask("/api/v1/info", headers=wrong).status == 401
            assert server.ask("/api/v1/openapi.json", headers=wrong).status == 401
        assert server.ask("/api/v1/info", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_a_token_is_compared_in_constant_time_and_told_to_nobody(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compared, compare = [], guard.hmac.compare_digest
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda *pair: compared.append(pair) or compare(*pair))
    monkeypatch.setattr(Explorer, "search", lambda *_: 1 / 0)
    with Server(run, token=TOKEN) as server:
        monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
        replies = [
            server.ask(path, headers={"Authorization": f"Bearer {given}"})
            for path in ("/api/v1/info", "/api/v1/search", "/api/v1/facts?entity=nobody", "/api/v1/nothing")
            for given in (TOKEN, TOKEN[:-1])
        ]
        assert server.ask(f"/api/v1/info?token={TOKEN}").status == 401  # addresses are kept in logs and histories
    assert [reply.status for reply in replies] == [200, 401, 500, 401, 404, 401, 404, 401]
    assert len(compared) == 9
    assert "ZeroDivisionError" in caplog.text
    for text in (caplog.text, *(f"{reply.headers}{reply.body}" for reply in replies)):
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
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in reply.headers
        assert "x-y" not in reply.headers
        assert set(reply.json) == {"error", "unknown", "suggestions"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_let_in_only_with_a_token(run: Run, host: str) -> None:
    with pytest.raises(HarmoniumError, match="give --token"):
        guarded_app(run, host)
    with pytest.raises(HarmoniumError, match="at least 16"):
        guarded_app(run, host, "short")


def test_an_address_that_is_taken_is_an_error(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HarmoniumError, match="choose another --port"):
        serve(run, port=taken.getsockname()[1])


def test_a_question_that_takes_too_long_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(run, seconds=0.2) as server:
        monkeypatch.setattr(Explorer, "search", lambda *_: time.sleep(0.6))
        start = time.perf_counter()
        reply = server.get("search")
        assert reply.status == 503
        assert time.perf_counter() - start < 0.5
        assert "longer than 0.2 s" in reply.json["error"]
        assert server.get("info").status == 200


def test_a_mistake_of_the_server_tells_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(run) as server:
        monkeypatch.setattr(Explorer, "search", lambda *_: 1 / 0)
        monkeypatch.setattr("logging.Logger._log", lambda *_, **__: None)
        reply = server.get("search")
        assert reply.status == 500
        assert "division" not in reply.body.decode()


def test_it_serves_from_a_shell_until_interrupted(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    command = [sys.executable, "-W", "error", "-m", "harmonium", "serve", str(folder), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as process:
        try:
            address = process.stdout.readline().split()[1]
            assert address.startswith("http://127.0.0.1:")
            with urlopen(f"{address}api/v1/info", timeout=20) as reply:
                assert json.load(reply)["name"] == "run"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in out + err


# Speed ---------------------------------------------------------------------------------------------------------------


def p95(ask: Callable[[int], Any], count: int) -> float:
    """Seconds of this thread's work, which do not count when others have the processor."""
    times = []
    for turn in range(count):
        start = time.thread_time()
        ask(turn)
        times.append(time.thread_time() - start)
    return statistics.quantiles(times, n=20)[-1]


def test_a_run_of_15000_entities_answers_quickly_in_one_thread() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        explorer = Explorer(large_run())
        names, fact = explorer.graph.entities.ids, explorer.graph.spell(explorer.graph.train[:1])[0]
        explorer.graph.answers(Slot.TAIL), explorer.facts_of, explorer.relations
        explorer.predictions(names[0], 5)
        assert p95(lambda i: explorer.search(f"nroth hill {i}", "entity", 8), 20) < 0.2
        assert p95(lambda i: explorer.search(names[17 * i][:6], "entity", 8), 20) < 0.2
        assert p95(lambda i: explorer.predictions(names[31 * i], 20), 8) < 1
        assert p95(lambda i: explorer.surroundings(*fact, Slot.HEAD, 8, True, 1.5 + i / 10), 8) < 0.5
    finally:
        torch.set_num_threads(threads)
