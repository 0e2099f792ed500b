"""Whole trainings of a large graph, with time, memory and test metrics: bench_train.py OUT.json GRAPH RECIPE.toml ..."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))


def measure(graph: str, recipe: str) -> dict[str, Any]:
    """Train and rank the test split exactly; in a process of its own, so that its memory is its own."""
    import harmonium
    from harmonium.run import environment

    started = time.perf_counter()
    run = harmonium.train(recipe, data=graph)
    taken = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = time.process_time()
    tables = sum(p.numel() * p.element_size() for p in run.model.parameters())
    found = {"recipe": recipe, "graph": repr(run.graph), "seconds": round(taken), "cpu_seconds": round(used)}
    found |= {"training_seconds": round(run.history.seconds), "epochs": len(run.history.rows)}
    found |= {"best_epoch": run.history.best_epoch, "peak_bytes": memory, "table_bytes": tables, "seed": 0}
    found |= {"protocol": run.metrics["protocol"], "metrics": run.metrics["metrics"]}
    return found | {"frequency_baseline": run.metrics["frequency_baseline"], "environment": environment()}


def main() -> None:
    out, graph, *recipes = sys.argv[1:]
    path, context = Path(out), multiprocessing.get_context("spawn")
    found = json.loads(path.read_text()) if path.exists() else {}
    for recipe in recipes:
        with context.Pool(1) as pool:
            one = pool.apply(measure, (graph, recipe))
        found["command"] = f"python benchmarks/bench_train.py results/{path.name} GRAPH recipes/large/*.toml"
        found["environment"] = one.pop("environment")
        found.setdefault("runs", {})[Path(recipe).stem] = one
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(recipe, one["seconds"], "s", one["metrics"], flush=True)


if __name__ == "__main__":
    main()
