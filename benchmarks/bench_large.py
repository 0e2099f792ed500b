"""Large graphs on one machine: what building, loading and asking cost in time and in memory, in processes of their own.

python benchmarks/bench_large.py results/large-graph.json --place /big/disk --triples 100000000 --entities 10000000

The text is made first (make_graph.py). Memory is what a process has of its own (RssAnon) at most, sampled; pages of
mapped files come on top where there is room. Results of other sizes in the file stay.
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

from harmonium.reproduce import commit
from harmonium.run import environment

ASK = """
import json, sys, time
from pathlib import Path
from harmonium.graph import Slot
from harmonium.graph_file import load
def timed(act):
    began = time.process_time()
    found = act()
    return found, round(time.process_time() - began, 4)
graph, loading = timed(lambda: load(Path(sys.argv[1])))
names = graph.entities.ids[:1000]
seconds = {"load": loading, "name to id": timed(lambda: [graph.entities.index(name) for name in names])[1] / 1000}
seconds["answers to 1,000 queries"] = timed(lambda: graph.answers(Slot.TAIL, queries=graph.train[:1000]))[1]
print(json.dumps({"entities": graph.n_entities, "triples": len(graph.train), "seconds": seconds}))
"""


def watched(command: list[Any]) -> tuple[dict[str, float], str]:
    """Seconds and the most megabytes of a command, and what it printed."""
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
    found = {"seconds": time.perf_counter() - began, "cpu_seconds": cpu, "megabytes": most / 1024}
    return {name: round(value, 1) for name, value in found.items()}, process.stdout.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--place", type=Path, default=Path("build"))
    parser.add_argument("--triples", type=int, default=1_800_000)
    parser.add_argument("--entities", type=int, default=200_000)
    given = parser.parse_args()
    text, graph = (given.place / f"facts-{given.triples}{ending}" for ending in (".tsv", ".graph"))
    os.environ |= {"HARMONIUM_CACHE": str(given.place / "cache"), "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if not text.exists():
        make(text, given.triples, given.entities, 1000)
    shutil.rmtree(given.place / "cache", ignore_errors=True)  # what is built is not found there
    build, _ = watched([sys.executable, "-m", "harmonium", "convert", text, graph, "--overwrite"])
    ask, said = watched([sys.executable, "-c", ASK, graph])
    idle, _ = watched([sys.executable, "-c", "import harmonium.graph_file"])
    row = {
        "text_megabytes": round(text.stat().st_size / 1e6, 1),
        "file_megabytes": round(graph.stat().st_size / 1e6, 1),
    }
    row |= {**json.loads(said), "build": build, "ask": ask, "import": idle}
    kept = json.loads(given.out.read_text(encoding="utf-8"))["graphs"] if given.out.exists() else {}
    command = f"python benchmarks/bench_large.py {given.out} --triples N --entities M"  # each row is one such run
    about = {"command": command, "commit": commit(), "environment": environment() | {"device": "CPU, 1 thread"}}
    rows = dict(sorted((kept | {str(given.triples): row}).items(), key=lambda pair: int(pair[0])))
    given.out.write_text(json.dumps(about | {"graphs": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
