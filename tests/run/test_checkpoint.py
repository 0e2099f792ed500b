"""A training that is stopped or killed continues as if it had not been; faults of disks, files and numbers do no harm."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import harmonium
import kills
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.run import checkpoint
from harmonium.run.selection import Selection, Task
from harmonium.runtime import folders
from harmonium.training import train as train_module
from harmonium.training.state import Progress, TrainingState
from harmonium.training.train import train
from kills import GRAPH, KINDS, checkpoints, config, largest_file, outcome, signal_at, stop

STEPS = 8  # of an epoch: 60 triples in batches of 8


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The outcome of an undisturbed training."""
    path = tmp_path_factory.mktemp("faults") / "whole"
    train(GRAPH, config(KINDS[0]), path)
    return outcome(path)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A training with checkpoints of steps 3 and 5."""
    stop(KINDS[0], tmp_path / "mine", 5)
    return tmp_path / "mine"


@pytest.mark.slow
def test_a_training_killed_at_many_moments_ends_the_same_to_the_byte(tmp_path: Path) -> None:
    script, count = Path(kills.__file__), 12 * int(os.environ.get("ATTACK", "1"))
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parent)}
    command = [sys.executable, script, tmp_path, str(count), "0"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kills"] >= count
    assert (result["different"], result["lost"], result["left"]) == ([], [], [])


def test_a_training_whose_settings_a_search_chose_is_known_by_those_it_was_given(tmp_path: Path) -> None:
    """torchrun starts the same command again: it continues after the search too."""
    given, folder = config(KINDS[0]), tmp_path / "mine"
    chosen = replace(given, train=replace(given.train, n3=0.3))
    selection = Selection({}, [], [], {}, 0, 1.0, 0.0)
    with checkpoint.begin(folder, False, given, GRAPH, "cpu", task=Task({}, [], None)) as saving:
        saving.decide(chosen, selection)
        assert checkpoint.given_settings(folder) == given
    with checkpoint.reopen(folder, {}) as (saving, settings, _):
        assert (saving.task, saving.selection, settings) == (None, selection, chosen)


# Signals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_waits_for_the_step_saves_and_says_how_to_resume(number: int, code: int, tmp_path: Path) -> None:
    path, handler = tmp_path / "mine", signal.getsignal(number)
    interrupted = stop(KINDS[0], path, 5, number)
    assert f"`harmonium resume {path}` continues from step 5" in str(interrupted)
    assert (interrupted.code, signal.getsignal(number)) == (code, handler)
    with pytest.raises(HarmoniumError, match=f"not finished; `harmonium resume {path}`"):
        harmonium.Run.load(path)
    with pytest.raises(HarmoniumError, match=r"not finished: `harmonium resume .*--overwrite"):
        train(GRAPH, config(KINDS[0]), path)


def test_a_second_signal_acts_at_once(tmp_path: Path) -> None:
    def progress(now: Progress) -> None:
        if now.step == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("still running")

    with pytest.raises(Interrupted, match="continues from step 3"):
        train(GRAPH, config(KINDS[0]), tmp_path / "mine", progress=progress)


def test_a_signal_that_is_ignored_from_the_start_does_not_stop_a_training(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a background job
    try:
        run = train(GRAPH, config(KINDS[0]), tmp_path / "mine", progress=signal_at(5))
        assert (run.path, signal.getsignal(signal.SIGINT)) == (tmp_path / "mine", signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_during_the_evaluation_loses_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps = tmp_path / "mine", []
    train(GRAPH, config("train.patience=9"), tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Interrupted, match=rf"continues from step {9 * STEPS}$"):
        patch.setattr(train_module, "evaluate_with_baselines", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        train(GRAPH, config("train.patience=9"), path)
    harmonium.resume(path, progress=steps.append)
    assert {step.stage for step in steps} == {"evaluating"}
    assert outcome(path) == outcome(tmp_path / "whole")


# When checkpoints are written, and by whom ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "saved"),
    [
        ("checkpoint_every=4 train.checkpoint_keep=3", [16, 20, 22]),
        ("checkpoint_every=none train.checkpoint_keep=9 train.checkpoint_minutes=1e-9", list(range(14, 23))),
        ("checkpoint_every=none train.checkpoint_keep=9 train.checkpoint_minutes=inf", [22]),
    ],
)
def test_checkpoints_are_written_by_steps_or_the_clock_and_the_last_are_kept(
    settings: str, saved: list[int], tmp_path: Path
) -> None:
    stop(f"train.{settings}", tmp_path / "mine", 22)
    manifests = sorted((tmp_path / "mine" / "checkpoints").glob("0*.json"))
    assert [json.loads(file.read_bytes())["steps"] for file in manifests] == saved
    assert len(checkpoints(tmp_path / "mine")) == 2 * len(saved)


def test_only_one_process_trains_into_a_folder(stopped: Path) -> None:
    message = rf"mine is being trained by another process \({os.getpid()}\)"
    with folders.locked(stopped):
        with pytest.raises(HarmoniumError, match=message):
            harmonium.resume(stopped)
        for overwrite in (False, True):
            with pytest.raises(HarmoniumError, match=message):
                train(GRAPH, config(KINDS[0]), stopped, overwrite=overwrite)
    (stopped / "checkpoints" / "lock").write_text("999999999")  # of a process that was killed
    assert harmonium.resume(stopped).metrics


# Earlier contents of the folder --------------------------------------------------------------------------------------


def test_an_earlier_run_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    train(GRAPH, config(KINDS[0]), path)
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(Interrupted):
        train(GRAPH, config("train.seed=1"), path, overwrite=True, progress=signal_at(9))
    assert {file: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    assert harmonium.resume(path).config.train.seed == 1
    assert harmonium.Run.load(path).config.train.seed == 1


# Resuming ------------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path, expected: dict[str, str]) -> None:
    train(GRAPH, config(KINDS[0]), tmp_path / "mine")
    assert harmonium.resume(tmp_path / "mine").path == tmp_path / "mine"
    assert outcome(tmp_path / "mine") == expected
    with pytest.raises(HarmoniumError, match="mine is finished"):
        harmonium.resume(tmp_path / "mine", overrides=["train.epochs=99"])
    with pytest.raises(HarmoniumError, match="gone: no such run folder"):
        harmonium.resume(tmp_path / "gone")


def test_some_settings_can_change(stopped: Path) -> None:
    with pytest.raises(Interrupted):
        harmonium.resume(stopped, ["train.learning_rate=0.5", "train.epochs=4"], progress=signal_at(7))
    resumed = harmonium.resume(stopped)
    assert (resumed.config.train.learning_rate, len(resumed.history.rows)) == (0.5, 4)
    assert resumed.fingerprint != train(GRAPH, config("train.epochs=4")).fingerprint


def test_other_settings_and_fewer_epochs_than_are_done_are_refused(tmp_path: Path) -> None:
    stop(KINDS[0], tmp_path / "mine", 3 * STEPS + 1)
    for change in ("model.entity_dim=8", "train.seed=1", "train.batch_size=4", "train.optimiser=adagrad"):
        with pytest.raises(HarmoniumError, match="only train.learning_rate, "):
            harmonium.resume(tmp_path / "mine", [change])
    with pytest.raises(HarmoniumError, match="train.epochs=3 is too few.*epoch 4"):
        harmonium.resume(tmp_path / "mine", ["train.epochs=3"])
    assert len(harmonium.resume(tmp_path / "mine", ["train.epochs=4"]).history.rows) == 4


# Disks ---------------------------------------------------------------------------------------------------------------


def test_a_full_disk_does_not_stop_training_and_the_run_can_be_saved_later(
    tmp_path: Path, expected: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mine"

    def progress(now: Progress) -> None:
        if now.step == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))

    message = (
        rf"cannot be written \(File too large\); nor to another .*`harmonium resume {path} .*` continues from step 9"
    )
    with largest_file(1 << 30), pytest.raises(HarmoniumError, match=message):
        train(GRAPH, config(KINDS[0]), path, progress=progress)
    assert "no checkpoint at step 12 (File too large)" in caplog.messages[0]
    assert checkpoints(path)[-1] == "000003.safetensors"
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
    assert not list((path / "checkpoints").glob("*.draft"))
    harmonium.resume(path)
    assert outcome(path) == expected


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write anywhere, so become another user for a while."""
    user = os.geteuid()
    try:
        os.seteuid(user or 65534)
        yield
    finally:
        os.seteuid(user)


