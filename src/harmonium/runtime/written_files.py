"""Write files for other programs into a folder. A manifest records them, and no file of anyone else is replaced."""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harmonium.errors import HarmoniumError
from harmonium.runtime import storage
from harmonium.runtime.folders import is_alive

MANIFEST, MANIFEST_FORMAT = "harmonium.json", 1
DRAFT = re.compile(r"\.harmonium-(\d+)\.draft")


def written_files(folder: Path) -> dict[str, str]:
    """File -> sha256, for files that an earlier `replace_files` wrote and nobody changed since, including the manifest."""
    known = storage.manifest_files(folder / MANIFEST)
    files = {name: storage.file_digest(folder / name) for name in known if (folder / name).is_file()}
    files = {name: checksum for name, checksum in files.items() if checksum in known[name]}
    return files | {MANIFEST: ""} if known else files


def check_replaceable(folder: Path, in_the_way: Callable[[str], object]) -> None:
    """Refuse a folder, before any work is done, if writing to it would replace a file of someone else."""
    ours = written_files(folder)
    for file in sorted(folder.iterdir()):
        if (file.name == MANIFEST or in_the_way(file.name)) and file.name not in ours:
            raise _refusal(file)


@contextlib.contextmanager
def replace_files(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files replace those that an earlier call wrote into `folder`; all other files stay.

    If the process is killed at any moment, the manifest lists the files of both calls.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        temporary = folder / f".harmonium-{os.getpid()}.draft"
        try:
            temporary.mkdir()
            yield temporary
            _move(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # not empty after success
                    folder.rmdir()
    except OSError as error:
        raise HarmoniumError(f"{folder}: cannot be written ({error.strerror or error})") from error


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary folders of processes that were killed."""
    for leftover in folder.iterdir():
        match = DRAFT.fullmatch(leftover.name)
        if match and not is_alive(int(match[1])):
            shutil.rmtree(leftover, ignore_errors=True)


def _move(temporary: Path, folder: Path) -> None:
    """Move the new files into the folder, after a last check that only files of ours are replaced."""
    files = {Path(name).name: record.sha256 for name, record in storage.sync_files(temporary).items()}
    earlier = written_files(folder)
    for name in sorted({*files, MANIFEST}):
        if name not in earlier and os.path.lexists(folder / name):
            raise _refusal(folder / name)
    earlier.pop(MANIFEST, None)
    _write_manifest(folder, {"files": files, "replaced": earlier})
    for name in earlier.keys() - files.keys():
        (folder / name).unlink()
    for name in files:
        (temporary / name).replace(folder / name)
    _write_manifest(folder, {"files": files})


def _write_manifest(folder: Path, content: dict[str, Any]) -> None:
    storage.write(folder / MANIFEST, storage.manifest_bytes({"format": MANIFEST_FORMAT} | content))


def _refusal(file: Path) -> HarmoniumError:
    return HarmoniumError(
        f"{file}: not written by harmonium, or changed since, so it will not be replaced; "
        "move it away, or choose another folder"
    )
