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
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.untrusted import refuse_pickle

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
READ_ERRORS: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, lzma.LZMAError)  # raised by a damaged file
with contextlib.suppress(ImportError):  # not on a bare machine that only trains
    zstd: Any = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    OPENERS[".zst"] = zstd.open
    READ_ERRORS += (zstd.ZstdError,)

BLOCK = 1 << 24  # bytes of text read at a time
MAX_RATIO, ALWAYS_ALLOWED = 300, 1 << 26  # a file may decompress to 300 times its size, or to 64 MiB


def strip_compression(path: Path) -> Path:
    """The path without the ending of its compression: facts.tsv for facts.tsv.gz."""
    return path.with_suffix("") if path.suffix in OPENERS else path


def find_file(folder: Path, stem: str, endings: Sequence[str]) -> Path | None:
    """The first existing file `stem` + ending, compressed or not."""
    names = (f"{stem}{ending}{packed}" for ending in endings for packed in ("", *OPENERS))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def open_bytes(path: Path) -> IO[bytes]:
    """The decompressed bytes of a file; pickles and decompression bombs are refused."""
    file: IO[bytes] = OPENERS.get(path.suffix, open)(path, "rb")
    try:
        refuse_pickle(path, file.read(64))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file if path.suffix not in OPENERS else io.BufferedReader(_LimitedReader(file, path), 1 << 16)


class _LimitedReader(io.RawIOBase):
    """Decompressed bytes, up to what text of facts could compress to."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path, self.count = file, path, 0
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
                f"{self.path}: decompresses to more than {MAX_RATIO} times its size, as no graph does; "
                "decompress and inspect it"
            )
        return len(content)

    def close(self) -> None:
        self.file.close()
        super().close()


def read_blocks(path: Path, skip_lines: int = 0, progress: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """The bytes of a text in blocks of whole lines, without leading blank lines."""
    with open_bytes(path) as file:
        for _ in range(skip_lines):
            file.readline()
        while block := file.read(BLOCK):
            block += file.readline()
            text = block.lstrip(b"\r\n")
            if text:
                yield text
            if progress:
                progress(len(block))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text with their line ends; an error names the line."""
    return (line for _, line in numbered_lines(path))


def numbered_lines(
    path: Path, reject: Callable[[int, bytes], object] | None = None, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """The same, with their numbers; a line that is not UTF-8 is given to `reject`, if there is one, and left out."""
    number = 0
    try:
        with open_bytes(path) as file:
            if encoding != "utf-8":
                with io.TextIOWrapper(file, encoding, newline="\n") as text:
                    yield from enumerate(text, start=1)
                return
            for number, raw in enumerate(file, start=1):
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
    """A new file, compressed by its ending; it appears under its name when everything is written."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with OPENERS.get(path.suffix, open)(temporary, "wb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)
