"""Same seed, same settings, same number of threads: the same run folder, to the byte, from two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzing import run_files
from harmonium import folder
from kills import outcome

SETTINGS = "model.entity_dim=32 train.batch_size=256 train.negatives=64 train.epochs=1 train.device=cpu"
LARGE = [  # so that threads have something to divide
    "model.composition=hole train.optimizer=adam",
    "model.composition=complex model.harmony=false train.loss=full train.n3=0.01",
]
TRAIN = """
import sys
import harmonium
from small import make_graph
graph = make_graph(2000, 4, (1000, 20, 20))
for number, kind in enumerate(sys.argv[3:]):
    sets = [*kind.split(), f"train.threads={sys.argv[2]}"]
    harmonium.train(data=graph, sets=sets, out=f"{sys.argv[1]}/{number}")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_two_processes_write_the_same_run(threads: int, tmp_path: Path) -> None:
    started = []
    for name in ("one", "two"):  # in which sets of text have another order
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": str(len(started))}
        environment |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}  # who waits lets others work
        kinds = [f"{SETTINGS} {kind}" for kind in LARGE]
        started.append(
            subprocess.Popen([sys.executable, "-c", TRAIN, tmp_path / name, str(threads), *kinds], env=environment)
        )
    assert [process.wait(timeout=100) for process in started] == [0, 0]
    for number, kind in enumerate(LARGE):
        one, two = (outcome(tmp_path / name / str(number)) for name in ("one", "two"))
        assert one.keys() == two.keys() == dict(run_files()).keys()
        assert {file for file in one if one[file] != two[file]} == set(), kind


def test_what_is_compared_is_all_but_the_time(tmp_path: Path) -> None:
    """The one function that leaves times out leaves out nothing else."""
    for name, content in run_files():
        (tmp_path / name).write_bytes(content)
    before = outcome(tmp_path)
    manifest = json.loads((tmp_path / "run.json").read_bytes())
    del manifest["sha256"]
    for change in ({"made": "2001-01-01T00:00:00+00:00"}, {"stopped": "otherwise"}, {"environment": {"torch": "9"}}):
        (tmp_path / "run.json").write_bytes(folder.seal(manifest | change))
        assert (outcome(tmp_path) == before) == ("made" in change)
    rows = [json.loads(line) | {"seconds": 7.0} for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    for change in ({}, {"loss": 0.25}):
        content = "".join(json.dumps(row | change) + "\n" for row in rows).encode()
        (tmp_path / "history.jsonl").write_bytes(content)
        manifest["files"]["history.jsonl"] = folder.digest(content)
        (tmp_path / "run.json").write_bytes(folder.seal(manifest))
        assert (outcome(tmp_path) == before) == (not change)
