"""Damage to files, and faults of the system at the n-th operation on a file.

ATTACK=n in the environment multiplies the number of attacks of each test in this folder.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harmonium.errors import HarmoniumError
from harmonium.runtime import storage

SCALE = int(os.environ.get("ATTACK", "1"))
SECONDS = 60  # after which an attempt counts as hanging

# Contents -------------------------------------------------------------------------------------------------------------


def damaged_contents(content: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Contents that differ: a flipped bit in each of `count` regions, cuts, additions, blocks of zeros and repetitions."""
    rng, size = random.Random(seed), len(content)
    for region in range(min(count, size)):
        position = rng.randrange(region * size // count, max(region * size // count + 1, (region + 1) * size // count))
        bit = rng.randrange(8)
        flipped = content[position] ^ 1 << bit
        yield f"bit {bit} of byte {position}", content[:position] + bytes([flipped]) + content[position + 1 :]
        cut = rng.randrange(size)
        yield f"cut to {cut} bytes", content[:cut]
        start, end = sorted((rng.randrange(size), rng.randrange(size)))
        if any(content[start:end]):
            yield f"zeros from {start} to {end}", content[:start] + bytes(end - start) + content[end:]
        yield f"bytes {start} to {end + 1} twice", content[: end + 1] + content[start:]
    yield "empty", b""
    yield "a line break more", content + b"\n"
    yield "as much again", content * 2 or b"\0"


def replace_by_directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def replace_by_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


def replace_by_huge_file(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # takes no space


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "a folder": replace_by_directory,
    "a pipe": lambda path: os.mkfifo(path),
    "a socket": replace_by_socket,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "an empty device": lambda path: path.symlink_to("/dev/null"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte of zeros": replace_by_huge_file,
}


def replace_file(path: Path, replacement: str) -> None:
    path.unlink()
    REPLACEMENTS[replacement](path)


WRONG_VALUES: list[Any] = [
    None, True, "", "x", "\ud800", -1, 0, 2**40, 2**70, 1.5, -1e300, math.nan, math.inf, [], [[]], {}, {"x": {}},
]  # fmt: skip


def wrong_leaves(value: Any, count: int, seed: int) -> Iterator[tuple[str, Any]]:
    """JSON values in which one leaf or branch is replaced by one of another type or size, is missing, or is too many."""
    paths = list(_paths(value))
    cases = [(path, number) for path in paths for number in range(len(WRONG_VALUES) + 2)]
    for path, number in random.Random(seed).sample(cases, min(count, len(cases))):
        changed = copy.deepcopy(value)
        if not path:
            yield "all", WRONG_VALUES[number % len(WRONG_VALUES)]
            continue
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        if number < len(WRONG_VALUES):
            parent[path[-1]] = WRONG_VALUES[number]
        elif number == len(WRONG_VALUES):
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent["unknown"] = parent[path[-1]]
        else:
            parent.append(parent[path[-1]])
        yield f"{'.'.join(map(str, path))}: {number}", changed


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def seal(folder: Path, file: str) -> None:
    """Make the manifest name a changed file, so that the checks behind its checksum are reached."""
    manifest = json.loads((folder / "run.json").read_bytes())
    manifest.pop("sha256")
    content = (folder / file).read_bytes()
    manifest["files"][file] = asdict(storage.FileRecord(len(content), storage.digest(content)))
    (folder / "run.json").write_bytes(storage.manifest_bytes(manifest))


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


# Attempts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """A HarmoniumError, which is always an acceptable answer to damage."""

    message: str


def attempt(action: Callable[[], Any], attack: str) -> Any:
    """The result of an action, or Refused; any other error, and not ending, fails the test and names the attack."""

    def hang(*_: object) -> None:
        raise AssertionError(f"{attack}: no answer after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        return action()
    except HarmoniumError as error:
        assert str(error).strip(), attack
        return Refused(str(error))
    except Exception as error:
        raise AssertionError(f"{attack}: {type(error).__name__}: {error}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Faults at the n-th operation on a file -------------------------------------------------------------------------------

OPERATIONS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.truncate"}
FAULTS = ("kill", "disk full", "error")


@dataclass(frozen=True)
class Ending:
    """How a job ended in a process of its own."""

    killed: bool
    message: str | None  # of a HarmoniumError
    operations: int  # on files that change something


def run_with_fault(job: Callable[[], object], fault: str | None, at: int, scratch: Path) -> Ending:
    """Run a job in a process of its own, with a fault at its n-th operation that changes a file.

    kill: the process dies. disk full: from then on nothing can be written. error: this operation fails (EIO).
    Any error but a HarmoniumError is raised again here.
    """
    report = scratch / "report.json"
    report.unlink(missing_ok=True)
    sys.stdout.flush()
    if (process := os.fork()) == 0:
        result: dict[str, Any] = {}
        counter = FaultCounter(fault, at)
        try:
            counter.install()
            signal.alarm(SECONDS)
            job()
        except HarmoniumError as error:
            result["message"] = str(error)
        except BaseException:
            result["traceback"] = traceback.format_exc()
        finally:
            counter.stop()
            report.write_text(json.dumps(result | {"operations": counter.count}))
            os._exit(0)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, f"{fault} at {at}: ended by signal {os.WTERMSIG(status)}"
        return Ending(True, None, 0)
    result = json.loads(report.read_text())
    assert "traceback" not in result, f"{fault} at {at}: {result['traceback']}"
    return Ending(False, result.get("message"), result["operations"])


class FaultCounter:
    """Counts what this process does to files, and makes one operation fail."""

    def __init__(self, fault: str | None, at: int) -> None:
        self.fault, self.at, self.count, self.active = fault, at, 0, True
        self.fsync, self.limit = os.fsync, resource.getrlimit(resource.RLIMIT_FSIZE)

    def install(self) -> None:
        os.fsync = self._sync
        sys.addaudithook(self._audit)

    def stop(self) -> None:
        self.active = False
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limit)

    def _sync(self, handle: int) -> None:
        self._count()
        self.fsync(handle)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS or event == "ctypes.dlsym" or (event == "open" and self._writes(arguments)):
            self._count()

    @staticmethod
    def _writes(arguments: tuple[Any, ...]) -> bool:
        path, _, flags = arguments
        is_device = isinstance(path, str) and path.startswith(("/dev/", "/proc/"))
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and not is_device

    def _count(self) -> None:
        if not self.active:
            return
        self.count += 1
        if self.count != self.at:
            return
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "disk full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self.limit[1]))
        elif self.fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def moments(total: int, count: int, seed: int) -> list[int]:
    """`count` of the operations 1, 2, ... `total`, one in each of as many equal parts; all of them if they are fewer."""
    if count >= total:
        return list(range(1, total + 1))
    rng = random.Random(seed)
    return [rng.randrange(i * total // count, (i + 1) * total // count) + 1 for i in range(count)]


def leftovers(folder: Path) -> list[str]:
    """Temporary files and folders beside and inside a run folder."""
    entries = [*folder.parent.iterdir(), *folder.rglob("*")]
    return [entry.name for entry in entries if entry.name.endswith((".draft", ".aside")) or entry.name == "checkpoints"]


def with_faults(
    job: Callable[[Path], object],
    prepare: Callable[[Path], object],
    check: Callable[[Path, Ending, str], None],
    tmp_path: Path,
    fault: str,
    count: int,
) -> None:
    """Do a job with a fault at each of `count` moments, and check the folder afterwards."""

    def once(fault: str | None, at: int) -> tuple[Path, Ending]:
        shutil.rmtree(tmp_path / "place", ignore_errors=True)
        folder = tmp_path / "place" / "run"
        folder.parent.mkdir()
        prepare(folder)
        return folder, run_with_fault(lambda: job(folder), fault, at, tmp_path)

    torch.set_num_threads(1)
    total = once(None, 0)[1].operations
    assert total > 3
    for at in moments(total, count, seed=total):
        folder, ending = once(fault, at)
        check(folder, ending, f"{fault} at {at} of {total}")
