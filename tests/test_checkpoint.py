"""Training that stops, by will or by force, goes on as if it had not. Faults are in test_faults.py."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium import checkpoint, commands, folder, run
from harmonium.errors import HarmoniumError, Stopped
from harmonium.training import Progress
from kills import GRAPH, KINDS, config, outcome

STEPS = 8  # of an epoch: 60 triples in batches of 8


def told_at(steps: set[int], number: int = signal.SIGINT) -> Callable[[Progress], None]:
    """Send this process a signal in the middle of these steps."""

    def watch(now: Progress) -> None:
        if now.step in steps:
            os.kill(os.getpid(), number)

    return watch


def stop(kind: str, path: Path, step: int, number: int = signal.SIGINT) -> Stopped:
    """Begin a training and stop it."""
    with pytest.raises(Stopped) as caught:
        commands.train(config(kind), GRAPH, path, watch=told_at({step}, number))
    return caught.value


def checkpoints(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "checkpoints").iterdir() if file.name[0].isdigit())


def test_a_training_killed_at_fifty_moments_ends_the_same_to_the_byte(tmp_path: Path) -> None:
    script = Path(__file__).with_name("kills.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parent)}
    done = subprocess.run(
        [sys.executable, script, tmp_path, "50", "0"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= 50
    assert (found["different"], found["lost"], found["left"]) == ([], [], [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_stopped_again_and_again_ends_the_same_to_the_byte(kind: str, tmp_path: Path) -> None:
    """In the middle of an epoch, at its end, before and after a validation, and one step after going on."""
    commands.train(config(kind), GRAPH, tmp_path / "whole")
    stop(kind, tmp_path / "stopped", 3)
    for step in (STEPS, 2 * STEPS, 2 * STEPS + 1, 2 * STEPS + 2, 3 * STEPS):
        with pytest.raises(Stopped, match=f"goes on from step {step}$"):
            harmonium.resume(tmp_path / "stopped", watch=told_at({step}))
    harmonium.resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
    assert not (tmp_path / "stopped" / "checkpoints").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints_do_not_change_the_result(kind: str, tmp_path: Path) -> None:
    with_many = commands.train(config(f"{kind} train.checkpoint_every=1"), GRAPH, tmp_path / "mine")
    without = commands.train(config(kind), GRAPH)
    expected = without.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in with_many.model.state_dict().items())
    assert with_many.metrics == without.metrics


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_waits_for_the_step_saves_and_says_how_to_go_on(number: int, code: int, tmp_path: Path) -> None:
    path, before = tmp_path / "mine", signal.getsignal(number)
    stopped = stop(KINDS[0], path, 5, number)
    assert str(stopped) == f"stopped; `harmonium resume {path}` goes on from step 5"
    assert stopped.code == code
    assert signal.getsignal(number) is before
    with pytest.raises(HarmoniumError, match=f"training has not finished; `harmonium resume {path}` goes on with it"):
        harmonium.Run.load(path)
    with pytest.raises(HarmoniumError, match="has not finished: `harmonium resume .*--overwrite starts again"):
        commands.train(config(KINDS[0]), GRAPH, path)


def test_a_second_signal_acts_at_once(tmp_path: Path) -> None:
    def watch(now: Progress) -> None:
        if now.step == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("still here")

    with pytest.raises(Stopped, match="goes on from step 3"):
        commands.train(config(KINDS[0]), GRAPH, tmp_path / "mine", watch=watch)


def test_an_interrupt_while_evaluating_loses_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "mine", []
    with monkeypatch.context() as patch, pytest.raises(Stopped, match=rf"goes on from step {9 * STEPS}$"):
        patch.setattr(commands, "_metrics", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        commands.train(config("train.patience=9"), GRAPH, path)
    assert harmonium.resume(path, watch=seen.append).metrics
    assert seen == []
    commands.train(config("train.patience=9"), GRAPH, tmp_path / "whole")
    assert outcome(path) == outcome(tmp_path / "whole")


def test_checkpoints_come_by_steps_and_the_last_are_kept(tmp_path: Path) -> None:
    stop("train.checkpoint_every=4 train.checkpoint_keep=3", tmp_path / "mine", 22)
    names = ["000004.json", "000004.safetensors", "000005.json", "000005.safetensors"]
    assert checkpoints(tmp_path / "mine") == [*names, "000006.json", "000006.safetensors"]
    steps = [json.loads((tmp_path / "mine" / "checkpoints" / name).read_bytes())["steps"] for name in names[::2]]
    assert steps == [16, 20]


@pytest.mark.parametrize(("minutes", "count"), [("1e-9", 6), ("inf", 1)])
def test_checkpoints_come_by_the_clock(minutes: str, count: int, tmp_path: Path) -> None:
    more = f"train.checkpoint_minutes={minutes} train.checkpoint_every=none train.checkpoint_keep=9"
    stop(more, tmp_path / "mine", 6)
    assert len(checkpoints(tmp_path / "mine")) == 2 * count


def test_a_folder_is_trained_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    stop(KINDS[0], path, 5)
    words = rf"mine is being trained by another process \({os.getpid()}\); wait for it, or stop it with `kill"
    with folder.locked(path):
        for start in (
            lambda: harmonium.resume(path),
            lambda: commands.train(config(KINDS[0]), GRAPH, path),
            lambda: commands.train(config(KINDS[0]), GRAPH, path, overwrite=True),
        ):
            with pytest.raises(HarmoniumError, match=words):
                start()
    (path / "checkpoints" / "lock").write_text("999999999")  # of a process that was killed
    assert harmonium.resume(path).metrics


def test_a_lock_got_too_late_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process finished between opening the lock file and locking it."""
    import fcntl

    path, flock = tmp_path / "mine", fcntl.flock
    stop(KINDS[0], path, 5)

    def finish_first(file, how: int) -> None:
        (path / "checkpoints" / "lock").unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", finish_first)
    with pytest.raises(HarmoniumError, match="was finished by another process just now"):
        harmonium.resume(path)


