"""An update by judgements, killed at any operation on a file: neither the run nor the judgements are lost or changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import harmonium
from harmonium.review.apply import apply_judgements
from harmonium.review.store import ReviewStore, Shown, load_judgements
from harmonium.run.run import Run
from harmonium.training.refit import local_refit
from kills import is_killed
from small import CONFIGS, make_graph, save_untrained

TRIES = 8 * int(os.environ.get("ATTACK", "1"))
OPERATIONS = 60  # about as many as an update has


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(local_refit, "STEPS", 2, raising=False)
    return save_untrained(make_graph(), CONFIGS["reciprocal"], tmp_path / "demo")


def judge(path: Path, number: int) -> None:
    fact = f"e{number % 12}", "r0", f"new {number}"
    with ReviewStore.open(path) as store:
        store.add_reviewer("ana")
        store.judge("ana", Shown(fact, " ".join(fact), None, None, None, "by hand", ""), "accepted")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_killed_update_leaves_the_run_and_the_judgements(folder: Path, tmp_path: Path) -> None:
    path, before = tmp_path / "demo.review.sqlite", contents(folder)
    judge(path, 0)
    judge(path, 1)
    judgements, finished, killed = load_judgements(path), 0, 0
    apply_judgements(folder, path)  # what torch imports on first use is imported before forking
    for number in range(TRIES):
        out = tmp_path / f"out {number}"
        operation = 1 + (number * 997) % OPERATIONS
        killed += is_killed(lambda out=out: apply_judgements(folder, path, out=out), at_operation=operation)
        assert contents(folder) == before
        assert load_judgements(path) == judgements
        if out.exists():
            assert len(Run.load(out).updates) == 1
            finished += 1
        again = apply_judgements(folder, path, out=out, overwrite=True)
        assert Run.load(out).fingerprint == again.fingerprint
        assert not list(tmp_path.glob(f".{out.name}*"))  # what the killed process left is gone
    assert killed > TRIES // 2


def test_a_killed_update_in_place_leaves_the_run_before_or_after(folder: Path, tmp_path: Path) -> None:
    path, before = tmp_path / "demo.review.sqlite", Run.load(folder).fingerprint
    judge(path, 0)
    apply_judgements(folder, path)
    for number in range(TRIES):
        operation = 1 + (number * 997) % OPERATIONS
        is_killed(lambda: apply_judgements(folder, path, out=folder, overwrite=True), at_operation=operation)
        run = Run.load(folder)
        assert (run.fingerprint == before) == (not run.updates)
        if run.updates:
            harmonium.update(folder, undo=True, out=folder, overwrite=True)
    assert Run.load(folder).fingerprint == before
