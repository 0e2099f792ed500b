"""The command of a benchmark as a reader can repeat it: files by name, without the folders of this machine."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def portable_command(script: str, arguments: Sequence[str] | None = None) -> str:
    """`python benchmarks/SCRIPT ...`; the arguments are those of this process unless given."""
    words = sys.argv[1:] if arguments is None else arguments
    return f"python benchmarks/{script} {shlex.join(Path(word).name if _is_file(word) else word for word in words)}"


def _is_file(word: str) -> bool:
    """A graph, a file of results or an absolute path; recipes have names with slashes too."""
    return word.endswith((".graph", ".json")) or Path(word).is_absolute()
