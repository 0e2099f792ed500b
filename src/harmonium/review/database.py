"""The SQLite file of a review: created, opened and checked; a foreign or damaged file is an error that says so.

The file is in WAL mode with synchronous=FULL: what was committed survives a kill of the process and of the machine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import is_file, is_folder, is_neither, not_regular

APPLICATION = 0x486D5276  # "HmRv": tells a file of reviews from the databases of other programs
VERSION = 1  # of the tables
BUSY_SECONDS = 10.0  # to wait for another process that writes
COMPANIONS = ("-journal", "-wal", "-shm")  # suffixes of the files that SQLite keeps beside a database
OLDEST_SQLITE = (3, 37, 0)  # strict tables
TABLE_COLUMNS = {
    "reviewer": """CREATE TABLE reviewer (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    token_sha256 BLOB,
    added TEXT NOT NULL
) STRICT""",
    "fact": """CREATE TABLE fact (
    id INTEGER PRIMARY KEY,
    head TEXT NOT NULL,
    relation TEXT NOT NULL,
    tail TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (head, relation, tail)
) STRICT""",
    "judgement": """CREATE TABLE judgement (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    fact INTEGER NOT NULL REFERENCES fact (id),
    reviewer INTEGER NOT NULL REFERENCES reviewer (id),
    verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'unsure')),
    comment TEXT NOT NULL,
    probability REAL CHECK (probability BETWEEN 0 AND 1),
    uncorrected REAL CHECK (uncorrected BETWEEN 0 AND 1),
    rank INTEGER CHECK (rank > 0),
    queue_order TEXT NOT NULL,
    run TEXT NOT NULL,
    time TEXT NOT NULL,
    replaces INTEGER REFERENCES judgement (id),
    withdrawn TEXT
) STRICT""",
    "one_per_reviewer": "CREATE UNIQUE INDEX one_per_reviewer ON judgement (fact, reviewer) WHERE withdrawn IS NULL",
    "claim": """CREATE TABLE claim (
    reviewer INTEGER PRIMARY KEY REFERENCES reviewer (id),
    fact INTEGER NOT NULL REFERENCES fact (id),
    until REAL NOT NULL
) STRICT""",
}


class Busy(HarmoniumError):
    """Another process writes to the file; try again."""


def connect(path: Path, create: bool) -> sqlite3.Connection:
    """Open a file of reviews to read and write; `create` it where there is none."""
    _check_path(path)
    if not is_file(path) and not create:
        raise HarmoniumError(f"{path}: no such file of judgements; `harmonium review RUN` makes one")
    if not is_folder(path.parent):
        raise HarmoniumError(f"{path}: cannot be written; is {path.parent} a folder?")
    with explained(path):
        connection = _open(path, "rwc" if create else "rw")
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            if create and _is_empty(connection):
                _initialise(connection)
            _check(connection, path)
            _use_wal(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a file of reviews to read; it is never changed, and may be in a folder that cannot be written."""
    _check_path(path)
    if not is_file(path):
        raise HarmoniumError(f"{path}: no such file of judgements; `harmonium review RUN` makes one")
    log = path.with_name(f"{path.name}-wal")
    modes = ["ro"] if is_file(log) and log.stat().st_size else ["ro", "ro&immutable=1"]
    with explained(path):
        for mode in modes:
            connection = _open(path, mode)
            try:
                _check(connection, path)
                return connection
            except sqlite3.OperationalError:  # a folder in which WAL cannot keep its index
                connection.close()
                if mode == modes[-1]:
                    raise
            except BaseException:
                connection.close()
                raise
    raise AssertionError("the last mode opens or raises")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """All or nothing, and committed to the disk at the end; other processes wait for their turn."""
    with explained(path), _all_or_nothing(connection):
        yield connection


@contextlib.contextmanager
def _all_or_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has ended it by itself where the disk is full
            connection.execute("ROLLBACK")
        raise


def _check_path(path: Path) -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise HarmoniumError(f"judgements need SQLite 3.37 or later; this Python has {sqlite3.sqlite_version}")
    if is_folder(path) or is_neither(path):
        raise not_regular(path)
    if "\0" in str(path):
        raise HarmoniumError(f"{path}: no file has such a name")
    file = _real(path)
    for beside in (file.with_name(file.name + suffix) for suffix in COMPANIONS):
        if is_folder(beside) or is_neither(beside):  # SQLite would wait for a pipe
            raise not_regular(beside)


def _real(path: Path) -> Path:
    """The file that links lead to; unlike `Path.resolve`, a link to itself is no error."""
    return Path(os.path.realpath(path))


def _open(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{_real(path).as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing has been written yet: a new file, or one whose creation was interrupted."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not tables and _numbers(connection) == (0, 0)


def _numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    """The application and the version that wrote the file."""
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    return application, version


def _initialise(connection: sqlite3.Connection) -> None:
    """Make all tables in one transaction, unless another process has just done so."""
    with _all_or_nothing(connection):
        if _is_empty(connection):
            for statement in TABLE_COLUMNS.values():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers and a writer at the same time; the change of mode itself does not wait for others."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str, str, str | None]]:
    """Type, name, table and definition of everything in a database, SQLite's own tables and indexes included."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@functools.cache
def _expected_schema() -> set[tuple[str, str, str, str | None]]:
    """That of a new file."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _initialise(connection)
        return _schema(connection)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """An error unless the file is ours, of this version, with exactly our tables, and whole."""
    application, version = _numbers(connection)
    if application != APPLICATION:
        raise HarmoniumError(f"{path}: a database, but not one of judgements; it is left as it is. Choose another file")
    if version != VERSION:
        raise HarmoniumError(
            f"{path}: has version {version} of the tables, this harmonium reads {VERSION}; use the harmonium that wrote it"
        )
    if _schema(connection) != _expected_schema():
        raise HarmoniumError(
            f"{path}: has other tables than harmonium makes; it is left as it is. Restore a copy of it"
        )
    problems = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    problems += [f"a row of {row[0]} names what is not there" for row in connection.execute("PRAGMA foreign_key_check")]
    if problems:
        raise damaged(path, problems[0])


def damaged(path: Path, problem: object) -> HarmoniumError:
    return HarmoniumError(
        f"{path}: damaged, or no file of judgements ({problem}); it is left as it is. Restore a copy, or save what can "
        f"be read with `sqlite3 {path} .recover`"
    )


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite as those of a user."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            message = f"{path}: another process has been writing for {BUSY_SECONDS:g} s ({error}); try again"
            raise Busy(message) from error
        if "decode" in str(error):
            raise damaged(path, "a text that is no UTF-8") from error
        raise HarmoniumError(
            f"{path}: cannot be used ({error}); may it be written, and is there space left?"
        ) from error
    except sqlite3.IntegrityError:
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter from a message of SQLite about damage
        raise damaged(path, error) from error
