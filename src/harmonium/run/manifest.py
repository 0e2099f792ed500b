"""run.json: how a run was made, and size and checksum of every file in its folder on which answers depend.

Files computed from a finished run, such as its calibration, are added later (`keep`): first the file, then a manifest
that names it, each written atomically. A process killed between the two leaves a file that the manifest does not name,
which is computed again.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from harmonium.errors import HarmoniumError
from harmonium.runtime import folders, schema, storage
from harmonium.runtime.storage import FileRecord
from harmonium.runtime.untrusted import is_file, is_folder, refuse_pickle

RUN_FORMAT = 4
NAME = "run.json"
T = TypeVar("T")
logger = logging.getLogger("harmonium")


@dataclass(frozen=True)
class Manifest:
    """The contents of run.json, apart from its own checksum."""

    format: int
    made: str  # date and time
    environment: dict[str, str]
    best_epoch: schema.Count
    stopped: str
    backend: str
    files: dict[str, FileRecord]

    @property
    def fingerprint(self) -> str:
        """Checksum of the graph and of everything that answers are computed from."""
        return fingerprint({name: record.sha256 for name, record in self.files.items()})


TENSOR_FILES = ("data.graph", "model.safetensors", "grammar.safetensors", "final.safetensors")


def fingerprint(checksums: Mapping[str, str]) -> str:
    """Combine the checksums of the files of graph, model and constraints into one."""
    return storage.digest(" ".join(checksums[name] for name in TENSOR_FILES if name in checksums).encode())


def read(folder: Path) -> Manifest:
    """Read the manifest of a finished run; the error for anything else tells what the folder is instead."""
    path = folder / NAME
    folders.remove_leftovers(folder)
    if not is_folder(folder):
        if is_file(folder):
            refuse_pickle(folder)
        raise HarmoniumError(f"{folder}: no such run folder; `harmonium train --out {folder}` makes one")
    if not path.exists() and not path.is_symlink():
        if folders.is_unfinished(folder):
            raise HarmoniumError(f"{folder}: training has not finished; `harmonium resume {folder}` continues it")
        raise HarmoniumError(f"{folder}: no run.json in it, so it is not a (complete) run folder")
    content = storage.read_manifest(path, RUN_FORMAT)
    for name in content["files"] if isinstance(content.get("files"), dict) else ():
        if Path(name).name != name:
            raise HarmoniumError(f"{path}: names {name!r}, which is not a file of a run; it is refused")
    with unreadable(path):
        content.pop("harmony", None)  # of earlier versions: how W was fitted
        manifest = schema.read(Manifest, content)
    return manifest


def write(folder: Path, manifest: Manifest) -> None:
    storage.write(folder / NAME, storage.manifest_bytes(vars(manifest)))


@contextlib.contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Turn errors inside the block into one that names the unreadable file."""
    try:
        yield
    except HarmoniumError:
        raise
    except (ValueError, RecursionError) as error:
        raise HarmoniumError(f"{path}: cannot be read ({error}); restore it or train again") from error


# Files computed from a finished run --------------------------------------------------------------------------------


_computed: dict[tuple[str, str], Any] = {}  # in this process, by the fingerprint of the run and the name of the file


def compute_once(
    folder: Path | None, run: str, name: str, parse: Callable[[Any], T | None], compute: Callable[[], T]
) -> T:
    """Contents of a file derived from the run with this fingerprint: computed on first use, then stored in its folder.

    `parse` converts JSON to contents; it returns None if they must be computed again, and raises a ValueError if damaged.
    """
    if (run, name) not in _computed:
        content = read_kept(folder, run, name, parse)
        if content is None:
            content = compute()
            keep(folder, run, name, content)
        _computed[run, name] = content
    contents: T = _computed[run, name]
    return contents


def keep(folder: Path | None, run: str, name: str, content: Any) -> None:
    """Store a JSON file derived from the run with this fingerprint; skipped if the folder is read-only or has another run.

    If several processes try at the same time, one of them writes.
    """
    if folder is None:
        return
    with contextlib.suppress(OSError, HarmoniumError), folders.locked_folder(folder):
        manifest = read(folder)
        if manifest.fingerprint != run:
            return
        others = {other: record for other, record in manifest.files.items() if other != name}
        if len(others) < len(manifest.files):  # so that no manifest names a file with other contents
            write(folder, replace(manifest, files=others))
        record = storage.write(folder / name, storage.to_json(content))
        write(folder, replace(manifest, files=others | {name: record}))


def read_kept(folder: Path | None, run: str, name: str, parse: Callable[[Any], T | None]) -> T | None:
    """Read and parse what `keep` stored; None if there is nothing usable, so that it must be computed again."""
    if folder is None:
        return None
    with contextlib.suppress(HarmoniumError):
        manifest = read(folder)
        if name not in manifest.files or manifest.fingerprint != run:
            return None
        try:
            with unreadable(folder / name):
                return parse(json.loads(storage.read_verified(folder / name, manifest.files[name])))
        except HarmoniumError as error:
            logger.warning("%s; it is computed again", str(error).partition("; ")[0])
    return None
