"""Standard datasets: downloads that resume, verified by sha256."""

import hashlib
import http.client
import logging
import os
import re
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from harmonium.data.graph import SPLITS
from harmonium.errors import HarmoniumError, error_at
from harmonium.runtime.storage import file_digest

STANDARD_DATASETS_FILE = Path(__file__).parent / "standard_datasets.toml"
MAX_FAILED_CONNECTIONS = 3  # in a row without a byte received
TIMEOUT_SECONDS = 30  # without data before a connection counts as broken
BYTES_PER_BLOCK = 1 << 16
MAX_UNPACKED_BYTES = 1 << 31  # of an archive

Progress = Callable[[int], object]  # called with the number of further bytes downloaded or read
logger = logging.getLogger("harmonium")


@cache
def standard_datasets() -> dict[str, dict[str, Any]]:
    """name -> sources, and the sha256 of each split."""
    return tomllib.loads(STANDARD_DATASETS_FILE.read_text(encoding="utf-8"))


def find(name: str) -> str | None:
    """The standard dataset of this name, regardless of case, hyphens and spaces: fb15k237 is FB15K-237. Else None."""

    def letters(text: str) -> str:
        return re.sub(r"[-_ ]", "", text).lower()

    return next((dataset for dataset in standard_datasets() if letters(dataset) == letters(name)), None)


def fetch(name: str, home: Path, progress: Progress | None = None) -> Path:
    """The folder of a standard dataset with its three splits, downloaded unless it is there already."""
    entry, folder = standard_datasets()[name], home / name
    offline = bool(os.environ.get("HARMONIUM_OFFLINE"))
    reasons = ["HARMONIUM_OFFLINE is set"] if offline else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in [] if offline else entry["sources"]:
            missing = _missing_splits(folder)
            if not missing:
                break
            try:
                _fetch_from(source, entry, folder, missing, progress)
            except HarmoniumError as error:
                reasons.append(str(error))
    except OSError as error:
        reasons.append(f"{folder} cannot be written ({error.strerror or error})")
    if _missing_splits(folder):
        raise HarmoniumError(
            f"{name} cannot be downloaded: {'; '.join(reasons)}. Try again later (it resumes), or put its "
            f"train.txt, valid.txt and test.txt into a folder {name} and set HARMONIUM_DATA to the folder around it"
        )
    return folder


def _missing_splits(folder: Path) -> list[str]:
    return [split for split in SPLITS if not (folder / f"{split}.txt").is_file()]


def _fetch_from(
    source: str, entry: dict[str, Any], folder: Path, missing: list[str], progress: Progress | None
) -> None:
    """Download the missing splits: one URL for each, or all from a .tar archive."""
    if "{split}" not in source:
        archive = get(source, folder, progress)
        try:
            with error_at(source):
                extract(archive, {entry[split]: folder / f"{split}.txt" for split in missing})
        finally:
            archive.unlink()
        return
    for split in missing:
        url = source.format(split=split)
        part = get(url, folder, progress)
        actual = file_digest(part)
        if actual != entry[split]:
            part.unlink()
            raise HarmoniumError(
                f"{url} is not the expected file (sha256 {actual[:12]}..., not {entry[split][:12]}...), and is not used"
            )
        part.replace(folder / f"{split}.txt")


def extract(archive: Path, wanted: dict[str, Path], max_bytes: int = MAX_UNPACKED_BYTES) -> None:
    """Extract the files with these sha256 sums. Names in the archive are ignored, so no path in it can escape the folder."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        matches = {}
        try:
            with tarfile.open(archive) as tar:
                for number, member in enumerate(tar):
                    max_bytes -= abs(member.size) + tarfile.BLOCKSIZE
                    if max_bytes < 0:
                        raise HarmoniumError("it is too large")
                    content = tar.extractfile(member) if member.isreg() else None
                    if content is not None:
                        path = Path(folder) / str(number)
                        with content, path.open("wb") as file:
                            shutil.copyfileobj(content, file)
                        matches[file_digest(path)] = path
        except Exception as error:  # each compression raises its own error for a damaged file
            raise HarmoniumError(f"cannot be unpacked ({error})") from error
        wrong = [path.stem for checksum, path in wanted.items() if checksum not in matches]
        if wrong:
            raise HarmoniumError(f"has no {' and '.join(wrong)} with the right checksum, and is not used")
        for checksum, path in wanted.items():
            matches[checksum].replace(path)


def get(url: str, folder: Path, progress: Progress | None = None) -> Path:
    """Download to a .part file; one left by an earlier attempt is resumed if the server supports ranges."""
    logger.info("downloading %s", url)
    part = folder / (hashlib.sha256(url.encode()).hexdigest()[:16] + ".part")
    failures, reason = 0, ""
    while failures < MAX_FAILED_CONNECTIONS:
        size = part.stat().st_size if part.is_file() else 0
        try:
            _resume(url, part, size, progress)
            return part
        except HTTPError as error:
            if error.code == 416 and size:  # the part belongs to another version of the file
                part.unlink()
            elif error.code < 500:
                raise HarmoniumError(f"{url} answers {error.code} {error.reason}") from error
            failures, reason = failures + 1, f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            has_grown = part.is_file() and part.stat().st_size > size
            failures = 0 if has_grown else failures + 1
            reason = str(getattr(error, "reason", error)) or type(error).__name__
    raise HarmoniumError(f"{url} cannot be reached ({reason})")


def _resume(url: str, part: Path, start: int, progress: Progress | None) -> None:
    """Make one request: append from byte `start`, or start over if the server cannot resume."""
    headers = {"User-Agent": "harmonium"} | ({"Range": f"bytes={start}-"} if start else {})
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        resumed = start > 0 and response.status == 206
        length = response.headers["Content-Length"]
        received = 0
        with open(part, "ab" if resumed else "wb") as file:
            while block := response.read(BYTES_PER_BLOCK):
                file.write(block)
                received += len(block)
                if progress:
                    progress(len(block))
        if length and received < int(length):
            raise ConnectionError(f"connection closed after {received:,} of {int(length):,} bytes")
