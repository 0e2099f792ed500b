"""Files that may be compressed (.gz, .xz, .zst), read as bytes, blocks or lines and written atomically."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import (
    ALWAYS_ALLOWED,
    MAX_RATIO,
    check_output_file,
    exists_as_file,
    open_regular,
    refuse_pickle,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": partial(lzma.open, format=lzma.FORMAT_XZ)}
READ_ERRORS: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, lzma.LZMAError)  # raised by a damaged file
with contextlib.suppress(ImportError):  # optional: a machine that only trains may lack it
    zstd: Any = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    OPENERS[".zst"] = zstd.open
    READ_ERRORS += (zstd.ZstdError,)

BYTES_PER_BLOCK = 1 << 24  # of text read at a time
MAX_PADDING = 1 << 20  # zero bytes accepted at the end of a compressed file
MAX_LINE = 1 << 27  # bytes, or characters of text that is not UTF-8
LONG_LINE = f"a line of more than {MAX_LINE >> 20} MiB, which no file of facts has; is it text?"


def strip_compression(path: Path) -> Path:
    """The path without the suffix of its compression: facts.tsv for facts.tsv.gz."""
    return path.with_suffix("") if path.suffix in OPENERS else path


def find_file(folder: Path, stem: str, suffixes: Sequence[str]) -> Path | None:
    """The first existing file `stem` + suffix, compressed or not. A folder or device of that name is an error."""
    names = (f"{stem}{suffix}{packed}" for suffix in suffixes for packed in ("", *OPENERS))
    return next((folder / name for name in names if exists_as_file(folder / name)), None)


def open_bytes(path: Path) -> IO[bytes]:
    """The decompressed bytes of a file; pickles and decompression bombs are refused."""
    raw = open_regular(path)
    try:
        file = raw
        if path.suffix in OPENERS:
            _refuse_padding(raw, path)
            file = OPENERS[path.suffix](raw, "rb")
        refuse_pickle(path, file.read(64))
        file.seek(0)
    except BaseException:
        raw.close()
        raise
    return raw if file is raw else io.BufferedReader(_LimitedReader(file, raw, path), 1 << 16)


def _refuse_padding(raw: IO[bytes], path: Path) -> None:
    """Refuse a compressed file that ends in many zero bytes, which gzip would skip one by one."""
    if raw.seek(0, os.SEEK_END) > MAX_PADDING:
        raw.seek(-MAX_PADDING, os.SEEK_END)
        if not raw.read().strip(b"\0"):
            raise HarmoniumError(f"{path}: ends in zero bytes, so it is damaged; download or copy it again")
    raw.seek(0)


class _LimitedReader(io.RawIOBase):
    """Decompressed bytes; an error past the ratio that text of facts could reach, as in a decompression bomb."""

    def __init__(self, file: IO[bytes], raw: IO[bytes], path: Path) -> None:
        self.file, self.raw, self.path, self.count = file, raw, path, 0
        self.limit = max(ALWAYS_ALLOWED, MAX_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        content = self.file.read(len(view))
        view[: len(content)] = content
        self.count += len(content)
        if self.count > self.limit:
            raise HarmoniumError(
                f"{self.path}: decompresses to more than {MAX_RATIO} times its size, which no graph does; "
                "decompress and inspect it"
            )
        return len(content)

    def close(self) -> None:
        self.file.close()
        self.raw.close()
        super().close()


def read_blocks(path: Path, skip_lines: int = 0, progress: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """The bytes of a text file in blocks of whole lines; `progress` is called with the length of each."""
    with open_bytes(path) as file:
        for _ in range(skip_lines):
            file.readline()
        while block := file.read(BYTES_PER_BLOCK):
            block += _end_of_line(file, path)
            yield block
            if progress:
                progress(len(block))


def _end_of_line(file: IO[bytes], path: Path) -> bytes:
    """The rest of the current line."""
    rest = file.readline(MAX_LINE + 1)
    if len(rest) > MAX_LINE:
        raise HarmoniumError(f"{path}: {LONG_LINE}")
    return rest


def numbered_lines(
    path: Path,
    reject: Callable[[int, bytes], object] | None = None,
    encoding: str = "utf-8",
    max_line: int = MAX_LINE,
) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers from 1. A line that cannot be decoded goes to `reject`, or is an error."""
    number = 0
    try:
        with open_bytes(path) as file:
            if encoding != "utf-8":
                errors = "strict" if reject is None else "replace"
                with io.TextIOWrapper(file, encoding, errors, newline="\n") as text:
                    while line := text.readline(max_line + 1):
                        number += 1
                        if len(line) > max_line:
                            raise HarmoniumError(f"{path}:{number}: {LONG_LINE}")
                        if reject is not None and "\ufffd" in line:
                            reject(number, line.encode("utf-8", "replace"))
                        else:
                            yield number, line
                return
            while raw := file.readline(max_line + 1):
                number += 1
                if len(raw) > max_line:
                    raise HarmoniumError(f"{path}:{number}: {LONG_LINE}")
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    if reject is None:
                        raise
                    reject(number, raw)
                    continue
                yield number, line
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise HarmoniumError(f"{path}: not {encoding} text ({error}); give another encoding") from error
        advice = "save the file as UTF-8, or give its --encoding, such as cp1252"
        raise HarmoniumError(f"{path}:{number}: not UTF-8 text (byte {error.start}); {advice}") from error
    except READ_ERRORS as error:
        raise HarmoniumError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


@contextlib.contextmanager
def create_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file atomically: compressed by its suffix, and renamed into place once everything is written."""
    checksum = zlib.crc32(os.fsencode(path.name))  # shorter than the name, which may be as long as the system allows
    temporary = path.with_name(f".{os.getpid()}.{checksum:08x}.draft")
    try:
        check_output_file(path)
        with OPENERS.get(path.suffix, open)(temporary, "wb") as file:
            yield file
        temporary.replace(path)
    except _write_errors() as error:
        reason = getattr(error, "strerror", None) or error
        raise HarmoniumError(f"{path}: cannot be written ({reason})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_errors() -> tuple[type[Exception], ...]:
    """Errors of a full disk; polars, once imported, raises one that is not an OSError."""
    polars = sys.modules.get("polars")
    return (OSError,) if polars is None else (OSError, polars.exceptions.PolarsError)
