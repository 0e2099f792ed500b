"""The command line in a new process, and what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from harmonium.data.graph import Graph
from harmonium.review.store import ReviewStore, Shown

FACT = ("person 7", "next", "person 8")  # in the graph `small.family`


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The output, however it was broken into lines."""
        return " ".join(self.out.split())


def settings(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


FAST = settings(
    "model.composition=complex", "model.entity_dim=8", "train.epochs=20", "train.learning_rate=0.05",
    "train.batch_size=32", "train.negatives=16",
)  # fmt: skip


def shell(*arguments: str | Path, cwd: Path | None = None, timeout: float = 100) -> Result:
    command = [sys.executable, "-W", "error", "-m", "harmonium", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)
    return Result(done.returncode, done.stdout, done.stderr)


def write_graph(graph: Graph, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for split, triples in graph.splits.items():
        lines = ["\t".join(names) + "\n" for names in graph.names_of(triples)]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def judge_some(path: Path, count: int = 12, reviewer: str = "ana") -> Path:
    """A file with judgements of facts of the graph `small.family`: every third is rejected."""
    with ReviewStore.open(path) as store:
        store.add_reviewer(reviewer)
        for i in range(count):
            fact = f"person {i}", "next", f"person {i + 5}"
            shown = Shown(fact, " · ".join(fact), 0.8, 0.8, i + 1, "use", "a run")
            store.judge(reviewer, shown, "accepted" if i % 3 else "rejected", "a comment")
    return path
