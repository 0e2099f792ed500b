"""Files written atomically and verified by checksum, and the folders for caches and temporary files."""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from harmonium.errors import HarmoniumError
from harmonium.runtime import schema
from harmonium.runtime.untrusted import open_regular

DRAFT = ".draft"  # suffix of incomplete files and folders
MAX_MANIFEST_BYTES = 1 << 28


@dataclass(frozen=True)
class FileRecord:
    """The size and the checksum of a file, as manifests keep them."""

    bytes: schema.Count
    sha256: str


def write(path: Path, content: bytes | Iterable[bytes | memoryview]) -> FileRecord:
    """Write a file atomically (temporary file, fsync, rename), from bytes or parts of them."""
    temporary, checksum, size = path.with_name(path.name + DRAFT), hashlib.sha256(), 0
    parts: Iterable[bytes | memoryview] = [content] if isinstance(content, bytes) else content
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                size += file.write(part)
                checksum.update(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)
    return FileRecord(size, checksum.hexdigest())


def allocate(path: Path, size: int) -> None:
    """Create a file of `size` bytes, so that the disk space is reserved; an empty file where that is not supported."""
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    path.unlink()
                    raise


def sync(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_files(folder: Path) -> dict[str, FileRecord]:
    """Flush the files of a folder, written by another library; returns folder/file -> its record."""
    records = {}
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            records[f"{folder.name}/{path.name}"] = FileRecord(file.tell(), checksum)
    sync(folder)
    return records


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Remove a file or folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Verified reading ------------------------------------------------------------------------------------------------


def verify(path: Path, record: FileRecord) -> Path:
    """Check size and checksum of a file, and return its path; a file of the wrong size is not read."""
    with _open_of_size(path, record) as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != record.sha256:
        raise _changed(path)
    return path


def read_verified(path: Path, record: FileRecord) -> bytes:
    """Read a file after checking its size and checksum."""
    with _open_of_size(path, record) as file:
        content = file.read()
    if digest(content) != record.sha256:
        raise _changed(path)
    return content


@contextlib.contextmanager
def _open_of_size(path: Path, record: FileRecord) -> Iterator[BufferedReader]:
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size != record.bytes:
                raise _changed(path)
            yield file
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error


def _changed(path: Path) -> HarmoniumError:
    return HarmoniumError(f"{path}: its contents changed since the run was written; restore it or train again")


# Manifests -------------------------------------------------------------------------------------------------------


def to_json(value: Any, errors: str = "strict") -> bytes:
    """Encode a value as JSON: dataclasses become objects, and NaN, which JSON lacks, becomes null."""
    return (json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n").encode(errors=errors)


def plain(value: Any) -> Any:
    """A value reduced to JSON types: dataclasses become objects, NaN becomes null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def manifest_bytes(content: dict[str, Any]) -> bytes:
    """JSON that ends with the checksum of everything before it."""
    return to_json(content | {"sha256": digest(to_json(content))})


def read_manifest(path: Path, format: int) -> dict[str, Any]:
    """Read what `manifest_bytes` wrote, if it has this format number and its checksum is right."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_MANIFEST_BYTES:
                raise HarmoniumError(f"{path}: damaged (too large); restore it or train again")
            manifest = json.loads(file.read())
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error
    except HarmoniumError:
        raise
    except (ValueError, RecursionError) as error:
        raise HarmoniumError(f"{path}: damaged ({error}); restore it or train again") from error
    actual = manifest.get("format") if isinstance(manifest, dict) else None
    if type(actual) is not int or actual != format:
        raise HarmoniumError(
            f"{path.parent}: run format {actual!r}; this version of harmonium reads format {format}. "
            "Use the version that wrote it, or train again"
        )
    content: dict[str, Any] = manifest
    if content.pop("sha256", None) != digest(to_json(content, errors="replace")):
        raise _changed(path)
    return content


def manifest_files(path: Path) -> dict[str, set[str]]:
    """File -> possible sha256 sums, for files listed in a manifest of any format; empty if it is damaged or not ours."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
        if content.pop("sha256") != digest(to_json(content, errors="replace")):
            return {}
        files: dict[str, set[str]] = {}
        for part in (content["files"], content.get("replaced", {})):
            for name, record in part.items():
                if Path(name).name == name:  # a path could escape the folder
                    files.setdefault(name, set()).add(record if isinstance(record, str) else record["sha256"])
        return files
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}


# Folders of this user ------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """The folder of downloaded datasets and cached graphs."""
    return Path(os.environ.get("HARMONIUM_CACHE") or Path.home() / ".cache" / "harmonium")


def temporary_folder() -> Path | None:
    """The folder of large temporary files: the cache, as /tmp may be in memory; None for the system's default."""
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        if os.access(cache_folder(), os.W_OK):
            return cache_folder()
    return None
