"""Fuzz one reader with atheris (coverage decides which inputs are kept): python fuzz/readers.py TARGET [-runs=10000].

TARGET is a name of tests/fuzzing.py, or `all` for each in turn. An input that raises anything but a HarmoniumError is
saved as crash-*: fix the reader, and add the input to tests/corpus.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
with atheris.instrument_imports(include=["harmonium", "tomllib", "csv"]):
    from fuzzing import attempt, targets

ABORTS = {"parquet"}  # polars aborts on certain damaged files, which is why `read_frame` tries them in a subprocess


def main() -> None:
    name, *options = sys.argv[1:]
    if name == "all":
        for target in targets().keys() - ABORTS:
            print(f"fuzzing {target}", flush=True)
            subprocess.run([sys.executable, __file__, target, *options], check=True)
        return
    target = targets()[name]
    with tempfile.TemporaryDirectory() as seeds:
        for number, content in enumerate(target.seeds):
            (Path(seeds) / str(number)).write_bytes(content)
        atheris.Setup([sys.argv[0], seeds, "-verbosity=0", *options], lambda data: attempt(target, data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
