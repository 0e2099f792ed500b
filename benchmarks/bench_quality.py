"""Time to quality, beside peers: python benchmarks/bench_quality.py results/quality.json --data FOLDER ... --minutes .5 1 5.

For each graph (a folder of train.txt, valid.txt, test.txt) and each budget: the filtered MRR of test facts after so many
minutes of training by the clock, on the CPU. harmonium trains its default anew for each budget (`train --minutes`), and its
seconds are those of the whole command, search, constraints, last training and evaluation included. PyKEEN trains once and is
judged whenever a budget is spent; reading, evaluation and what it costs to start are not counted. Neither chooses anything
by test facts: harmonium's weights come from validation facts, PyKEEN's settings are those of peer_quality.py.

--programs selects; --pykeen PYTHON is the interpreter of an environment with PyKEEN 1.11 (`make .venv-pykeen/.ready`).
Rows {dataset, program, budget, seconds, cpu, mrr} are added to what the file has; an idle machine matters.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEER = Path(__file__).with_name("peer_quality.py")


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def harmonium(data: Path, minutes: list[float], threads: int) -> Iterator[dict[str, Any]]:
    """The default preset, once for each budget."""
    for budget in minutes:
        with tempfile.TemporaryDirectory() as folder:
            words = ["train", str(data), "--minutes", str(budget), "--out", f"{folder}/run", "--json"]
            start, cpu = time.perf_counter(), children_cpu()
            command = [sys.executable, "-m", "harmonium", *words, "--set", f"train.threads={threads}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds, cpu = time.perf_counter() - start, children_cpu() - cpu
            metrics = json.loads((Path(folder) / "run" / "metrics.json").read_text(encoding="utf-8"))
        assert metrics["protocol"]["split"] == "test", "the graph has no test facts"
        yield {"budget": budget, "seconds": round(seconds, 1), "cpu": round(cpu, 1), "mrr": metrics["metrics"]["mrr"]}


def pykeen(python: Path, data: Path, minutes: list[float], threads: int) -> Iterator[dict[str, Any]]:
    """One training, judged at each budget; its rows come as lines of JSON."""
    words = [str(python), str(PEER), "--data", str(data), "--threads", str(threads), "--minutes", *map(str, minutes)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of train.txt, valid.txt, test.txt")
    parser.add_argument("--minutes", type=float, nargs="+", default=[0.5, 1, 2, 5, 15])
    parser.add_argument("--programs", nargs="+", choices=("harmonium", "pykeen"), default=["harmonium", "pykeen"])
    parser.add_argument("--pykeen", type=Path, default=Path(".venv-pykeen/bin/python"))
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else []
    for data in arguments.data:
        for program in arguments.programs:
            rows = [row for row in rows if (row["dataset"], row["program"]) != (data.name, program)]
            shared = data, sorted(arguments.minutes), arguments.threads
            measured = harmonium(*shared) if program == "harmonium" else pykeen(arguments.pykeen, *shared)
            for row in measured:
                load = round(os.getloadavg()[0], 1)
                rows.append(
                    {"dataset": data.name, "program": program, **row, "threads": arguments.threads, "load": load}
                )
                print(rows[-1], flush=True)
                arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
