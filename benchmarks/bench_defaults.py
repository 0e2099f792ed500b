"""What the default command gives, and what families of constraints add: bench_defaults.py OUT.json GRAPH ... --minutes 5.

Each graph is trained as `harmonium train GRAPH` does, in one thread, and its row added to OUT.json: test metrics of all
constraints with the vectors, of the vectors alone, and without each family; CPU seconds of each stage. The guard that ends
trainings by the clock is off, so that a busy machine gives the model that a quiet one does.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))


class Stages:
    """CPU seconds between the reports of a training, by stage; trials together."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.last = time.process_time()

    def __call__(self, progress: Any) -> None:
        now = time.process_time()
        stage = "trials" if progress.stage.startswith("trial ") else progress.stage
        self.seconds[stage] += now - self.last
        self.last = now


def measure(data: str, minutes: float, keep: Path | None) -> dict[str, Any]:
    """Train, and rank the test facts with and without parts of the harmony."""
    import harmonium
    from harmonium.grammar.parameters import FAMILIES
    from harmonium.training.search import search

    search.PATIENCE = math.inf
    stages, started, used = Stages(), time.perf_counter(), time.process_time()
    out = None if keep is None else keep / Path(data).name
    run = harmonium.train(data, minutes=minutes, threads=1, progress=stages, out=out, overwrite=True)
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    families = [family.name for family in FAMILIES]
    chosen = run.selection.settings if run.selection else {}
    return {
        "graph": run.graph.name,
        "minutes": minutes,
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(wall, 1),
        "stages": {stage: round(seconds, 1) for stage, seconds in stages.seconds.items()},
        "metrics": run.metrics,
        "vectors_alone": harmonium.evaluate(run, without=families).metrics["mrr"],
        "without": {name: harmonium.evaluate(run, without=name).metrics["mrr"] for name in families},
        "settings": {key: chosen.get(key) for key in ("model.entity_dim", "train.epochs", "train.n3")},
        "trials": len(run.selection.trials) if run.selection else 0,
        "device": run.environment["device"],
        "stopped": run.history.stopped,
    }


def run_device(runs: list[dict[str, Any]]) -> str:
    return ", ".join(sorted({run["device"] for run in runs}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--keep", type=Path, help="folder in which the runs are written")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"runs": []}
    for data in options.graphs:
        row = measure(data, options.minutes, options.keep)
        others = [
            other for other in kept["runs"] if (other["graph"], other["minutes"]) != (row["graph"], row["minutes"])
        ]
        runs = [*others, row]
        command = f"python benchmarks/bench_defaults.py OUT.json {' '.join(run['graph'] for run in runs)}"
        kept = {"command": command, "device": run_device(runs), "runs": runs}
        options.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(row["graph"], f"MRR {row['metrics']['mrr']:.4f}", f"{row['cpu_seconds']} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
