"""Small trainings to interrupt, and a program that kills real ones at random moments, resumes them and compares results.

python tests/kills.py FOLDER KILLS SEED prints JSON. Half of the kills come by the clock, half at the n-th operation on a
file. Processes are forked from this one, as importing torch takes longer than the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import harmonium
from harmonium.config.settings import Config
from harmonium.errors import Interrupted
from harmonium.runtime.folders import is_unfinished
from harmonium.training.state import Progress
from harmonium.training.train import resume, train
from small import make_graph

SETTINGS = [
    "model.composition=hole", "model.entity_dim=6", "train.batch_size=8", "train.negatives=3", "train.epochs=9",
    "train.evaluate_every=2", "train.patience=2", "train.checkpoint_every=3", "train.threads=1", "train.device=cpu",
]  # fmt: skip
KINDS = [
    "train.optimiser=adam",  # touched rows, full W
    "train.optimiser=adagrad model.rank=2 train.schedule=constant",
    "train.loss=full model.dropout=0.2 model.reciprocal=true",
    "train.optimiser=adagrad model.constraint=spectral",
    "model.harmony=false train.checkpoint_keep=1 train.checkpoint_every=1",
    "train.vector_dropout=0.2 train.composed_dropout=0.1 train.schedule=cosine",
    "train.loss=full train.composed_dropout=0.2 train.dura=0.01 train.label_smoothing=0.1",
]
GRAPH = make_graph(n_entities=150, sizes=(60, 12, 12))
FILE_OPERATIONS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "ctypes.dlsym"}


def config(kind: str) -> Config:
    return Config.read(None, [*SETTINGS, *kind.split()])


def signal_at(step: int, number: int = signal.SIGINT) -> Callable[[Progress], None]:
    """Send this process a signal in the middle of a step."""

    def progress(now: Progress) -> None:
        if now.step == step:
            os.kill(os.getpid(), number)

    return progress


def stop(kind: str, folder: Path, step: int, number: int = signal.SIGINT) -> Interrupted:
    """Begin a training and interrupt it in a step."""
    with pytest.raises(Interrupted) as caught:
        train(GRAPH, config(kind), folder, progress=signal_at(step, number))
    return caught.value


def checkpoints(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "checkpoints").iterdir() if file.name[0].isdigit())


def outcome(folder: Path) -> dict[str, str]:
    """The contents of a run without times: the seconds of its history, when it was made, and their checksums."""
    run, contents = harmonium.Run.load(folder), {file.name: file.read_bytes().hex() for file in folder.iterdir()}
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in run.history.rows]
    contents["history.jsonl"] = json.dumps(rows)
    manifest = json.loads((folder / "run.json").read_bytes())
    del manifest["made"], manifest["sha256"], manifest["files"]["history.jsonl"]
    contents["run.json"] = json.dumps(manifest)
    return contents


def resume_or_train(kind: str, folder: Path) -> None:
    """What a person does after a crash."""
    if is_unfinished(folder) or (folder / "run.json").exists():
        resume(folder)
    else:
        train(GRAPH, config(kind), folder)


def is_killed(job: Callable[[], object], after: float | None = None, at_operation: int | None = None) -> bool:
    """Run a job in a process of its own; whether the kill came before its end."""
    sys.stdout.flush()
    if (process := os.fork()) == 0:
        try:
            if at_operation is not None:
                die_at(at_operation)
            job()
            os._exit(0)
        finally:
            os._exit(1)
    if after is not None:
        time.sleep(after)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return True
    assert status == 0, "the job failed by itself"
    return False


def die_at(operation: int) -> None:
    """Kill this process before the n-th time that it opens, syncs, renames or removes a file."""
    left, fsync = operation, os.fsync

    def count(event: str, _: Any) -> None:
        nonlocal left
        if event in FILE_OPERATIONS or event == "fsync":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted_fsync(handle: int) -> None:
        count("fsync", None)
        fsync(handle)

    os.fsync = counted_fsync
    sys.addaudithook(count)


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to write more into one file, as when the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def main(root: Path, kills: int, seed: int) -> None:
    rng, done, different, lost = random.Random(seed), 0, [], []
    train(GRAPH, config(KINDS[0]))  # what torch imports on first use is imported before forking
    expected = {}
    for number, kind in enumerate(KINDS):
        began = time.perf_counter()
        assert not is_killed(lambda n=number, k=kind: train(GRAPH, config(k), root / f"whole{n}"))
        expected[kind] = outcome(root / f"whole{number}"), time.perf_counter() - began
    trajectories = 0
    while done < kills:
        kind, folder = KINDS[trajectories % len(KINDS)], root / f"killed{trajectories}"
        contents, seconds = expected[kind]
        for _ in range(kills // len(KINDS)):
            at_operation, after = rng.randint(1, 150), None
            if rng.random() < 0.5:
                at_operation, after = None, rng.random() * seconds
            was_finished = (folder / "run.json").exists()
            done += is_killed(lambda k=kind, f=folder: resume_or_train(k, f), after, at_operation)
            if was_finished and not (folder / "run.json").exists():
                lost.append(folder.name)
            if (folder / "run.json").exists() and not is_unfinished(folder):
                break
        is_killed(lambda k=kind, f=folder: resume_or_train(k, f))
        if outcome(folder) != contents:
            different.append([kind, sorted(k for k, v in outcome(folder).items() if contents.get(k) != v)])
        trajectories += 1
    left = sorted(f.name for f in root.iterdir() if f.name.startswith("."))
    left += [str(f) for f in root.glob("*/checkpoints")]
    print(json.dumps({"kills": done, "runs": trajectories, "different": different, "lost": lost, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
