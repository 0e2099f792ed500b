"""A run folder on disk: reserved before training, locked during it, replaced atomically at the end."""

import contextlib
import ctypes
import errno
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from harmonium.errors import HarmoniumError
from harmonium.runtime import storage
from harmonium.runtime.storage import DRAFT, sync
from harmonium.runtime.untrusted import is_file

UNFINISHED = "checkpoints"  # the subfolder of a run folder that holds an unfinished training (run/checkpoint.py)
CHECKPOINT_FILE = re.compile(r"(lock|reserve|data\.graph|training\.json|\d{6,}(\.json|\.safetensors)?)(\.draft)?")
DERIVED = (  # files that commands add to a finished run; they may be missing from run.json if a process was killed
    "calibration.json", "fact_calibration.json", "conformal.json",
    "judgement_correction.json", "report.html", "guises.png",
)  # fmt: skip
ASIDE = ".aside"  # suffix of a folder that is being replaced where the system cannot exchange two in one step
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2
logger = logging.getLogger("harmonium")


def reserve(path: str | Path, overwrite: bool = False) -> Path:
    """Check, before any work is done, that a run can be written to this folder; create its parents."""
    path = Path(path)
    refuse_current_folder(path)
    remove_leftovers(path)
    try:
        if path.exists():
            _check_replaceable(path, overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarmoniumError(f"{path.parent}: cannot be created ({error.strerror}); choose another --out") from error
    if not os.access(_real(path).parent, os.W_OK):
        raise HarmoniumError(f"{path.parent} cannot be written to; choose another --out")
    return path


def refuse_current_folder(path: Path) -> None:
    """Refuse the current folder as a run folder: replacing it would leave the user's shell in a deleted folder."""
    with contextlib.suppress(OSError):  # the current folder is gone
        if Path.cwd().is_relative_to(_real(path)):
            raise HarmoniumError(
                f"{path}: this is the current folder, and a run replaces its folder as a whole; choose another --out, "
                "or leave this folder first"
            )


def _check_replaceable(path: Path, overwrite: bool) -> None:
    content = {entry.name for entry in path.iterdir()} if path.is_dir() else {"a file"}
    check_checkpoints(path / UNFINISHED)
    if not overwrite and is_unfinished(path):
        with locked(path):
            raise HarmoniumError(
                f"{path} holds a training that has not finished: `harmonium resume {path}` continues it, "
                "--overwrite starts again"
            )
    if not overwrite and content and content != {UNFINISHED}:
        raise HarmoniumError(f"{path} exists; choose another --out, or replace it with --overwrite")
    if content and not content & {"run.json", UNFINISHED}:
        raise HarmoniumError(f"{path} is not a run folder, so it will not be replaced; choose another --out")
    ours = {UNFINISHED, *storage.manifest_files(path / "run.json")}
    if len(ours) > 1:  # it is a run
        ours |= {"run.json", *DERIVED, *(f"{name}.draft" for name in DERIVED)}
    for name in sorted(content - ours):
        raise HarmoniumError(
            f"{path / name}: not written by harmonium, or damaged, so {path} will not be replaced; "
            "move it away, or choose another --out"
        )


def check_checkpoints(folder: Path) -> None:
    """Refuse a folder of checkpoints with files that training did not write. Its lock is always its first file."""
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    for name in sorted(names):
        if not CHECKPOINT_FILE.fullmatch(name) or "lock" not in names:
            raise HarmoniumError(
                f"{folder / name}: not written by harmonium, so it will not be removed; move it away, "
                "or choose another folder"
            )


def is_finished(path: Path) -> bool:
    """Whether a folder holds a finished run; first restores one that a killed process had put aside."""
    remove_leftovers(path)
    return is_file(path / "run.json")


def is_unfinished(path: Path) -> bool:
    """Whether a run folder holds a training that can be resumed."""
    return is_file(path / UNFINISHED / "training.json")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a run folder; an error names the process that holds it. Locks of dead processes are released."""
    lock = path / UNFINISHED / "lock"
    if lock.exists() and not lock.is_file():
        raise HarmoniumError(f"{lock}: not an ordinary file; remove it")
    with open(lock, "ab+", buffering=0) as file:
        try:
            _lock(file.fileno())
        except BlockingIOError:
            file.seek(0)
            owner = file.read(20).decode("ascii", "replace").strip()
            owner = owner if owner.isdecimal() else "unknown"
            raise HarmoniumError(
                f"{path} is being trained by another process ({owner}); wait for it, or stop it with `kill {owner}`"
            ) from None
        except OSError as error:
            logger.warning("%s cannot be locked (%s): let no other process train into it", path, error.strerror)
        if not lock.exists() or not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            raise HarmoniumError(f"{path} was finished by another process just now")
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder itself; BlockingIOError if another process holds it or has just replaced the folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(handle)
        if not os.path.samestat(os.fstat(handle), folder.stat()):
            raise BlockingIOError(errno.EAGAIN, f"{folder} was replaced")
        yield
    finally:
        os.close(handle)


def identity(folder: Path) -> tuple[int, int] | None:
    """Device and inode of a folder, which change when it is replaced; None if it does not exist."""
    try:
        status = folder.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _lock(handle: int) -> None:
    """Lock an open file or folder; BlockingIOError if another process holds the lock."""
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def replace_atomically(path: Path, overwrite: bool = True) -> Iterator[Path]:
    """A temporary folder that replaces `path` when the block succeeds, and is removed otherwise.

    Without `overwrite`, it is an error if another process has put files there meanwhile, and these are left alone.
    """
    try:
        remove_leftovers(path)
        target = _real(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}{DRAFT}")
        temporary.mkdir()
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            with contextlib.suppress(OSError):  # if folders cannot be locked, the process id in the name must suffice
                stack.enter_context(locked_folder(temporary))
            yield temporary
            sync(temporary)
            if overwrite and target.exists():
                exchange(temporary, target)
            else:
                temporary.rename(target)  # the system replaces an empty folder only
            try:
                sync(target.parent)
            except OSError as error:
                logger.warning("%s is written, but may be lost if the power fails now (%s)", path, error.strerror)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror or error})") from error


def _real(path: Path) -> Path:
    """The folder that symbolic links lead to, so that links survive its replacement. Tolerates a link to itself."""
    return path if "\0" in str(path) else Path(os.path.realpath(path))


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders of `path` that killed processes left; restore a run that one had put aside.

    A temporary folder in use is locked, and named after a process that is alive.
    """
    path = _real(path)
    leftover = re.compile(rf"\.{re.escape(path.name)}\.(\d+)({re.escape(DRAFT)}|{re.escape(ASIDE)})")
    with contextlib.suppress(OSError, ValueError):  # ValueError: a name that no folder can have
        for temporary in path.parent.iterdir():
            match = leftover.fullmatch(temporary.name)
            if not match or is_alive(int(match[1])):
                continue
            with contextlib.suppress(OSError), locked_folder(temporary):
                if match[2] == ASIDE and not path.exists():
                    temporary.rename(path)
                else:
                    shutil.rmtree(temporary, ignore_errors=True)


def is_alive(process: int) -> bool:
    """Whether another process with this id is running; a leftover with our own id means that the id was reused."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # a process of another user
        pass
    return True


def exchange(first: Path, second: Path) -> None:
    """Swap two folders; on Linux in one step, so that `second` exists and is complete at all times."""
    if sys.platform == "linux":
        rename = getattr(ctypes.CDLL(None), "renameat2", None)
        if rename and not rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE):
            return
    aside = first.with_name(first.name.removesuffix(DRAFT) + ASIDE)
    second.rename(aside)
    try:
        first.rename(second)
    except OSError:
        aside.rename(second)
        raise
    aside.rename(first)
