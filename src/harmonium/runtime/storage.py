"""Files written atomically and verified by checksum, and the folders for caches and temporary files."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harmonium.runtime.errors import HarmoniumError


def write(path: Path, content: bytes | Iterable[bytes | memoryview]) -> str:
    """Write a file atomically (temporary file, fsync, rename), from bytes or parts of them; returns its sha256."""
    temporary, checksum = path.with_name(path.name + ".draft"), hashlib.sha256()
    parts: Iterable[bytes | memoryview] = [content] if isinstance(content, bytes) else content
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
                checksum.update(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)
    return checksum.hexdigest()


def sync(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_and_digest(folder: Path) -> dict[str, str]:
    """Flush the files of a folder that another library wrote; returns folder/file -> sha256."""
    checksums = {}
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            checksums[f"{folder.name}/{path.name}"] = hashlib.file_digest(file, "sha256").hexdigest()
    sync(folder)
    return checksums


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_checksum(path: Path, expected: str) -> Path:
    """The path, if the contents of the file have this sha256."""
    try:
        actual = file_digest(path)
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error
    if actual != expected:
        raise HarmoniumError(f"{path}: its contents changed since the run was written; restore it or train again")
    return path


# Manifests -------------------------------------------------------------------------------------------------------


def to_json(value: Any, errors: str = "strict") -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors=errors)


def manifest_bytes(content: dict[str, Any]) -> bytes:
    """JSON that ends with the checksum of everything before it."""
    return to_json(content | {"sha256": digest(to_json(content))})


def read_manifest(path: Path, format: int) -> dict[str, Any]:
    """Read what `manifest_bytes` wrote, if it has this format number and its checksum is right."""
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise HarmoniumError(f"{path}: damaged ({error}); restore it or train again") from error
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error
    actual = manifest.get("format") if isinstance(manifest, dict) else None
    if type(actual) is not int or actual != format:
        raise HarmoniumError(
            f"{path.parent}: run format {actual!r}; this version of harmonium reads format {format}. "
            "Use the version that wrote it, or train again"
        )
    content: dict[str, Any] = manifest
    if content.pop("sha256", None) != digest(to_json(content, errors="replace")):
        raise HarmoniumError(f"{path}: its contents changed since the run was written; restore it or train again")
    return content


def manifest_files(path: Path) -> dict[str, set[str]]:
    """File -> its possible sha256, of the files beside a manifest of any format; none if it is damaged or not ours."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
        if content.pop("sha256") != digest(to_json(content, errors="replace")):
            return {}
        files: dict[str, set[str]] = {}
        for part in (content["files"], content.get("replaced", {})):
            for name, checksum in part.items():
                if Path(name).name == name:  # a path could lead out of the folder
                    files.setdefault(name, set()).add(checksum)
        return files
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}


# Folders of this user ------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where downloaded datasets and the binary form of graphs are kept."""
    return Path(os.environ.get("HARMONIUM_CACHE") or Path.home() / ".cache" / "harmonium")


def temporary_folder() -> Path | None:
    """Where large temporary files go: the cache, which lies on a disk; None for the system's default."""
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        if os.access(cache_folder(), os.W_OK):
            return cache_folder()
    return None
