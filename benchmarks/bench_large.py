"""Large graphs on one machine: time and memory of building, loading and querying, each in a separate process.

python benchmarks/bench_large.py results/large-graph.json --folder /big/disk --triples 100000000 --entities 10000000

The text is generated first (make_graph.py). Memory is the sampled peak of a process's anonymous memory (RssAnon); pages of
mapped files come on top. Results of other sizes in the file are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from make_graph import make

from harmonium.run.environment import environment

ASK = """
import json, sys, time
from pathlib import Path
from harmonium.data.triples import Slot
from harmonium.data.graph_file import load
def timed(act):
    began = time.process_time()
    measured = act()
    return measured, round(time.process_time() - began, 4)
graph, loading = timed(lambda: load(Path(sys.argv[1])))
names = graph.entities.ids[:1000]
seconds = {"load": loading, "name to id": timed(lambda: [graph.entities.index(name) for name in names])[1] / 1000}
seconds["answers to 1,000 queries"] = timed(lambda: graph.known_answers(Slot.TAIL, queries=graph.train[:1000]))[1]
print(json.dumps({"entities": graph.n_entities, "triples": len(graph.train), "seconds": seconds}))
"""


def run_measured(command: list[Any]) -> tuple[dict[str, float], str]:
    """Seconds and peak megabytes of a command, and its output."""
    before, began, most = os.times(), time.perf_counter(), 0
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        most = max([most, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))])
        time.sleep(0.05)
    after = os.times()
    if process.returncode:
        raise SystemExit(f"{command} failed")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    measured = {"seconds": time.perf_counter() - began, "cpu_seconds": cpu, "megabytes": most / 1024}
    return {name: round(value, 1) for name, value in measured.items()}, process.stdout.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("build"))
    parser.add_argument("--triples", type=int, default=1_800_000)
    parser.add_argument("--entities", type=int, default=200_000)
    given = parser.parse_args()
    text, graph = (given.folder / f"facts-{given.triples}{ending}" for ending in (".tsv", ".graph"))
    os.environ |= {"HARMONIUM_CACHE": str(given.folder / "cache"), "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if not text.exists():
        make(text, given.triples, given.entities, 1000)
    shutil.rmtree(given.folder / "cache", ignore_errors=True)  # so that the graph is really built
    build, _ = run_measured([sys.executable, "-m", "harmonium", "convert", text, graph, "--overwrite"])
    ask, answer = run_measured([sys.executable, "-c", ASK, graph])
    imports, _ = run_measured([sys.executable, "-c", "import harmonium.data.graph_file"])
    row = {
        "text_megabytes": round(text.stat().st_size / 1e6, 1),
        "file_megabytes": round(graph.stat().st_size / 1e6, 1),
    }
    row |= {**json.loads(answer), "build": build, "ask": ask, "import": imports}
    kept = json.loads(given.out.read_text(encoding="utf-8"))["graphs"] if given.out.exists() else {}
    command = f"python benchmarks/bench_large.py {given.out} --triples N --entities M"  # each row is one such run
    about = {
        "command": command,
        "commit": environment().get("commit"),
        "environment": environment() | {"device": "CPU, 1 thread"},
    }
    rows = dict(sorted((kept | {str(given.triples): row}).items(), key=lambda pair: int(pair[0])))
    given.out.write_text(json.dumps(about | {"graphs": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
