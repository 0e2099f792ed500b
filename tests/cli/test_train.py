"""The commands train, resume and plan."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import harmonium
from command_line import FAST, settings


def test_train_prints_what_it_reached_and_where(workspace: Path, run: Path) -> None:
    out, err = ((workspace / name).read_text(encoding="utf-8") for name in ("out.txt", "err.txt"))
    assert "Graph 'family': 40 entities, 3 relations; train 100, valid 10, test 10" in out
    assert "run folder: runs/family\n" in out
    assert re.search(r"protocol: test heads and tails, filtered by train\+valid\+test", out)
    assert re.search(r"training 100% +epoch 20, loss", err)
    trained = harmonium.Run.load(run)
    assert re.search(rf"model .*\b{trained.metrics['mrr']:.3f}\b", out)
    assert re.search(rf"rules baseline .*\b{trained.evaluation.baselines['rules']['mrr']:.3f}\b", out)
    assert trained.metrics["mrr"] > 3 * trained.evaluation.baselines["frequency"]["mrr"]
    assert (trained.config.model.composition, trained.config.data) == ("complex", "family")
    assert f"training with {trained.history.backend}\n" in err


def test_train_takes_a_file_and_set_wins_over_it(call, workspace: Path, tmp_path: Path) -> None:
    config, data = tmp_path / "config.toml", str(workspace / "family")
    config.write_text(f"data = {json.dumps(data)}\n[model]\nentity_dim = 4\n[train]\nepochs = 2\n", encoding="utf-8")
    out = tmp_path / "a" / "folder" / "with-a-very-long-name-that-no-terminal-of-eighty-columns-could-hold" / "run"
    result = call("train", config, "--set", "train.epochs=1", "--out", out)
    assert (result.code, f"run folder: {out}\n" in result.out) == (0, True)
    trained = harmonium.Run.load(out).config
    assert (trained.train.epochs, trained.model.entity_dim, trained.data) == (1, 4, data)
    more = settings("train.epochs=1", "train.seed=5")
    assert call("train", config, *more, "--out", out, "--overwrite").code == 0
    assert harmonium.Run.load(out).config.train.seed == 5


def test_export_and_train_from_it_with_a_log(call, workspace: Path, run: Path, tmp_path: Path) -> None:
    vectors, log = tmp_path / "my vectors.parquet", tmp_path / "log.csv"
    assert json.loads(call("export", run, vectors, "--format", "json").out) == {"written": [str(vectors)]}
    options = [*FAST, *settings("train.epochs=1", "train.learning_rate=1e-9"), "--init", vectors]
    out = tmp_path / "run"
    trained = call(
        "train", "--preset", "paper", "--data", workspace / "family", *options, "--out", out, "--track", f"csv:{log}"
    )
    assert trained.code == 0, trained.err
    old, new = (harmonium.Run.load(path).model.entities() for path in (run, out))
    assert (old - new).abs().max() < 1e-5
    assert "valid/mrr" in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_ctrl_c_saves_and_resume_continues(call, workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    endless = settings("train.epochs=100000", "train.patience=100000", "train.checkpoint_every=1")
    command = [
        sys.executable,
        "-m",
        "harmonium",
        "train",
        "--preset",
        "paper",
        "--data",
        str(workspace / "family"),
        "--out",
        str(out),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, *FAST, *endless], env=environment, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not any((out / "checkpoints").glob("0*.json")):
            time.sleep(0.02)
        second = call("resume", out)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=300)[1]
    assert (second.code, str(process.pid) in second.err) == (2, True)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert re.search(rf"`harmonium resume {out}` .*step \d", err)
    unfinished = call("evaluate", out)
    assert (unfinished.code, f"harmonium resume {out}" in unfinished.err) == (2, True)
    assert call("resume", out, "--set", "model.rank=2").code == 2
    quick = settings("train.patience=1", "train.evaluate_every=1", "train.checkpoint_every=none")
    resumed = call("resume", out, *quick)
    assert (resumed.code, "Link prediction on family" in resumed.words) == (0, True)
    again = call("resume", out)
    assert (again.code, "finished" in again.out.splitlines()[0]) == (0, True)


def test_plan_estimates_time_and_memory(call, workspace: Path) -> None:
    options = ["--data", workspace / "family", *FAST]
    result = call("plan", *options)
    assert result.code == 0, result.err
    assert "20 epochs of 4 steps on cpu" in result.words
    assert re.search(r"optimiser .* MB", result.words) and re.search(r"final evaluation .* m?s", result.words)
    estimate = json.loads(call("plan", *options, "--format", "json").out)
    assert (estimate["epochs"], estimate["fits"]) == (20, True)
    assert estimate["total_seconds"] >= 20 * estimate["steps"] * estimate["step_seconds"]
