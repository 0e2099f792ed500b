"""The store of a review: nothing acknowledged is lost, reviewers do not disturb each other, foreign files are refused."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harmonium.errors import HarmoniumError
from harmonium.review import database
from harmonium.review.store import (
    CLAIM_SECONDS,
    ReviewStore,
    Shown,
    load_judgements,
    reviewer_of,
    token_hash,
)

JUDGE_FOREVER = """
import sys
from harmonium.review.store import ReviewStore, Shown

path, name = sys.argv[1:]
with ReviewStore.open(path) as store:
    store.add_reviewer(name)
    for number in range(10**9):
        fact = Shown((f"{name} {number}", "r", "t"), "text", 0.5, 0.5, 1, "use", "run")
        store.claim(name, [fact])
        store.judge(name, fact, "accepted", "a comment")
        if number % 5 == 4:
            store.undo(name)
            store.judge(name, fact, "rejected", "")
        print(number, flush=True)
"""


def shown(name: str, rank: int = 1) -> Shown:
    return Shown((name, "r", "t"), f"{name} · r · t", 0.7, 0.6, rank, "use", "a run")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "judged.sqlite"


@pytest.fixture
def store(path: Path):
    with ReviewStore.open(path) as opened:
        for name in ("ana", "ben"):
            opened.add_reviewer(name)
        yield opened


# Kept ----------------------------------------------------------------------------------------------------------------


def test_a_judgement_is_kept_with_its_provenance(store: ReviewStore, path: Path) -> None:
    kept = store.judge("ana", shown("a", 7), "accepted", "  two\n lines\t\x1b[1m ")
    assert load_judgements(path) == store.judgements() == [kept]
    assert (kept.fact, kept.reviewer, kept.verdict, kept.comment) == (
        ("a", "r", "t"),
        "ana",
        "accepted",
        "two lines [1m",
    )
    assert (kept.probability, kept.uncorrected, kept.rank, kept.order, kept.run) == (0.7, 0.6, 7, "use", "a run")
    assert kept.time.endswith("+00:00")


def test_both_judgements_of_two_reviewers_are_kept_and_one_of_the_same_replaces_the_earlier(store: ReviewStore) -> None:
    store.judge("ana", shown("a"), "accepted")
    store.judge("ben", shown("a"), "rejected")
    store.judge("ana", shown("a"), "unsure")
    assert [(each.reviewer, each.verdict) for each in store.judgements()] == [("ben", "rejected"), ("ana", "unsure")]


def test_undo_takes_back_one_judgement_after_the_other_of_that_reviewer_alone(store: ReviewStore) -> None:
    for reviewer, name, verdict in (("ana", "a", "accepted"), ("ben", "b", "accepted"), ("ana", "a", "rejected")):
        store.judge(reviewer, shown(name), verdict)
    assert store.undo("ana").verdict == "rejected"
    assert [(each.reviewer, each.verdict) for each in store.judgements()] == [("ana", "accepted"), ("ben", "accepted")]
    assert store.undo("ana").verdict == "accepted"
    assert store.undo("ana") is None
    assert [each.reviewer for each in store.judgements()] == ["ben"]
    (rows,) = store.connection.execute("SELECT count(*) FROM judgement").fetchone()
    assert rows == 3  # nothing is deleted


def test_names_verdicts_and_comments_are_checked(store: ReviewStore) -> None:
    assert store.add_reviewer(" Zoë\n Müller ") == store.add_reviewer("Zoe\u0308 Müller") == "Zoë Müller"
    for wrong in ("", " \n", "x" * 81, "\u2028"):
        with pytest.raises(HarmoniumError, match="a reviewer needs a name"):
            store.add_reviewer(wrong)
    with pytest.raises(HarmoniumError, match="accepted, rejected, unsure, not 'maybe'"):
        store.judge("ana", shown("a"), "maybe")  # type: ignore[arg-type]
    with pytest.raises(HarmoniumError, match="at most 2,000 characters"):
        store.judge("ana", shown("a"), "accepted", "x" * 2001)
    with pytest.raises(HarmoniumError, match="no reviewer 'eve'"):
        store.judge("eve", shown("a"), "accepted")
    with pytest.raises(HarmoniumError, match="no Unicode text"):
        store.judge("ana", shown("\ud800"), "accepted")
    assert store.judgements() == []


def test_tokens_are_kept_as_checksums_and_belong_to_one_reviewer(store: ReviewStore, path: Path) -> None:
    store.set_token("ana", "the token of ana")
    store.set_token("ben", "the token of ben")
    reviewers = store.reviewers()
    assert reviewer_of("the token of ana", reviewers) == "ana"
    assert reviewer_of("the token of ben", reviewers) == "ben"
    for wrong in ("", "the token of an", "the token of ana ", "\ud800", token_hash("the token of ana").hex()):
        assert reviewer_of(wrong, reviewers) is None
    store.set_token("ana", "another token")
    assert reviewer_of("the token of ana", store.reviewers()) is None
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"the token" not in path.read_bytes()


# Two at once ---------------------------------------------------------------------------------------------------------


def test_a_fact_is_offered_to_one_reviewer_at_a_time(store: ReviewStore) -> None:
    queue = [shown(name) for name in "abc"]
    assert store.claim("ana", queue) == store.claim("ana", queue) == queue[0]
    assert store.claim("ben", queue) == queue[1]
    assert store.claim("ben", queue[:1]) is None
    store.judge("ana", queue[0], "accepted")
    assert store.claim("ben", queue[:1]) is None  # decided
    store.claim("ana", queue[2:])
    assert store.claim("ben", queue[2:]) is None
    assert store.claim("ben", queue[2:], now=time.time() + CLAIM_SECONDS + 1) == queue[2]  # ana has gone
    store.release("ben")
    assert store.claim("ana", queue[2:]) == queue[2]


# Killed --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_by_kills(path: Path) -> None:
    """A process judges in a loop and is killed at 20 random moments, creation of the file included."""
    chance, acknowledged = random.Random(0), set()
    for round in range(20):
        name = f"reviewer {round}"
        command = [sys.executable, "-c", JUDGE_FOREVER, path, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            if round >= 5:  # the first ones are killed by the clock, from before the file is there
                process.stdout.readline()
                acknowledged.add(f"{name} 0")
            time.sleep(chance.random() * (0.3 if round < 5 else 0.1))
            os.kill(process.pid, signal.SIGKILL)
            lines = process.stdout.read().splitlines()  # unlike `communicate`, with what `readline` has read ahead
        acknowledged |= {f"{name} {line}" for line in lines if line.isdecimal()}
        with ReviewStore.open(path) as store:  # which checks that it is whole
            kept = {each.head: each.verdict for each in store.judgements()}
            assert acknowledged <= kept.keys()
            assert len(kept) <= len(acknowledged) + round + 1  # at most one more of each process
    for head in acknowledged:
        number = int(head.rpartition(" ")[2])
        assert kept[head] == ("rejected" if number % 5 == 4 else "accepted")
    assert len(acknowledged) > 20


def test_a_full_disk_is_an_error_and_what_was_kept_stays(store: ReviewStore, path: Path) -> None:
    store.judge("ana", shown("a"), "accepted")
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(HarmoniumError, match="full.*is there space left"):
        for i in range(200):
            store.judge("ana", shown(f"fact {i}"), "accepted", "x" * 2000)
    kept = store.judgements()
    store.connection.execute("PRAGMA max_page_count = 100000")
    store.judge("ana", shown("b"), "accepted")  # it goes on when there is space again
    assert load_judgements(path)[:-1] == kept and kept[0].head == "a"


# Foreign and damaged files -------------------------------------------------------------------------------------------


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.commit()
    connection.close()


def change(path: Path, *statements: str) -> None:
    ReviewStore.open(path).close()
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def change_judgement(path: Path, assignment: str) -> None:
    """Write what the constraints of the table forbid."""
    with ReviewStore.open(path) as store:
        store.add_reviewer("ana")
        store.judge("ana", shown("a"), "accepted")
    change(path, "PRAGMA ignore_check_constraints = ON", f"UPDATE judgement SET {assignment}")


def corrupt(path: Path) -> None:
    with ReviewStore.open(path) as store:
        store.add_reviewer("ana")
        for i in range(200):
            store.judge("ana", shown(f"fact {i}"), "accepted", "x" * 100)
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096 - 1):
        content[4096 * page : 4096 * page + 200] = os.urandom(200)
    path.write_bytes(content)


DAMAGES = {
    "text": (lambda path: path.write_text("head\trelation\ttail\n" * 100), "no file of judgements"),
    "another database": (foreign_database, "not one of judgements"),
    "a newer version": (lambda path: change(path, f"PRAGMA user_version = {database.VERSION + 1}"), "version 2"),
    "a trigger": (
        lambda path: change(path, "CREATE TRIGGER t AFTER INSERT ON claim BEGIN DELETE FROM judgement; END"),
        "other tables",
    ),
    "a trigger with a name like SQLite's own": (
        lambda path: change(path, "CREATE TRIGGER sqlitex AFTER INSERT ON claim BEGIN DELETE FROM judgement; END"),
        "other tables",
    ),
    "a view": (lambda path: change(path, "CREATE VIEW sqlitey AS SELECT 1"), "other tables"),
    "a column more": (lambda path: change(path, "ALTER TABLE fact ADD COLUMN note TEXT"), "other tables"),
    "a missing table": (lambda path: change(path, "DROP TABLE claim"), "other tables"),
    "a dangling row": (
        lambda path: change(path, "INSERT INTO claim (reviewer, fact, until) VALUES (1, 2, 3)"),
        "what is not there",
    ),
    "a verdict of another kind": (lambda path: change_judgement(path, "verdict = 'maybe'"), "damaged"),
    "a probability beyond 1": (lambda path: change_judgement(path, "probability = 7"), "damaged"),
    "an infinite probability": (lambda path: change_judgement(path, "uncorrected = 9e999"), "damaged"),
    "a rank below 1": (lambda path: change_judgement(path, "rank = -1"), "damaged"),
    "damaged pages": (corrupt, "damaged"),
    "a folder": (lambda path: path.mkdir(), "is a folder"),
    "a pipe": (lambda path: os.mkfifo(path), "is a pipe"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_foreign_or_damaged_file_is_an_error_and_left_as_it_is(path: Path, kind: str) -> None:
    make, message = DAMAGES[kind]
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(HarmoniumError, match=message):
        ReviewStore.open(path)
    with pytest.raises(HarmoniumError, match=message):
        load_judgements(path)
    assert not path.is_file() or path.read_bytes() == before
