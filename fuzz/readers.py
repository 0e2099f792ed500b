"""Fuzz one reader with atheris (coverage decides which inputs are kept): python fuzz/readers.py TARGET [-runs=10000].

TARGET is a name of tests/fuzzing.py, or `all` for each in turn. Inputs that reach new code are added to the corpus, from
which the next run starts: the folder FUZZ_CORPUS, or else fuzz/corpus.tar.xz, which is unpacked to build/fuzz and packed
again after `all`. An input that raises anything but a HarmoniumError is saved as crash-*: fix the reader, and add the
input to tests/corpus.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKED = ROOT / "fuzz" / "corpus.tar.xz"
CORPUS = Path(os.environ.get("FUZZ_CORPUS") or ROOT / "build" / "fuzz")
MAX_KEPT = 4096  # bytes of an input that is packed
ABORTS = {"parquet", "graphrag"}  # polars aborts on certain damaged files, which is why another process reads them
LIMITS = ["-verbosity=0", "-timeout=60", "-rss_limit_mb=4096", "-max_len=20000"]

sys.path.insert(0, str(ROOT / "tests"))


def main() -> None:
    name, *options = sys.argv[1:]
    if name == "all":
        fuzz_all(options)
    else:
        fuzz(name, options)


def fuzz_all(options: list[str]) -> None:
    from fuzzing import targets

    unpack()
    for target in sorted(targets().keys() - ABORTS):
        print(f"fuzzing {target}", flush=True)
        subprocess.run([sys.executable, __file__, target, *options], check=True)
    pack()


def fuzz(name: str, options: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["harmonium", "tomllib", "csv"]):
        from fuzzing import attempt, targets

    target, corpus = targets()[name], CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as seeds:
        for number, content in enumerate(target.seeds):
            (Path(seeds) / str(number)).write_bytes(content)
        command = [sys.argv[0], str(corpus), seeds, *LIMITS, *options]
        atheris.Setup(command, lambda data: attempt(target, data) and None)
        atheris.Fuzz()


def unpack() -> None:
    """The packed corpus as files: TARGET/SHA1."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    if PACKED.exists():
        with tarfile.open(PACKED) as archive:
            archive.extractall(CORPUS, filter="data")


def pack() -> None:
    """The corpus as one file, the same bytes for the same inputs."""
    with tarfile.open(PACKED, "w:xz") as archive:
        for file in sorted(CORPUS.glob("*/*")):
            content = file.read_bytes()
            if len(content) <= MAX_KEPT:
                entry = tarfile.TarInfo(file.relative_to(CORPUS).as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
