"""The README is true: its Python runs, its commands and make targets exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from harmonium.cli.app import app
from markdown_blocks import blocks, shell_commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MINUTES = re.compile(r"minutes=\d+")


@pytest.mark.slow
def test_every_python_block_runs(tmp_path: Path) -> None:
    """In one new process and an empty folder, with a few seconds of training."""
    python = [block for block in blocks(README) if block.language == "python"]
    assert python and MINUTES.search(python[0].text)
    code = MINUTES.sub("minutes=0.1", "\n".join(block.text for block in python))
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_the_metric_it_quotes_is_that_of_a_result() -> None:
    result = json.loads((ROOT / "results" / "atlas-minute.json").read_text(encoding="utf-8"))
    code = next(block.text for block in blocks(README) if block.language == "python")
    assert MINUTES.search(code)[0] == f"minutes={result['minutes']:g}"
    assert f"# {result['metrics']['mrr']:.2f}," in code


def test_commands_it_names_exist() -> None:
    commands = typer.main.get_command(app).commands
    names = [shlex.split(line)[1] for line in shell_commands(README)]
    assert names and set(names) <= set(commands)


@pytest.mark.parametrize(("target", "command"), [("demo", "harmonium demo"), ("test", "pytest")])
def test_make_targets_exist(target: str, command: str) -> None:
    assert re.search(rf"\bmake {target}\b", README)
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert command in done.stdout
