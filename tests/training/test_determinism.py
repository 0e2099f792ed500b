"""Same seed, same settings, same number of threads: the same run folder, to the byte, from two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harmonium.run import manifest
from harmonium.run.run import FILES
from kills import outcome

SETTINGS = "model.entity_dim=32 train.batch_size=256 train.negatives=64 train.epochs=1 train.device=cpu"
LARGE = [  # so that threads have something to divide
    "model.composition=hole train.optimiser=adam",
    "model.composition=complex model.harmony=false train.loss=full train.n3=0.01",
]
TRAIN = """
import sys
import harmonium
from small import make_graph
graph = make_graph(2000, 4, (1000, 20, 20))
for number, kind in enumerate(sys.argv[3:]):
    overrides = [*kind.split(), f"train.threads={sys.argv[2]}"]
    harmonium.train(graph, "paper", overrides=overrides, out=f"{sys.argv[1]}/{number}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_two_processes_write_the_same_run(threads: int, tmp_path: Path) -> None:
    processes, kinds = [], [f"{SETTINGS} {kind}" for kind in LARGE]
    for hash_seed, name in enumerate(("one", "two")):  # the order of sets of strings differs
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONHASHSEED": str(hash_seed)}
        environment |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
        command = [sys.executable, "-c", TRAIN, tmp_path / name, str(threads), *kinds]
        processes.append(subprocess.Popen(command, env=environment))
    assert [process.wait() for process in processes] == [0, 0]
    for number, kind in enumerate(LARGE):
        one, two = (outcome(tmp_path / name / str(number)) for name in ("one", "two"))
        assert one.keys() == two.keys() == {*FILES, manifest.NAME}
        assert {file for file in one if one[file] != two[file]} == set(), kind
