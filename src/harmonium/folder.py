"""The run folder as a place on a disk: who may write there, written whole or not at all, noticed when changed."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harmonium.errors import HarmoniumError

UNFINISHED = "checkpoints"  # the folder in a run folder where training that is not finished lives (checkpoint.py)
logger = logging.getLogger("harmonium")


def reserve(path: str | Path, overwrite: bool = False) -> Path:
    """Make sure, before any work is spent, that a run can be written here."""
    path = Path(path)
    try:
        if path.exists():
            inside = {entry.name for entry in path.iterdir()} if path.is_dir() else {"a file"}
            if not overwrite and unfinished(path):
                with locked(path):
                    raise HarmoniumError(
                        f"{path} holds a training that has not finished: `harmonium resume {path}` goes on with it, "
                        "--overwrite starts again"
                    )
            if not overwrite and inside != {UNFINISHED}:
                raise HarmoniumError(f"{path} exists; choose another --out, or say --overwrite to replace it")
            if inside and not inside & {"run.json", UNFINISHED}:
                raise HarmoniumError(f"{path} is not a run folder, so it will not be replaced; choose another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarmoniumError(f"{path.parent}: cannot be made ({error.strerror}); choose another --out") from error
    if not os.access(path.parent, os.W_OK):
        raise HarmoniumError(f"{path.parent} cannot be written to; choose another --out")
    return path


def unfinished(path: Path) -> bool:
    """Whether a run folder holds a training that can go on."""
    return (path / UNFINISHED / "training.json").is_file()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Train into a run folder alone: another process that does is an error that names it. The dead hold no locks."""
    import fcntl

    place = path / UNFINISHED / "lock"
    with open(place, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise HarmoniumError(
                f"{path} is being trained by another process ({owner}); wait for it, or stop it with `kill {owner}`"
            ) from None
        except OSError as error:
            logger.warning("%s cannot be locked (%s): let no other process train into it", path, error.strerror)
        if not place.exists() or not os.path.samestat(os.fstat(file.fileno()), place.stat()):
            raise HarmoniumError(f"{path} was finished by another process just now")
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


# Files -----------------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes | Iterable[Any]) -> str:
    """Put a file, given whole or in parts, in its place at once: a draft beside it, synced, renamed. Its checksum."""
    draft, checksum = path.with_name(path.name + ".draft"), hashlib.sha256()
    try:
        with open(draft, "wb") as file:
            for part in [content] if isinstance(content, bytes) else content:
                file.write(part)
                checksum.update(part)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)
    return checksum.hexdigest()


def sync(folder: Path) -> None:
    """Names in a folder are on the disk when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def checked(path: Path, expected: str) -> Path:
    """A file whose contents must be what was written."""
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error
    if found != expected:
        raise HarmoniumError(f"{path}: its contents changed since the run was written; restore it or train again")
    return path


def settle(path: Path) -> dict[str, str]:
    """The checksum of each file (folder/file) of a folder that another library wrote, once it is on the disk."""
    found = {}
    for each in sorted(path.iterdir()):
        with open(each, "rb") as file:
            os.fsync(file.fileno())
            found[f"{path.name}/{each.name}"] = hashlib.file_digest(file, "sha256").hexdigest()
    sync(path)
    return found


def to_json(value: Any, errors: str = "strict") -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors=errors)


def seal(facts: dict[str, Any]) -> bytes:
    """JSON that holds the checksum of the rest of itself."""
    return to_json(facts | {"sha256": digest(to_json(facts))})


def unseal(path: Path, formats: tuple[int, ...], unsealed: tuple[int, ...] = ()) -> dict[str, Any]:
    """Read what `seal` wrote; `formats` are those that can be read, `unsealed` those of them without a checksum."""
    try:
        facts = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise HarmoniumError(f"{path}: damaged ({error}); restore it or train again") from error
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error
    found = facts.get("format") if isinstance(facts, dict) else None
    if found not in formats or type(found) is not int:
        raise HarmoniumError(
            f"{path.parent}: run format {found!r}; this version of harmonium reads format {formats[-1]}. "
            "Use the version that wrote it, or train again"
        )
    if found not in unsealed and facts.pop("sha256", None) != digest(to_json(facts, errors="replace")):
        raise HarmoniumError(f"{path}: its contents changed since the run was written; restore it or train again")
    return facts


def cache() -> Path:
    """Where graphs that were read or downloaded are kept."""
    return Path(os.environ.get("HARMONIUM_CACHE") or Path.home() / ".cache" / "harmonium")


def spare() -> Path | None:
    """Where large temporary files go: the cache, which lies on a disk, or wherever the system wants them."""
    with contextlib.suppress(OSError):
        cache().mkdir(parents=True, exist_ok=True)
        if os.access(cache(), os.W_OK):
            return cache()
    return None


# Folders ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `path` when the block ends well, and vanishes otherwise."""
    sweep(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.mkdir()
        yield draft
        sync(draft)
        if path.exists():
            exchange(draft, path)
        else:
            draft.rename(path)
        sync(path.parent)
    except OSError as error:
        kept = f"`harmonium resume {path}` tries again" if unfinished(path) else "nothing was left there"
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror}); {kept}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove the drafts of `path` whose process is gone: it was killed while it wrote."""
    for draft in path.parent.iterdir():
        name, owner = draft.name.removesuffix(".draft").rpartition(".")[::2]
        if name == f".{path.name}" and draft.name.endswith(".draft") and owner.isdigit() and not alive(int(owner)):
            shutil.rmtree(draft, ignore_errors=True)


def alive(process: int) -> bool:
    """Whether another process has this number."""
    if process == os.getpid():
        return False  # a draft of our own number is what someone before us left
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def exchange(one: Path, other: Path) -> None:
    """Swap two folders, in one step where the system can (Linux): killed at any moment, `other` is there and whole."""
    if sys.platform == "linux":
        here, swap, libc = -100, 2, ctypes.CDLL(None)  # AT_FDCWD, RENAME_EXCHANGE
        if hasattr(libc, "renameat2") and not libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), swap):
            return
    spare = one.with_name(one.name + ".old")
    other.rename(spare)
    try:
        one.rename(other)
    except OSError:
        spare.rename(other)
        raise
    spare.rename(one)
