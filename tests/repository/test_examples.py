"""The notebooks in examples/ run without a warning, and are stored without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
RUNNER = """
import ast, json, sys

for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]), "cell " + cell["id"])
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell " + cell["id"], "exec"), globals())
        value = eval(compile(last, "cell " + cell["id"], "eval"), globals()) if last else None
        if type(value).__module__.startswith(("harmonium.", "pandas.")):  # as Jupyter shows it
            assert "<table" in value._repr_html_(), cell["id"]
            print("displayed", cell["id"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_notebook_runs(file: Path, tmp_path: Path) -> None:
    """In one namespace and an empty folder, as Jupyter would."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-X", "utf8", "-c", RUNNER, str(file)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert file.stem == "colab" or done.stdout.count("displayed") >= 8


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_notebook_has_no_outputs(file: Path) -> None:
    book = json.loads(file.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 3
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
