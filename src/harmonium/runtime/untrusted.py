"""Untrusted input: only regular files are opened, pickles are refused, and names cannot control a terminal."""

import contextlib
import os
import re
import stat
from io import BufferedReader
from pathlib import Path

from harmonium.errors import HarmoniumError

PICKLE_SUFFIXES = ("pkl", "pickle", "pt", "pth", "bin", "ckpt", "joblib", "npy", "npz")
PICKLE_START = re.compile(rb"\x80[\x02-\x05](c|[\x8a\x95}\]\(KXq])|c\w[\w.]*\n\w+\n|\x93NUMPY")
ZIP_START = b"PK\x03\x04"  # torch.save writes a zip with a pickle in it
CONTROL_CHARACTERS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_MESSAGE_LENGTH = 2000  # characters
MAX_RATIO, ALWAYS_ALLOWED = 300, 1 << 26  # a file may unpack to 300 times its size, or to 64 MiB
MAX_TEXT = 1 << 20  # bytes of a file of settings
FILE_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file has this name; False also for a name that no file can have."""
    return stat.S_ISREG(_mode(path))


def exists_as_file(path: Path) -> bool:
    """Whether a regular file has this name; anything else of that name, such as a pipe or a broken link, is an error."""
    if is_file(path):
        return True
    if is_folder(path) or is_neither(path):
        raise not_regular(path)
    if os.path.lexists(path):
        raise HarmoniumError(f"{path}: a link to a file that does not exist; restore the file or remove the link")
    return False


def is_folder(path: str | os.PathLike[str]) -> bool:
    return stat.S_ISDIR(_mode(path))


def is_neither(path: str | os.PathLike[str]) -> bool:
    """Whether a path names neither a file nor a folder: a pipe, socket or device."""
    return bool(_mode(path)) and not is_file(path) and not is_folder(path)


def _mode(path: str | os.PathLike[str]) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; a folder, pipe, socket or device is refused without blocking on it."""
    if is_folder(path) or is_neither(path):  # opening some of them fails or has effects
        raise not_regular(path)
    if "\0" in str(path):
        raise HarmoniumError(f"{path}: no file has such a name")
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise not_regular(path)


def not_regular(path: Path) -> HarmoniumError:
    """The error for a path that is not a regular file."""
    return HarmoniumError(f"{path}: is {_kind(path)}, and only files are read; save its contents in a file")


def _kind(path: Path) -> str:
    return FILE_KINDS.get(stat.S_IFMT(_mode(path)), "not a regular file")


def check_output_file(path: Path) -> None:
    """Refuse to replace anything but a regular file. A name that is too long raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise HarmoniumError(f"{path}: is {_kind(path)}, which is not replaced; choose another name")


def read_text(path: Path, max_bytes: int = MAX_TEXT) -> str:
    """A small text in UTF-8, such as a file of settings."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise HarmoniumError(f"{path}: has more than {max_bytes:,} bytes; is it the right file?")
    return content.decode("utf-8-sig")


def refuse_pickle(path: Path, start: bytes | None = None) -> None:
    """Raise an error for a pickle, known by its name or first bytes (default: read from the file); it is never loaded."""
    if start is None:
        with contextlib.suppress(OSError), open_regular(path) as file:
            start = file.read(64)
    start = start or b""
    suffix = re.sub(r"\.(gz|xz|zst)$", "", path.name.lower()).rpartition(".")[2]
    if PICKLE_START.match(start) or suffix in PICKLE_SUFFIXES:
        kind = "a pickle, which can run code when read"
    elif start.startswith(ZIP_START):
        kind = "a zip archive, in which torch.save wraps a pickle"
    else:
        return
    raise HarmoniumError(
        f"{path}: {kind}; it is refused. Give text, Parquet, RDF, a .graph file or a run folder (weights: .safetensors)"
    )


def harmless(text: str) -> str:
    """Text that is safe to print: control characters and changes of writing direction are escaped."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def one_message(text: str) -> str:
    """An error message as one line of limited length."""
    text, half = harmless(" ".join(text.splitlines())), MAX_MESSAGE_LENGTH // 2
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:half]} ... {text[-half:]}"