def test_a_read_only_folder_is_reported_before_any_work(expected: dict[str, str]) -> None:
    steps: list[Progress] = []
    with tempfile.TemporaryDirectory() as temporary:
        parent, path = Path(temporary), Path(temporary) / "begun"
        stop(KINDS[0], path, 5)
        for folder in (path, path / "checkpoints", parent):
            folder.chmod(0o555)
        with ordinary_user():
            with pytest.raises(HarmoniumError, match="cannot be written"):
                train(GRAPH, config(KINDS[0]), parent / "new", progress=steps.append)
            with pytest.raises(HarmoniumError, match="cannot be written"):
                harmonium.resume(path, progress=steps.append)
        for folder in (parent, path, path / "checkpoints"):
            folder.chmod(0o755)
        assert steps == []
        assert [entry.name for entry in parent.iterdir()] == ["begun"]
        harmonium.resume(path)
        assert outcome(path) == expected


# Damaged files -------------------------------------------------------------------------------------------------------


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def cut(path: Path, share: float) -> None:
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


DAMAGE = pytest.mark.parametrize(("damage", "share"), [(flip, 0.4), (cut, 0), (cut, 0.9)])
Damage = Callable[[Path, float], None]


@DAMAGE
@pytest.mark.parametrize("file", ["000001.json", "000001.safetensors", "000002.json", "000002.safetensors"])
def test_a_damaged_checkpoint_is_skipped(
    stopped: Path, expected: dict[str, str], file: str, damage: Damage, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    damage(stopped / "checkpoints" / file, share)
    harmonium.resume(stopped)
    assert outcome(stopped) == expected
    warnings = [text for text in caplog.messages if "continuing from the checkpoint before it" in text]
    assert len(warnings) == len(caplog.messages) == file.startswith("000002")


# Numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("parameter", ["entity", "relation"])
def test_broken_numbers_stop_training_and_keep_the_last_good_checkpoint(
    value: float, parameter: str, tmp_path: Path, expected: dict[str, str]
) -> None:
    path, steps, end_step = tmp_path / "mine", [], TrainingState.end_step

    def break_after_six(state: TrainingState, *arguments: Tensor | None) -> None:
        end_step(state, *arguments)
        steps.append(state.steps)
        if state.steps == 6:
            with torch.no_grad():
                getattr(state.model, parameter)[0] = value

    with pytest.MonkeyPatch.context() as patch, pytest.raises(HarmoniumError) as caught:
        patch.setattr(TrainingState, "end_step", break_after_six)
        train(GRAPH, config(KINDS[0]), path)
    assert "in epoch 1; lower train.learning_rate (0.003)" in str(caught.value)
    assert f"`harmonium resume {path} --set KEY=VALUE` continues from step 3" in str(caught.value)
    assert steps[-1] == 6  # noticed before the checkpoint of that step was written
    harmonium.resume(path)
    assert outcome(path) == expected