def test_an_earlier_run_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    commands.train(config(KINDS[0]), GRAPH, path)
    before = outcome(path)
    with pytest.raises(Stopped):
        commands.train(config("train.seed=1"), GRAPH, path, overwrite=True, watch=told_at({9}))
    assert harmonium.Run.load(path).config.train.seed == 0
    assert {k: v for k, v in before.items() if (path / k).read_bytes().hex() == v}
    assert harmonium.resume(path).config.train.seed == 1
    assert harmonium.Run.load(path).config.train.seed == 1


def test_overwriting_starts_again(tmp_path: Path) -> None:
    path, seen = tmp_path / "mine", []
    stop(KINDS[0], path, 20)
    commands.train(config(KINDS[1]), GRAPH, path, overwrite=True, watch=seen.append)
    assert seen[0].step == 1
    commands.train(config(KINDS[1]), GRAPH, tmp_path / "whole")
    assert outcome(path) == outcome(tmp_path / "whole")


def test_a_process_killed_before_it_began_leaves_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "data.graph.draft").write_text("half")
    with pytest.raises(HarmoniumError, match="no run.json in it"):
        harmonium.resume(tmp_path / "mine")
    assert commands.train(config(KINDS[0]), GRAPH, tmp_path / "mine").metrics
    assert not (tmp_path / "mine" / "checkpoints").exists()


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path: Path) -> None:
    stop(KINDS[0], tmp_path / "mine", 5)
    left = [tmp_path / "mine" / "checkpoints" / name for name in ("000008.safetensors", "000008.json.draft")]
    for file in left:
        file.write_bytes(b"half")
    with pytest.raises(Stopped):
        harmonium.resume(tmp_path / "mine", watch=told_at({6}))
    assert not any(file.exists() for file in left)


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path) -> None:
    commands.train(config(KINDS[0]), GRAPH, tmp_path / "mine")
    before = outcome(tmp_path / "mine")
    assert harmonium.resume(tmp_path / "mine").path == tmp_path / "mine"
    assert outcome(tmp_path / "mine") == before
    with pytest.raises(HarmoniumError, match="mine is finished, so its settings stay"):
        harmonium.resume(tmp_path / "mine", sets=["train.epochs=99"])
    with pytest.raises(HarmoniumError, match="gone: no such run folder"):
        harmonium.resume(tmp_path / "gone")


def test_settings_of_the_training_may_change_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    stop(KINDS[0], path, 5)
    with pytest.raises(Stopped):
        harmonium.resume(path, ["train.learning_rate=0.5", "train.epochs=4"], watch=told_at({7}))
    found = harmonium.resume(path)
    assert (found.config.train.learning_rate, len(found.history.rows)) == (0.5, 4)
    commands.train(config("train.epochs=4"), GRAPH, tmp_path / "other")
    assert outcome(path)["model.safetensors"] != outcome(tmp_path / "other")["model.safetensors"]


@pytest.mark.parametrize(
    "change", ["model.entity_dim=8", "train.seed=1", "train.batch_size=4", "train.optimizer=adagrad"]
)
def test_what_would_be_another_training_is_refused(change: str, tmp_path: Path) -> None:
    stop(KINDS[0], tmp_path / "mine", 5)
    with pytest.raises(
        HarmoniumError, match="only train.learning_rate, .* can change on the way; for another training"
    ):
        harmonium.resume(tmp_path / "mine", [change])
    assert harmonium.resume(tmp_path / "mine").metrics


def test_fewer_epochs_than_there_were_is_refused(tmp_path: Path) -> None:
    stop(KINDS[0], tmp_path / "mine", 3 * STEPS + 1)
    with pytest.raises(HarmoniumError, match="training is in epoch 4 already, so train.epochs=3 is too few; say --set"):
        harmonium.resume(tmp_path / "mine", ["train.epochs=3"])
    assert len(harmonium.resume(tmp_path / "mine", ["train.epochs=4"]).history.rows) == 4


def test_going_on_elsewhere_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop(KINDS[0], tmp_path / "mine", 5)
    monkeypatch.setattr(commands, "environment", lambda: run.environment() | {"torch": "9.9"})
    caplog.clear()
    with caplog.at_level(logging.WARNING, "harmonium"):
        harmonium.resume(tmp_path / "mine")
    assert len(caplog.messages) == 1
    assert "here 9.9): it may end otherwise in the last digits" in caplog.messages[0]


def test_a_training_goes_on_where_it_was_moved(tmp_path: Path) -> None:
    commands.train(config(KINDS[0]), GRAPH, tmp_path / "whole")
    stop(KINDS[0], tmp_path / "here", 5)
    (tmp_path / "here").rename(tmp_path / "there")
    harmonium.resume(tmp_path / "there")
    assert outcome(tmp_path / "there") == outcome(tmp_path / "whole")


def test_the_settings_that_may_change_are_settings() -> None:
    assert set(checkpoint.MAY_CHANGE) <= set(vars(config(KINDS[0]).train))
