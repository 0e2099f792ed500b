"""Standard datasets: a checked download that resumes, and archives unpacked with suspicion."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS

KNOWN = Path(__file__).parent / "known.toml"
ATTEMPTS = 3  # connections in a row that bring nothing new
SECONDS = 30  # of silence before a connection counts as broken
BLOCK = 1 << 16
LARGEST = 1 << 31  # bytes that an archive may unpack to
MOST_FILES = 10_000


@cache
def known() -> dict[str, dict[str, Any]]:
    """name -> sources, and the sha256 of each split."""
    return tomllib.loads(KNOWN.read_text(encoding="utf-8"))


def find(name: str) -> str | None:
    """The standard dataset that is meant: fb15k237 is FB15K-237."""

    def letters(text: str) -> str:
        return re.sub(r"[-_ ]", "", text).lower()

    return next((each for each in known() if letters(each) == letters(name)), None)


def fetch(name: str, home: Path) -> Path:
    """The folder of a standard dataset with its three splits, downloaded unless it is there already."""
    entry, folder = known()[name], home / name
    missing = [split for split in SPLITS if not (folder / f"{split}.txt").is_file()]
    offline = bool(os.environ.get("HARMONIUM_OFFLINE"))
    reasons = ["HARMONIUM_OFFLINE is set"] if offline else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in entry["sources"]:
            if offline or not missing:
                break
            try:
                _from_source(source, entry, folder, missing)
            except HarmoniumError as error:
                reasons.append(str(error))
            missing = [split for split in SPLITS if not (folder / f"{split}.txt").is_file()]
    except OSError as error:
        reasons.append(f"{folder} cannot be written ({error.strerror or error})")
    if missing:
        raise HarmoniumError(
            f"{name} cannot be downloaded: {'; '.join(reasons)}. Try again later (what came is kept), or put its "
            f"train.txt, valid.txt and test.txt into a folder {name} and name the folder around it: HARMONIUM_DATA=..."
        )
    return folder


def _from_source(source: str, entry: dict[str, Any], folder: Path, missing: list[str]) -> None:
    """The missing splits from one address for each, or from an archive."""
    if "{split}" in source:
        for split in missing:
            url = source.format(split=split)
            part = get(url, folder)
            check(part, entry[split], url)
            part.replace(folder / f"{split}.txt")
        return
    part = get(source, folder)
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        try:
            unpack(part, Path(inside))
            found = {sha256(file): file for file in Path(inside).rglob("*") if file.is_file()}
        finally:
            part.unlink()
        wrong = [split for split in missing if entry[split] not in found]
        if wrong:
            raise HarmoniumError(f"{source} has no {' and '.join(wrong)} with the right checksum, and is not used")
        for split in missing:
            shutil.copyfile(found[entry[split]], Path(inside) / "draft")
            (Path(inside) / "draft").replace(folder / f"{split}.txt")


def get(url: str, folder: Path) -> Path:
    """Download to a .part file; what an earlier attempt left is continued where the server can."""
    part = folder / (hashlib.sha256(url.encode()).hexdigest()[:16] + ".part")
    failures, reason = 0, ""
    with _bar(url) as moved:
        while failures < ATTEMPTS:
            before = part.stat().st_size if part.is_file() else 0
            try:
                _continue(url, part, before, moved)
                return part
            except HTTPError as error:
                if error.code == 416 and before:  # there is no more, or it was another file
                    part.unlink()
                elif error.code < 500:
                    raise HarmoniumError(f"{url} answers {error.code} {error.reason}") from error
                failures, reason = failures + 1, f"{error.code} {error.reason}"
            except (OSError, http.client.HTTPException) as error:
                gained = part.is_file() and part.stat().st_size > before
                failures = 0 if gained else failures + 1
                reason = str(getattr(error, "reason", error)) or type(error).__name__
    raise HarmoniumError(f"{url} cannot be reached ({reason})")


def _continue(url: str, part: Path, start: int, moved: Callable[[int, int | None], None]) -> None:
    """One connection: append from `start`, or begin again where the server does not continue."""
    headers = {"User-Agent": "harmonium"} | ({"Range": f"bytes={start}-"} if start else {})
    with urlopen(Request(url, headers=headers), timeout=SECONDS) as answer:
        resumed = start > 0 and answer.status == 206
        length = int(answer.headers["Content-Length"]) if answer.headers["Content-Length"] else None
        done = start if resumed else 0
        total = length + done if length is not None else None
        with open(part, "ab" if resumed else "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
                done += len(block)
                moved(done, total)
        if total is not None and done < total:
            raise ConnectionError(f"broken off after {done:,} of {total:,} bytes")


@contextlib.contextmanager
def _bar(url: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on stderr, where rich is installed."""
    print(f"downloading {url}", file=sys.stderr)
    try:
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        from harmonium.console import errors
    except ImportError:
        yield lambda done, total: None
        return
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(part: Path, expected: str, url: str) -> None:
    """A file of another content is removed and never used."""
    found = sha256(part)
    if found != expected:
        part.unlink()
        raise HarmoniumError(
            f"{url} is not the expected file (sha256 {found[:12]}..., not {expected[:12]}...), and is not used"
        )


def unpack(archive: Path, folder: Path, largest: int = LARGEST, most: int = MOST_FILES) -> None:
    """Plain files of a .tar (compressed or not) or .zip; refused when it has links, paths out of the folder or too much."""
    left = largest
    try:
        for number, (name, plain, source) in enumerate(_members(archive), start=1):
            where = f"the archive {archive.name}: {name!r}"
            if not plain:
                raise HarmoniumError(f"{where} is a link or a device; it is refused")
            target = PurePosixPath(name.replace("\\", "/"))
            if target.is_absolute() or ".." in target.parts or PureWindowsPath(name).drive or "\0" in name:
                raise HarmoniumError(f"{where} leads out of its folder; it is refused")
            if number > most:
                raise HarmoniumError(f"{where} is one file too many (over {most:,}); it is refused")
            if source is None:
                continue
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file, source:
                while block := source.read(min(BLOCK, left + 1)):
                    left -= len(block)
                    if left < 0:
                        raise HarmoniumError(f"{where} goes beyond {largest:,} bytes unpacked; it is refused")
                    file.write(block)
    except HarmoniumError:
        raise
    except Exception as error:  # each kind of archive and compression raises its own when it is damaged
        raise HarmoniumError(f"the archive {archive.name} cannot be unpacked ({error})") from error


def _members(archive: Path) -> Iterator[tuple[str, bool, IO[bytes] | None]]:
    """(name, whether it is a plain file or folder, its bytes)."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
                yield info.filename, plain, packed.open(info) if plain and not info.is_dir() else None
        return
    with tarfile.open(archive, "r:*") as packed:
        for member in packed:
            yield member.name, member.isreg() or member.isdir(), packed.extractfile(member) if member.isreg() else None
