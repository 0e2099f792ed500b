"""Kill real training processes at random moments, resume them, and print as JSON what came of it.

python tests/kills.py FOLDER KILLS SEED: half of the kills come by the clock, half at the n-th thing done to a file.
Processes are forked from this one, as importing torch takes longer than the training.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import harmonium
from harmonium import commands
from harmonium.config import Config
from harmonium.folder import unfinished
from small import make_graph

SETTINGS = [
    "model.composition=hole", "model.entity_dim=6", "train.batch_size=8", "train.negatives=3", "train.epochs=9",
    "train.evaluate_every=2", "train.patience=2", "train.checkpoint_every=3", "train.threads=1", "train.device=cpu",
]  # fmt: skip
KINDS = [
    "train.optimizer=adam",  # touched rows, full W
    "train.optimizer=adagrad model.rank=2 train.schedule=constant",
    "train.loss=full model.dropout=0.2 model.reciprocal=true",
    "train.optimizer=adagrad train.rows=all train.type_loss=0.5 model.constraint=spectral",
    "train.rows=all model.harmony=false train.checkpoint_keep=1 train.checkpoint_every=1",
]
GRAPH = make_graph(n_entities=150, sizes=(60, 12, 12))
TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "ctypes.dlsym"}


def config(kind: str) -> Config:
    return Config.read(None, [*SETTINGS, *kind.split()])


def go_on(kind: str, folder: Path) -> None:
    """What a person would do after a crash: resume what can be, train otherwise."""
    if unfinished(folder) or (folder / "run.json").exists():
        commands.resume(folder)
    else:
        commands.train(config(kind), GRAPH, folder)


def killed(job: Callable[[], None], after: float | None = None, at_touch: int | None = None) -> bool:
    """Run a job in a process of its own; whether the kill came before its end."""
    sys.stdout.flush()
    if (process := os.fork()) == 0:
        try:
            if at_touch is not None:
                die_at(at_touch)
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


def die_at(touch: int) -> None:
    """End this process before the n-th time that it opens, syncs, renames or removes a file."""
    left, fsync = touch, os.fsync

    def count(event: str = "fsync", arguments: tuple = ()) -> None:
        nonlocal left
        if event in TOUCHES or event == "fsync":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted_fsync(handle: int) -> None:
        count()
        fsync(handle)

    os.fsync = counted_fsync
    sys.addaudithook(count)


def outcome(folder: Path) -> dict[str, str]:
    """All of a run but the time: the seconds of its history, the moment it was made, and the checksums of these."""
    run, found = harmonium.Run.load(folder), {file.name: file.read_bytes().hex() for file in folder.iterdir()}
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in run.history.rows]
    found["history.jsonl"] = json.dumps(rows)
    manifest = json.loads((folder / "run.json").read_bytes())
    del manifest["made"], manifest["sha256"], manifest["files"]["history.jsonl"]
    found["run.json"] = json.dumps(manifest)
    return found


def main(place: Path, kills: int, seed: int) -> None:
    chance, done, different, lost = random.Random(seed), 0, [], []
    commands.train(config(KINDS[0]), GRAPH)  # what torch imports on first use is imported before forking
    usual = {}
    for number, kind in enumerate(KINDS):
        began = time.perf_counter()
        assert not killed(lambda n=number, k=kind: commands.train(config(k), GRAPH, place / f"whole{n}"))
        usual[kind] = outcome(place / f"whole{number}"), time.perf_counter() - began
    trajectories = 0
    while done < kills:
        kind, folder = KINDS[trajectories % len(KINDS)], place / f"killed{trajectories}"
        expected, seconds = usual[kind]
        for _ in range(kills // len(KINDS)):
            how = (
                {"at_touch": chance.randint(1, 150)} if chance.random() < 0.5 else {"after": chance.random() * seconds}
            )
            was_finished = (folder / "run.json").exists()
            done += killed(lambda k=kind, f=folder: go_on(k, f), **how)
            if was_finished and not (folder / "run.json").exists():
                lost.append(folder.name)
            if (folder / "run.json").exists() and not unfinished(folder):
                break
        killed(lambda k=kind, f=folder: go_on(k, f))
        if outcome(folder) != expected:
            different.append([kind, sorted(k for k, v in outcome(folder).items() if expected.get(k) != v)])
        trajectories += 1
    left = sorted(f.name for f in place.iterdir() if f.name.startswith("."))
    left += [str(f) for f in place.glob("*/checkpoints")]
    print(json.dumps({"kills": done, "runs": trajectories, "different": different, "lost": lost, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
