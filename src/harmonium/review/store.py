"""Judgements of facts by named reviewers: who, what, when, and what was shown.

Nothing is ever deleted: a judgement that is undone or replaced by a later one of the same reviewer is marked withdrawn.
Facts are kept by identifier, so that the judgements of one run hold for other runs on the same graph.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal, get_args

from harmonium.errors import HarmoniumError
from harmonium.review.database import connect, connect_read_only, explained, transaction
from harmonium.runtime import schema

Verdict = Literal["accepted", "rejected", "unsure"]
FactIds = tuple[str, str, str]  # identifiers of head, relation and tail
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SUSPECT = "suspect"  # in place of the order of the queue, for known facts that may be wrong
BY_HAND = "by hand"  # in place of the order of the queue, for facts that a person entered
CLAIM_SECONDS = 900.0  # for which a fact is one reviewer's to judge
LONGEST_NAME, LONGEST_COMMENT = 80, 2000  # characters
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True)
class Judgement:
    """What a reviewer said of a fact, and what was shown."""

    id: int
    head: str
    relation: str
    tail: str
    verdict: Verdict
    reviewer: str
    time: str  # ISO 8601, UTC
    comment: str
    probability: schema.Share | None  # as shown
    uncorrected: schema.Share | None  # the same without what was learned from judgements before
    rank: schema.Count | None  # in the queue; None for a fact that was not in it
    order: str  # of the queue, or BY_HAND
    run: str  # checksum of graph and model
    text: str  # the names of head, relation and tail

    @property
    def fact(self) -> FactIds:
        return self.head, self.relation, self.tail

    @property
    def quoted_comment(self) -> str:
        return f"({self.comment})" if self.comment else ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Shown:
    """What a reviewer saw of a fact."""

    fact: FactIds
    text: str
    probability: float | None
    uncorrected: float | None
    rank: int | None
    order: str
    run: str


class ReviewStore:
    """A file of judgements. Threads may share it; processes open it each for themselves."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection, self.lock = path, connection, RLock()
        self.file = path.stat()

    @classmethod
    def open(cls, path: str | Path, create: bool = True) -> ReviewStore:
        """Open a file, or make one where there is none."""
        return cls(Path(path), connect(Path(path), create))

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction; an error if the file is no longer there: SQLite would write to it and nobody would find it."""
        with self.lock, transaction(self.connection, self.path) as connection:
            yield connection
            if not self._is_there():
                raise HarmoniumError(
                    f"{self.path}: moved, removed or replaced since it was opened, so nothing was kept; put it back, or "
                    f"start again"
                )

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self.file, self.path.stat())
        except OSError:
            return False

    def __enter__(self) -> ReviewStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reviewers -------------------------------------------------------------------------------------------------------

    def add_reviewer(self, name: str) -> str:
        """The name as it is kept; the reviewer is added unless known."""
        name = clean_reviewer(name)
        with self._write() as connection:
            connection.execute("INSERT OR IGNORE INTO reviewer (name, added) VALUES (?, ?)", (name, _now()))
        return name

    def set_token(self, name: str, token: str) -> str:
        """Give a reviewer a token in place of an earlier one; only its checksum is kept. Returns the name as it is kept."""
        name = self.add_reviewer(name)
        with self._write() as connection:
            connection.execute("UPDATE reviewer SET token_sha256 = ? WHERE name = ?", (token_hash(token), name))
        return name

    def reviewers(self) -> dict[str, bytes | None]:
        """Name -> sha256 of the token, if the reviewer has one."""
        with self.lock, explained(self.path):
            return dict(self.connection.execute("SELECT name, token_sha256 FROM reviewer ORDER BY id"))

    # Judgements ------------------------------------------------------------------------------------------------------

    def judge(self, reviewer: str, shown: Shown, verdict: Verdict, comment: str = "") -> Judgement:
        """Keep a judgement, which is on the disk on return; an earlier one of the same reviewer is withdrawn."""
        if verdict not in VERDICTS:
            raise HarmoniumError(f"a verdict is one of {', '.join(VERDICTS)}, not '{verdict}'")
        comment, now = clean_comment(comment), _now()
        with self._write() as connection:
            number, fact = self._reviewer(connection, reviewer), self._fact(connection, shown)
            live = "SELECT id FROM judgement WHERE fact = ? AND reviewer = ? AND withdrawn IS NULL"
            earlier = connection.execute(live, (fact, number)).fetchone()
            if earlier is not None:
                connection.execute("UPDATE judgement SET withdrawn = ? WHERE id = ?", (now, earlier[0]))
            connection.execute("DELETE FROM claim WHERE reviewer = ? AND fact = ?", (number, fact))
            inserted = connection.execute(
                "INSERT INTO judgement (fact, reviewer, verdict, comment, probability, uncorrected, rank, queue_order, run, "
                "time, replaces) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (fact, number, verdict, comment, shown.probability, shown.uncorrected, shown.rank, shown.order, shown.run,
                 now, None if earlier is None else earlier[0]),
            )  # fmt: skip
            (judgement,) = _select(connection, "judgement.id = ?", (inserted.lastrowid,))
        return judgement

    def undo(self, reviewer: str) -> Judgement | None:
        """Withdraw the last judgement of a reviewer, so that the one it replaced holds again; None if there is none."""
        with self._write() as connection:
            number = self._reviewer(connection, reviewer)
            mine = _select(connection, "reviewer.id = ? AND withdrawn IS NULL", (number,))
            if not mine:
                return None
            last = mine[-1]
            connection.execute("UPDATE judgement SET withdrawn = ? WHERE id = ?", (_now(), last.id))
            replaced = "SELECT replaces FROM judgement WHERE id = ?"
            connection.execute(f"UPDATE judgement SET withdrawn = NULL WHERE id = ({replaced})", (last.id,))
        return last

    def judgements(self) -> list[Judgement]:
        """Those that hold, in the order of time."""
        with self.lock, explained(self.path):
            return _select(self.connection, "withdrawn IS NULL", ())

    # Claims ----------------------------------------------------------------------------------------------------------

    def claim(self, reviewer: str, candidates: Iterable[Shown], now: float | None = None) -> Shown | None:
        """The first candidate that nobody has accepted or rejected and no other reviewer is judging: it becomes this one's.

        A reviewer has one claim at a time, which ends after `CLAIM_SECONDS`. A claim of the far future, as a clock that was
        put back leaves it, has ended too; one of the near future is that of a process that got its turn earlier.
        """
        now = time.time() if now is None else now
        with self._write() as connection:
            number = self._reviewer(connection, reviewer)
            decided = "SELECT fact FROM judgement WHERE withdrawn IS NULL AND verdict != 'unsure'"
            claimed = "SELECT fact FROM claim WHERE reviewer != ? AND until > ? AND until <= ?"
            taken = set(
                connection.execute(
                    f"SELECT head, relation, tail FROM fact WHERE id IN ({decided}) OR id IN ({claimed})",
                    (number, now, now + 2 * CLAIM_SECONDS),
                )
            )
            chosen = next((candidate for candidate in candidates if candidate.fact not in taken), None)
            connection.execute("DELETE FROM claim WHERE reviewer = ?", (number,))
            if chosen is not None:
                claim = number, self._fact(connection, chosen), now + CLAIM_SECONDS
                connection.execute("INSERT INTO claim (reviewer, fact, until) VALUES (?, ?, ?)", claim)
        return chosen

    def release(self, reviewer: str) -> None:
        """End the claim of a reviewer who stops."""
        with self._write() as connection:
            connection.execute("DELETE FROM claim WHERE reviewer = ?", (self._reviewer(connection, reviewer),))

    def _reviewer(self, connection: sqlite3.Connection, name: str) -> int:
        row = connection.execute("SELECT id FROM reviewer WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise HarmoniumError(f"{self.path}: no reviewer '{name}'; name them with --reviewer")
        return int(row[0])

    def _fact(self, connection: sqlite3.Connection, shown: Shown) -> int:
        """The number of a fact, which is added unless known."""
        try:
            connection.execute(
                "INSERT OR IGNORE INTO fact (head, relation, tail, text) VALUES (?, ?, ?, ?)", (*shown.fact, shown.text)
            )
        except UnicodeEncodeError as error:
            raise HarmoniumError(f"a name of {shown.fact!r} is no Unicode text, which judgements need") from error
        select = "SELECT id FROM fact WHERE head = ? AND relation = ? AND tail = ?"
        return int(connection.execute(select, shown.fact).fetchone()[0])


def load_judgements(path: str | Path) -> list[Judgement]:
    """The judgements of a file that hold, in the order of time; the file is only read."""
    path = Path(path)
    with closing(connect_read_only(path)) as connection, explained(path):
        return _select(connection, "withdrawn IS NULL", ())


def _select(connection: sqlite3.Connection, condition: str, values: Sequence[Any]) -> list[Judgement]:
    columns = (
        "judgement.id, head, relation, tail, verdict, reviewer.name, time, comment, probability, uncorrected, rank, "
        "queue_order, run, text"
    )
    tables = "judgement JOIN fact ON fact.id = judgement.fact JOIN reviewer ON reviewer.id = judgement.reviewer"
    query = f"SELECT {columns} FROM {tables} WHERE {condition} ORDER BY judgement.id"
    names = [field.name for field in fields(Judgement)]
    return [_judgement(dict(zip(names, row, strict=True))) for row in connection.execute(query, values)]


def _judgement(values: dict[str, Any]) -> Judgement:
    """A row of the file, whose values are checked: a connection that only reads does not check constraints."""
    try:
        return schema.read(Judgement, values)
    except ValueError as error:
        raise sqlite3.DatabaseError(f"judgement {values['id']}: {error}") from error


# Text ----------------------------------------------------------------------------------------------------------------


def clean_reviewer(name: str) -> str:
    """A name on one line; an error if nothing is left of it."""
    cleaned = unicodedata.normalize("NFC", " ".join(CONTROL.sub(" ", name).split()))
    if not cleaned or len(cleaned) > LONGEST_NAME:
        raise HarmoniumError(f"a reviewer needs a name of 1 to {LONGEST_NAME} characters, not '{name[:100]}'")
    return cleaned


def clean_comment(text: str) -> str:
    """A comment on one line, so that it fits into any table."""
    cleaned = " ".join(CONTROL.sub(" ", text).split())
    if len(cleaned) > LONGEST_COMMENT:
        raise HarmoniumError(f"a comment has at most {LONGEST_COMMENT:,} characters, not {len(cleaned):,}")
    return cleaned


def token_hash(token: str) -> bytes:
    """What is kept of a token. It is random and long, so that a plain checksum cannot be reversed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def reviewer_of(token: str, reviewers: dict[str, bytes | None]) -> str | None:
    """Whose token it is; compared with all of them in constant time."""
    given, owner = token_hash(token), None
    for name, kept in reviewers.items():
        if kept is not None and hmac.compare_digest(given, kept):
            owner = name
    return owner


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
