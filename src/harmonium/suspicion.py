"""What comes from others is met with suspicion: files that could run code are refused, names cannot steer a terminal."""

from __future__ import annotations

import re
from pathlib import Path

from harmonium.errors import HarmoniumError

PICKLED = ("pkl", "pickle", "pt", "pth", "bin", "ckpt", "joblib", "npy", "npz")  # endings of files with pickles
MAGIC = re.compile(rb"\x80[\x02-\x05](c|[\x8a\x95}\]\(KXq])|c\w[\w.]*\n\w+\n|\x93NUMPY")  # how a pickle begins
ZIP = b"PK\x03\x04"  # torch.save writes one, with a pickle in it
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST = 2000


def refuse_pickle(path: Path, start: bytes | None = None) -> None:
    """An error when a file is a pickle, by its name or by how its contents start; it is never opened as one."""
    start = _start(path) if start is None else start
    ending = re.sub(r"\.(gz|xz|zst)$", "", path.name.lower()).rpartition(".")[2]
    if MAGIC.match(start) or ending in PICKLED:
        kind = "a pickle, which can run code when read"
    elif start.startswith(ZIP):
        kind = "a zip archive, as torch.save puts around a pickle"
    else:
        return
    raise HarmoniumError(
        f"{path}: {kind}; it is refused. Give text, Parquet, RDF, a .graph file or a run folder (weights: .safetensors)"
    )


def _start(path: Path) -> bytes:
    """The first bytes, none where there are none to read."""
    try:
        with open(path, "rb") as file:
            return file.read(64)
    except OSError:
        return b""


def harmless(text: str) -> str:
    """Text as a terminal may show it: control characters and those that turn the direction as escapes."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def one_message(text: str) -> str:
    """An error in one line of a bearable length."""
    text = harmless(" ".join(text.splitlines()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
