"""What all commands have in common: help, plugins, errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import harmonium
from command_line import FAST, shell
from harmonium.cli.app import COMMANDS as GROUPS
from harmonium.model.composition import Composition

COMMANDS = {command.__name__: command for group in GROUPS.values() for command in group}


def test_help_lists_every_command(call) -> None:
    printed = call("--help").out
    assert [name for name in COMMANDS if f" {name} " not in printed] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(call, name: str) -> None:
    result = call(name, "--help")
    assert (result.code, result.words.startswith(f"Usage: harmonium {name}")) == (0, True)
    assert f"Example: harmonium {name}" in result.words


def test_version() -> None:
    assert shell("--version") == (0, f"harmonium {harmonium.__version__}\n", "")


def test_output_on_a_full_disk_is_an_error() -> None:
    words = [sys.executable, "-m", "harmonium", "info", "atlas"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    message = "error: the output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr.splitlines(True)[-1]) == (2, message)


def test_piped_output_is_in_order_and_without_control_characters(workspace: Path, tmp_path: Path) -> None:
    """Results and progress in one pipe, as a log file has them."""
    words = ["train", "--preset", "paper", "--data", str(workspace / "family"), *FAST, "--out", str(tmp_path / "run")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "harmonium", *words],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("head = column 1, ") and lines[1].startswith("training with ")
    percentages = [int(match[1]) for line in lines if (match := re.match(r"training (\d+)%", line))]
    assert percentages == sorted(percentages) and percentages[-1] == 100
    order = [number for number, line in enumerate(lines) if re.match(r"training |Graph |trained |run folder", line)]
    assert order == sorted(order)
    starts = ["training 100%", "Graph 'family'", "Link prediction", "run folder"]
    numbers = [next(n for n, line in enumerate(lines) if line.startswith(start)) for start in starts]
    assert numbers == sorted(numbers)
    assert not re.search("[\0-\x09\x0b-\x1f\x7f]", done.stdout)


# Plugins -------------------------------------------------------------------------------------------------------------

PLUGIN = """
from harmonium import Composition


class Sandwich(Composition):
    def compose(self, head, relation, tail):
        return head * relation.roll(1, -1) * tail.flip(-1)
"""


def test_a_plugin_brings_a_composition(call, workspace: Path, tmp_path: Path) -> None:
    plugin, out = tmp_path / "sandwich.py", tmp_path / "run"
    plugin.write_text(PLUGIN, encoding="utf-8")
    options = [*FAST, "--set", "model.composition=sandwich", "--out", out]
    trained = shell("--plugin", plugin, "train", "--preset", "paper", "--data", workspace / "family", *options)
    assert trained.code == 0, trained.err
    missing = call("evaluate", out)
    assert (missing.code, "no composition 'sandwich'" in missing.err, "--plugin" in missing.err) == (2, True, True)
    evaluated = call("--plugin", plugin, "evaluate", out, "--format", "json")
    assert json.loads(evaluated.out)["metrics"] == harmonium.Run.load(out).metrics
    assert "sandwich" in Composition.registry  # until the end of this test


# Errors --------------------------------------------------------------------------------------------------------------

BAD = {
    "missing data": ("train --data nope", "no graph at 'nope'"),
    "wrong columns": ("train --data {space}/narrow", r"narrow/train\.txt:2: .*2 columns"),
    "unknown name": ("predict {run} --head persn_7 --relation next", "'persn_7' among 40; did you mean 'person 7'"),
    "existing out": ("train --data {space}/family --out {run}", "exists.*--out.*--overwrite"),
    "out is no run": ("train --data {space}/family --out {space}/family --overwrite", "not a run folder.*--out"),
    "not a run": ("evaluate {space}/family", r"family: no run\.json"),
    "unknown setting": ("train --set train.epoch=3", r"no setting 'train\.epoch'.*train\.epochs"),
    "bad toml": ("train {space}/bad.toml", r"bad\.toml: not TOML"),
    "no toml": ("train {space}/gone.toml", r"gone\.toml: .*No such file"),
    "unknown split": ("evaluate {run} --split dev", "train, valid, test, not 'dev'"),
    "bad by": ("evaluate {run} --by colour", "side, relation, category, not 'colour'"),
    "no name": ("predict {run}", "give two of head, relation and tail"),
    "bad plot": ("paper gain {run} --plot gain.txt", r"--plot gain\.txt.*\.png, \.pdf or \.svg"),
    "no labels": ("paper density {run} --labelled {space}/family/train.txt", r"train\.txt:1: .*3 columns.* 4"),
    "bad device": ("paper density {run} --device abacus", "'abacus'"),
    "bad role": ("similar {run} a --as next", "RELATION=ENTITY.*'next'"),
    "no labelled folder": ("classify {run} --labelled {space}/family", r"classification_valid\.txt.*No such file"),
    "bad triples": ("classify {run} --data {space}/narrow/train.txt", r"train\.txt:1: no entity named 'a'"),
    "broken plugin": ("--plugin {space}/broken.py info atlas", r"broken\.py: ZeroDivisionError: division by zero"),
    "no plugin": ("--plugin {space}/gone.py info atlas", r"gone\.py: not a Python file"),
    "demo elsewhere": ("demo --out {space}/family", "not a run folder"),
    "unknown relation": ("complete {run} --relation nexxt", "no relation named 'nexxt'"),
    "queries alone": ("predict {run} --queries {space}/bad.toml", "--queries FILE and --out FILE"),
    "out alone": ("predict {run} --head a --relation b --out a.tsv", "--queries FILE and --out FILE"),
    "serve address": ("serve {run} --host 192.0.2.1 --token 0123456789abcdef", r"cannot listen on 192\.0\.2\.1"),
}


@pytest.mark.parametrize(("command", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_message_and_code_2(
    call, workspace: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    (workspace / "narrow").mkdir(exist_ok=True)
    (workspace / "narrow" / "train.txt").write_text("a\tr\tb\na\tb\n")
    (workspace / "bad.toml").write_text("[train\n")
    (workspace / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    result = call(*command.format(space=workspace, run=run).split())
    assert (result.code, result.out) == (2, "")
    *readings, error = result.err.splitlines()
    assert error.startswith("error: ") and all(line.startswith("head = ") for line in readings)
    assert re.search(message, error)
    assert not list(tmp_path.rglob("run.json"))


def test_an_interrupt_is_code_130(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harmonium.run.run.open_graph", stop)
    assert call("info", "atlas").code == 130


def test_names_are_never_read_as_markup(call, tmp_path: Path) -> None:
    rows = "".join(f"[red]a{i}[/red]\t[link]\t[/b]{i}\n" for i in range(4))
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / "train.txt").write_text(rows, encoding="utf-8")
    out = tmp_path / "run[1]"
    assert (
        call("train", "--preset", "paper", "--data", tmp_path / "marked", "--set", "train.epochs=1", "--out", out).code
        == 0
    )
    table = call("predict", out, "--head", "[red]a1[/red]", "--relation", "[link]").out
    assert "([red]a1[/red], [link], ?)" in table
    assert "[/b]1" in table
    assert "[red]a0[/red] · [link] · [/b]0" in call("info", out).words
    assert "[red]a1[/red]" in call("similar", out, "[red]a1[/red]", "--as", "[link]=[/b]1").out
    assert "'[red]a9[/red]'" in call("predict", out, "--head", "[red]a9[/red]", "--relation", "[link]").err
