"""Users' type checkers know the whole public API, methods of a run included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harmonium.run.methods import NAMES

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "typed_script.py"


@pytest.mark.slow
def test_a_users_script_is_typed_strictly() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(SCRIPT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_the_script_uses_every_method_of_a_run() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    assert all(f"run.{name}(" in text for name in NAMES)
