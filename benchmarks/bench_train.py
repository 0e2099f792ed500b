"""Complete trainings on a large graph, with time, memory and test metrics: bench_train.py OUT.json GRAPH RECIPE.toml ..."""

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
    """Train and rank the test split exactly; in a separate process, for its peak memory."""
    import harmonium
    from harmonium.runtime.allocator import keep_freed_memory

    keep_freed_memory()
    started = time.perf_counter()
    run = harmonium.train(config=recipe, data=graph)
    taken = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = time.process_time()
    tables = sum(p.numel() * p.element_size() for p in run.model.parameters())
    measured = {"recipe": recipe, "graph": repr(run.graph), "seconds": round(taken), "cpu_seconds": round(used)}
    measured |= {"training_seconds": round(run.history.seconds), "epochs": len(run.history.rows)}
    measured |= {"best_epoch": run.history.best_epoch, "peak_bytes": memory, "table_bytes": tables, "seed": 0}
    evaluation = run.evaluation.to_json()
    measured |= {"protocol": evaluation["protocol"], "metrics": evaluation["metrics"]}
    measured["frequency_baseline"] = evaluation["baselines"]["frequency"]
    return measured | {"environment": run.environment}


def main() -> None:
    out, graph, *recipes = sys.argv[1:]
    path, context = Path(out), multiprocessing.get_context("spawn")
    results = json.loads(path.read_text()) if path.exists() else {}
    for recipe in recipes:
        with context.Pool(1) as pool:
            measured = pool.apply(measure, (graph, recipe))
        results["command"] = f"python benchmarks/bench_train.py results/{path.name} GRAPH recipes/large/*.toml"
        results["environment"] = measured.pop("environment")
        results.setdefault("runs", {})[Path(recipe).stem] = measured
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(recipe, measured["seconds"], "s", measured["metrics"], flush=True)


if __name__ == "__main__":
    main()
