"""Files that may be compressed (.gz, .xz, .zst by their ending), read as bytes or as lines, written whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from harmonium.errors import HarmoniumError
from harmonium.suspicion import refuse_pickle

try:
    from compression import zstd
except ImportError:  # before Python 3.14
    from backports import zstd

OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".zst": zstd.open}
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError)  # what reading a damaged file raises

BLOCK = 1 << 24  # bytes of a text read at a time
RATIO, SMALL = 300, 1 << 26  # a packed text may unpack to so many times its size, or to so many bytes


def bare(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if path.suffix in OPENERS else path


def find(folder: Path, stem: str, endings: Sequence[str]) -> Path | None:
    """The first of `stem` + ending that is there, compressed or not."""
    names = (f"{stem}{ending}{packed}" for ending in endings for packed in ("", *OPENERS))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def open_bytes(path: Path) -> IO[bytes]:
    """The unpacked bytes of a file that is no pickle; one that unpacks to far more than facts would is an error."""
    file = OPENERS.get(path.suffix, open)(path, "rb")
    try:
        refuse_pickle(path, file.read(64))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file if path.suffix not in OPENERS else io.BufferedReader(_Unpacked(file, path), 1 << 16)


class _Unpacked(io.RawIOBase):
    """Unpacked bytes, as many as a text of facts may have."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path, self.count = file, path, 0
        self.most = max(SMALL, RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        part = self.file.read(len(buffer))
        buffer[: len(part)] = part
        self.count += len(part)
        if self.count > self.most:
            raise HarmoniumError(
                f"{self.path}: unpacks to more than {RATIO} times its size, as no graph does; unpack and look at it"
            )
        return len(part)

    def close(self) -> None:
        self.file.close()
        super().close()


def blocks(path: Path, skip_lines: int = 0, watch: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """The bytes of a text in blocks of whole lines; none starts with a blank line, and none is empty."""
    with open_bytes(path) as file:
        for _ in range(skip_lines):
            file.readline()
        while block := file.read(BLOCK):
            block += file.readline()
            if text := block.lstrip(b"\r\n"):
                yield text
            if watch:
                watch(len(block))


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text with their ends; what cannot be read is an error that names the line."""
    number = 0
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as bad:
        raise HarmoniumError(f"{path}:{number}: not UTF-8 text (byte {bad.start}); save the file as UTF-8") from bad
    except BROKEN as broken:
        raise HarmoniumError(f"{path}: cannot be read ({broken})") from broken


@contextlib.contextmanager
def create(path: Path) -> Iterator[IO[bytes]]:
    """Bytes for a new file, compressed by its ending; it appears when all is written."""
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with OPENERS.get(path.suffix, open)(draft, "wb") as file:
            yield file
        draft.replace(path)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        draft.unlink(missing_ok=True)
