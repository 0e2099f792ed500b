"""A function in another process: its messages come back, and each way to die is a clear error."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harmonium.errors import HarmoniumError
from harmonium.runtime.limited_process import Limits, stream

LIMITS = Limits(memory=1 << 28, seconds=2, output=1 << 20, idle=2)


# What the other process does -----------------------------------------------------------------------------------------


def echo(words: list[str]) -> Iterator[list[bytes]]:
    print("printed by a library")
    for word in words:
        yield [word.encode(), b"", word.encode() * 2]


def die(way: str) -> Iterator[list[bytes]]:
    yield [b"first"]
    if way == "memory":
        kept = [bytearray(1 << 24) for _ in range(100)]
        yield [bytes(kept[0][:1])]
    elif way == "time":
        while True:
            pass
    elif way == "output":
        while True:
            yield [b"x" * 1000]
    elif way == "crash":
        ctypes.string_at(0)
    elif way == "abort":
        os.abort()
    elif way == "deadlock":
        time.sleep(1000)
    elif way == "error":
        raise HarmoniumError("facts.nt:7: not N-Triples")
    elif way == "exit":
        os._exit(0)
    elif way == "exception":
        raise KeyError("a defect")
    elif way == "file":
        Path(os.environ["LARGE_FILE"]).write_bytes(b"x" * (2 << 20))


# -----------------------------------------------------------------------------------------------------------------------


def call(function: str, **arguments: object) -> Iterator[list[bytes]]:
    return stream(f"{Path(__file__).stem}:{function}", arguments, LIMITS, "facts.nt")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_messages_come_back_in_order() -> None:
    assert [*call("echo", words=["a", "é", ""])] == [
        [b"a", b"", b"aa"],
        ["é".encode(), b"", "éé".encode()],
        [b"", b"", b""],
    ]


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("memory", "facts.nt: reading it takes more than 256 MB of memory"),
        ("time", "facts.nt: reading it takes more than 2 s"),
        ("output", "facts.nt: holds more than 1 MB"),
        ("crash", r"facts.nt: its reader crashed \(SIGSEGV\)"),
        ("abort", r"facts.nt: its reader crashed \(SIGABRT\)"),
        ("deadlock", "facts.nt: no answer for 2 s"),
        ("error", "^facts.nt:7: not N-Triples$"),
        ("exit", r"facts.nt: its reader failed \("),
        ("exception", r"facts.nt: its reader failed \(KeyError: 'a defect'\)"),
        ("file", "facts.nt: its reader "),
    ],
)
def test_each_death_is_a_clear_error(way: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LARGE_FILE", str(tmp_path / "large"))
    messages = call("die", way=way)
    assert next(messages) == [b"first"]
    with pytest.raises(HarmoniumError, match=message):
        list(messages)


def test_a_process_that_is_no_longer_needed_ends() -> None:
    messages = call("die", way="deadlock")
    next(messages)
    (process,) = children()
    messages.close()  # type: ignore[attr-defined]  # a generator
    with pytest.raises(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(process) for process in text.split()]
