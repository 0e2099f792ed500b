"""CONTRIBUTING.md holds: its code, applied to a copy of the repository, adds one of each kind, and their tests pass.

A block says in its first line where it goes: `# at the end of PATH`, `# new file PATH`, or `# in PATH, in place of: TEXT`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from markdown_blocks import Block, blocks

ROOT = Path(__file__).parents[2]
ADDED = ("shifted", "arrow", "relations", "degree")  # a composition, a format, a command, a family
PENDING = r"## Add a loss.*?(?=^## )"  # not yet declared once
TESTS = (  # those that are parametrised by what is declared
    "tests/test_everything_is_tested.py",
    "tests/model",
    "tests/kernels/test_pruning.py",
    "tests/grammar/test_exactness.py",
    "tests/grammar/test_families.py",
    "tests/data/formats/test_convert.py",
    "tests/data/formats/test_arrow.py",
    "tests/cli/test_app.py",
    "tests/cli/test_formats.py",
    "tests/cli/test_graphs.py",
)


def apply(block: Block, root: Path) -> None:
    """Do what a contributor would: write a new file, add to the end of one, or change a line."""
    if change := re.match(r"# in (\S+), in place of: (.+)\n", block.text):
        path, old = root / change[1], change[2]
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"CONTRIBUTING.md:{block.line}: '{old}' is to occur once in {change[1]}"
        path.write_text(text.replace(old, block.text[change.end() :].rstrip("\n")), encoding="utf-8")
        return
    match = re.match(r"# (at the end of|new file) (\S+)\n", block.text)
    assert match, f"CONTRIBUTING.md:{block.line}: the first line of a block says where it goes"
    path, is_new = root / match[2], match[1] == "new file"
    assert path.exists() != is_new, f"CONTRIBUTING.md:{block.line}: {match[0].strip()}"
    earlier = "" if is_new else path.read_text(encoding="utf-8") + "\n\n"
    path.write_text(earlier + block.text[match.end() :], encoding="utf-8")


def run(root: Path, *arguments: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(root / folder) for folder in ("src", "tests")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the code of CONTRIBUTING.md in it."""
    root = tmp_path_factory.mktemp("contributed")
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "corpus"))
    shutil.copy(ROOT / "pyproject.toml", root)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for block in blocks(re.sub(PENDING, "", text, flags=re.DOTALL | re.MULTILINE)):
        if block.language == "python":
            apply(block, root)
    return root


@pytest.mark.slow
def test_what_contributing_adds_passes_its_tests(contributed: Path) -> None:
    words = " or ".join(ADDED)
    options = ("-rp", "-n0", "-p", "no:cacheprovider", "-m", "not slow and not network")
    printed = run(contributed, "-m", "pytest", *options, "-k", words, *TESTS)
    for name in ADDED:
        assert re.search(rf"PASSED .*{name}", printed), name


@pytest.mark.slow
def test_what_contributing_adds_can_be_used(contributed: Path) -> None:
    (contributed / "small.tsv").write_text("a\tr\tb\nb\tr\tc\nc\ts\ta\n", encoding="utf-8")
    assert run(contributed, "-m", "harmonium", "relations", "small.tsv").split() == ["r", "s"]
    run(contributed, "-m", "harmonium", "convert", "small.tsv", "small.arrow")
    assert "arrow" in run(contributed, "-m", "harmonium", "convert", "--help")
    settings = ("--set", "model.composition=shifted", "--set", "train.epochs=1")
    run(contributed, "-m", "harmonium", "train", "small.arrow", "--preset", "paper", *settings, "--out", "run")
