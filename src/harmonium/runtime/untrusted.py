"""Untrusted input: pickles are refused, and names cannot control a terminal."""

import contextlib
import re
from pathlib import Path

from harmonium.runtime.errors import HarmoniumError

PICKLE_ENDINGS = ("pkl", "pickle", "pt", "pth", "bin", "ckpt", "joblib", "npy", "npz")
PICKLE_START = re.compile(rb"\x80[\x02-\x05](c|[\x8a\x95}\]\(KXq])|c\w[\w.]*\n\w+\n|\x93NUMPY")
ZIP_START = b"PK\x03\x04"  # torch.save writes a zip with a pickle in it
CONTROL_CHARACTERS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_MESSAGE = 2000  # characters


def refuse_pickle(path: Path, start: bytes | None = None) -> None:
    """Raise an error for a pickle, by its name or its first bytes (default: read from the file); it is never loaded."""
    if start is None:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            start = file.read(64)
    start = start or b""
    ending = re.sub(r"\.(gz|xz|zst)$", "", path.name.lower()).rpartition(".")[2]
    if PICKLE_START.match(start) or ending in PICKLE_ENDINGS:
        kind = "a pickle, which can run code when read"
    elif start.startswith(ZIP_START):
        kind = "a zip archive, as torch.save puts around a pickle"
    else:
        return
    raise HarmoniumError(
        f"{path}: {kind}; it is refused. Give text, Parquet, RDF, a .graph file or a run folder (weights: .safetensors)"
    )


def harmless(text: str) -> str:
    """Text for a terminal: control characters and changes of writing direction are escaped."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def one_message(text: str) -> str:
    """An error message in one line of limited length."""
    text = harmless(" ".join(text.splitlines()))
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 2 :]}"
