"""Every number in the docs comes from results/*.json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_docs_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "render.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_results_say_how_they_were_made() -> None:
    for path in (ROOT / "results").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert "command" in found, path.name
        assert "device" in found or "device" in found["environment"], path.name
