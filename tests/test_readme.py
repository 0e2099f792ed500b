"""What the README shows is true: its Python runs, its commands are there, its tree is the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block: its language, the line where its text starts, its text."""

    language: str
    line: int
    text: str


def blocks(markdown: str) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", markdown, re.MULTILINE | re.DOTALL):
        found.append(Block(match[1], markdown[: match.start(2)].count("\n"), match[2]))
    return found


RUNNER = """
import sys
from pathlib import Path

for file in sys.argv[1:]:
    exec(compile(Path(file).read_text(encoding="utf-8"), "README.md", "exec"), globals())
"""


def test_every_python_block_runs(tmp_path: Path) -> None:
    """One after the other in a new process, in an empty folder; what they print is shown where one fails."""
    python = [block for block in blocks(README) if block.language == "python"]
    assert len(python) >= 2
    files = []
    for number, block in enumerate(python):
        files.append(tmp_path / f"block{number}.txt")
        files[-1].write_text("\n" * block.line + block.text, encoding="utf-8")  # so that line numbers are the README's
    (tmp_path / "runner.py").write_text(RUNNER, encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    if "runs/demo" in "".join(block.text for block in python):
        quick_demo_run(work / "runs" / "demo")
    command = [sys.executable, "-W", "error", str(tmp_path / "runner.py"), *map(str, files)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def quick_demo_run(folder: Path) -> None:
    """Stands in for what `make demo` leaves."""
    import harmonium
    from harmonium.demo import SETTINGS

    harmonium.train(sets=[*SETTINGS, "train.epochs=1"], data="atlas", out=folder)


def test_commands_it_names_are_there() -> None:
    from harmonium import cli

    commands = {command.callback.__name__ for command in cli.app.registered_commands}
    used = set(re.findall(r"harmonium(?: --plugin \S+)? ([a-z]+)\b(?=[ `\n])", "\n".join(shell_lines())))
    assert "train" in used
    assert used <= commands


def shell_lines() -> list[str]:
    """What stands in shell blocks and in backticks."""
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL))
    fenced = [
        line for block in blocks(README) if block.language in ("", "sh", "bash") for line in block.text.split("\n")
    ]
    return [line.strip() + " " for line in (*inline, *fenced) if line.strip().startswith("harmonium")]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_does_what_it_says(target: str) -> None:
    assert re.search(rf"\bmake {target}\b", README)
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert {"demo": "harmonium demo", "test": "pytest"}[target] in done.stdout


def tree_entries(text: str) -> list[tuple[Path, str]]:
    """(path, annotation) of every line of an indented (or drawn) tree."""
    entries: list[tuple[Path, str]] = []
    above: list[tuple[int, Path]] = []
    for line in text.splitlines():
        match = re.match(r"^([\s│├└─]*)([\w.\-/]+)\s*(.*)$", line)
        if match is None:
            continue
        depth, name, note = len(match[1]), match[2], match[3]
        above = [(column, path) for column, path in above if column < depth]
        path = (above[-1][1] if above else Path()) / name
        if name.endswith("/"):
            above.append((depth, path))
        entries.append((path, note))
    return entries


def test_the_tree_is_read_by_its_indent() -> None:
    drawn = "src/\n├── a.py   first\n├── b/\n│   └── c.py  third\ntests/  x.py"
    assert [str(path) for path, _ in tree_entries(drawn)] == ["src", "src/a.py", "src/b", "src/b/c.py", "tests"]
    plain = "src/x/\n  a.py   first\n  b/     second\ndocs/   last"
    assert [str(path) for path, _ in tree_entries(plain)] == ["src/x", "src/x/a.py", "src/x/b", "docs"]


def test_every_path_of_the_tree_exists() -> None:
    trees = [block for block in blocks(README) if "src/harmonium/" in block.text]
    assert len(trees) == 1
    entries = tree_entries(trees[0].text)
    assert len(entries) > 10
    missing = [str(path) for path, _ in entries if not (ROOT / path).exists()]
    for path, note in entries:
        if (ROOT / path).is_dir():  # files and folders that the note of a folder names
            inside = re.findall(r"\b([\w\-]+(?:\.py|\.md|\.toml|/))(?=[\s,:;)]|$)", note)
            missing += [f"{path}/{name}" for name in inside if not (ROOT / path / name).exists()]
    assert missing == []


def test_every_module_is_in_the_tree() -> None:
    """Modules at the top of the package; what is in a folder is covered by the folder."""
    (tree,) = [block for block in blocks(README) if "src/harmonium/" in block.text]
    listed = {path.name for path, _ in tree_entries(tree.text)}
    package = ROOT / "src" / "harmonium"
    modules = {p.name for p in package.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert sorted(modules - {"__main__.py"} - listed) == []


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", README)
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (ROOT / link).exists()] == []
