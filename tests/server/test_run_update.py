"""The reviewed run updated over HTTP: what changes, where it is written, one at a time, and what a failure leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import harmonium
from harmonium.errors import HarmoniumError
from harmonium.review.judgements import default_path
from harmonium.review.store import load_judgements
from harmonium.server import run_update
from serving import ReviewServer
from small import fitted_run, make_graph

pytestmark = pytest.mark.network
NEW = {"head": "Zoe", "relation": "knows", "tail": "e1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fitted_run(make_graph(n_entities=30, sizes=(150, 40, 10)), tmp_path / "demo")
    return tmp_path / "demo"


@pytest.fixture
def review(folder: Path) -> Iterator[ReviewServer]:
    with ReviewServer(harmonium.Run.load(folder), None) as server:
        yield server


def fact_of(judged: dict[str, Any]) -> tuple[str, str, str]:
    return judged["head"], judged["relation"], judged["tail"]


def wait(server: ReviewServer) -> dict[str, Any]:
    """The state of the update once it has ended."""
    end = time.monotonic() + 60
    while (state := server.read("update"))["state"] == "running":
        assert time.monotonic() < end
        time.sleep(0.05)
    return dict(state)


def update(server: ReviewServer, reviewer: str = "ana") -> dict[str, Any]:
    assert server.post("update", {}, reviewer).status == 200
    return wait(server)


def facts(run: harmonium.Run) -> set[tuple[str, str, str]]:
    return set(run.graph.names_of(run.graph.facts()))


def test_judgements_and_facts_by_hand_make_a_new_run_which_is_then_served(review: ReviewServer, folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    accepted = review.offer()
    review.judge(accepted, "accepted")
    rejected = review.offer()
    review.judge(rejected, "rejected")
    review.judge(review.offer(), "unsure")
    known = harmonium.Run.load(folder).graph.names_of(harmonium.Run.load(folder).graph.train)[7]
    by_hand = dict(zip(("head", "relation", "tail"), known, strict=True))
    assert review.post("fact", {**by_hand, "change": "remove"}, "ben").json["order"] == "by hand"
    assert review.post("fact", {**NEW, "change": "add", "allow_new": True}, "ben").json["probability"] is None
    state = review.read("state")
    assert (state["run"], state["to_add"], state["to_remove"], state["to_record"]) == ("demo", 2, 1, 1)
    done = update(review, "ben")
    assert (done["state"], done["reviewer"], done["run"]) == ("done", "ben", "demo.update-1")
    assert done["change"] == "2 added, 1 removed, 1 recorded as false, 1 new entity, 1 new relation"
    updated = harmonium.Run.load(folder.with_name("demo.update-1"))
    assert {fact_of(accepted), fact_of(NEW)} <= facts(updated) and known not in facts(updated)
    assert set(updated.graph.names_of(updated.rejected)) == {fact_of(rejected), known}
    record = updated.updates[-1].record
    assert record.command.startswith("harmonium update ") and record.command.endswith("# by ben, in the explorer")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before  # untouched
    assert review.get("runs").json[0]["name"] == "demo"  # until somebody opens it
    opened = review.post("open", {}).json
    assert (opened["run"], opened["to_add"] + opened["to_remove"] + opened["to_record"]) == ("demo.update-1", 0)
    assert review.get("runs").json[0]["name"] == "demo.update-1"
    assert review.get("facts", entity="Zoe").json["total"] == 1
    assert review.post("open", {}).status == 400
    assert review.post("update", {}).status == 400  # nothing is left to do
    assert len(load_judgements(review.path)) == 5 and review.read("update")["state"] == "none"


def proposed(server: ReviewServer, head: str, relation: str, tail: str) -> set[tuple[str, str, str]]:
    """The predicted facts in all lists of the explorer in which a fact would be."""
    replies = [
        server.get("predictions", entity=head, limit=200).json["facts"],
        server.get("missing", relation=relation, limit=50).json["facts"],
        server.get("answers", head=head, relation=relation, limit=200).json["answers"],
        server.get("answers", tail=tail, relation=relation, limit=200, typed=False).json["answers"],
        server.get("compare", first=head, second=tail).json["predicted"],
    ]
    return {
        (each["head"]["id"], each["relation"]["id"], each["tail"]["id"])
        for listed in replies
        for each in listed
        if each["split"] is None
    }


def test_a_rejected_fact_never_comes_back(review: ReviewServer, folder: Path) -> None:
    """In the queue, in any list of the explorer, in `predict` and `complete`, after one update and after two."""
    for _ in range(3):
        review.judge(review.offer(), "rejected")
    rejected = [fact_of(each.to_json()) for each in load_judgements(review.path)]
    asked = set()
    for number in (1, 2):
        assert update(review)["state"] == "done"
        review.post("open", {})
        run = harmonium.Run.load(folder.with_name(f"demo.update-{number}"))
        assert set(rejected) <= set(run.graph.names_of(run.rejected))
        lists = [{(each.head, each.relation, each.tail) for each in run.complete(top=2000)}]
        lists.append({shown.fact for shown in review.app.app.state.review.review.queue.shown})
        for head, relation, tail in rejected:
            for typed in (True, False):
                assert tail not in [a.name for a in run.predict(head, relation, top=30, typed=typed)]
                assert head not in [a.name for a in run.predict(None, relation, tail, top=30, typed=typed)]
            lists.append(proposed(review, head, relation, tail))
        assert lists[0] and not set.union(*lists) & set(rejected)
        offer = review.offer()
        assert fact_of(offer) not in rejected and fact_of(offer) not in asked
        asked.add(fact_of(offer))
        review.judge(offer, "accepted")
    assert default_path(folder.with_name("demo.update-2")) == default_path(folder) == review.path.resolve()


def test_one_update_at_a_time_and_judging_goes_on_meanwhile(
    review: ReviewServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, began = threading.Event(), threading.Event()
    original = run_update.apply_judgements

    def slow(*arguments: Any, **options: Any) -> harmonium.Run:
        began.set()
        assert release.wait(30)
        return original(*arguments, **options)

    monkeypatch.setattr(run_update, "apply_judgements", slow)
    review.judge(review.offer(), "accepted")
    assert review.post("update", {}).json["state"] == "running"
    assert began.wait(10)
    again = review.post("update", {}, "ben").json
    assert (again["state"], again["reviewer"]) == ("running", "ana")
    assert review.post("open", {}, "ben").status == 400
    assert review.judge(review.offer("ben"), "accepted", "ben").status == 200
    release.set()
    assert wait(review)["state"] == "done"
    assert [path.name for path in sorted(folder.parent.glob("demo*")) if path.is_dir()] == ["demo", "demo.update-1"]


def test_a_failed_update_leaves_run_and_judgements_and_can_be_repeated(
    review: ReviewServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> harmonium.Run:
        raise HarmoniumError(f"{folder.parent}/demo.update-1: cannot be written (No space left on device)")

    def broken(*_: Any, **__: Any) -> harmonium.Run:
        raise RuntimeError("secret")

    review.judge(review.offer(), "accepted")
    original = run_update.apply_judgements
    for failing, message in ((full, "demo.update-1: cannot be written (No space"), (broken, "internal error")):
        monkeypatch.setattr(run_update, "apply_judgements", failing)
        state = update(review)
        assert state["state"] == "failed" and state["error"].startswith(message)
        assert str(folder.parent) not in state["error"] and "secret" not in state["error"]
        assert review.post("open", {}).status == 400 and review.read("state")["to_add"] == 1
    monkeypatch.setattr(run_update, "apply_judgements", original)
    assert update(review)["state"] == "done"


# Facts by hand -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({**NEW, "change": "add"}, 400, "no entity named 'Zoe'"),
        ({**NEW, "change": "remove", "allow_new": True}, 400, "no entity named 'Zoe'"),
        ({"head": " \u200b", "relation": "r0", "tail": "e1", "change": "add", "allow_new": True}, 400, "needs a name"),
        ({"head": "n/a", "relation": "r0", "tail": "e1", "change": "add", "allow_new": True}, 400, "needs a name"),
        ({"head": "x" * 501, "relation": "r0", "tail": "e1", "change": "add", "allow_new": True}, 400, "needs a name"),
        ({**NEW, "change": "replace"}, 422, "change"),
        ({**NEW}, 422, "change"),
        ({**NEW, "change": "add", "verdict": "accepted"}, 422, "verdict"),
    ],
)
def test_a_wrong_fact_by_hand_is_refused(review: ReviewServer, body: Any, status: int, message: str) -> None:
    reply = review.post("fact", body)
    assert reply.status == status and message in reply.json["error"]
    assert load_judgements(review.path) == []
