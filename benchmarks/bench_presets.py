"""Presets under one time budget, beside plain DistMult: bench_presets.py OUT.json GRAPH ... --minutes 5.

Every graph is trained with every preset, in a process of its own; test metrics, the selection and the seconds are added to
OUT.json. `--jobs` runs several graphs at a time, each with `--threads` threads, on a machine with that many free cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

MODELS = {  # (preset, overrides)
    "best": ("best", []),
    "fast": ("fast", []),
    "plain ComplEx": ("plain", []),
    "plain DistMult": ("plain", ["model.composition=distmult"]),
}


def measure(
    graph: str, model: str, minutes: float, threads: int, device: str, seed: int, fixed: list[str]
) -> dict[str, Any]:
    """Train once, and rank the test facts."""
    import harmonium
    from harmonium.runtime.allocator import keep_freed_memory

    keep_freed_memory()
    preset, overrides = MODELS[model]
    settings = [f"train.threads={threads}", f"train.device={device}", f"train.seed={seed}", *overrides, *fixed]
    started, used = time.perf_counter(), time.process_time()
    run = harmonium.train(graph, preset, overrides=settings, minutes=minutes)
    seconds = time.perf_counter() - started
    validated = [row["valid"]["mrr"] for row in run.history.rows if "valid" in row]
    return {
        "graph": Path(graph).stem,
        "model": model,
        "facts": len(run.graph.facts()),
        "entities": run.graph.n_entities,
        "relations": run.graph.n_relations,
        "minutes": minutes,
        "seed": seed,
        "seconds": round(seconds, 1),
        "cpu_per_wall": round((time.process_time() - used) / seconds, 2),
        "valid_mrr": max(validated, default=None),
        "metrics": run.metrics,
        "baselines": {name: row["mrr"] for name, row in run.evaluation.baselines.items()} if run.evaluation else {},
        "warning": run.evaluation.warning if run.evaluation else None,
        "selection": run.selection.to_json() if run.selection else None,
        "device": run.environment["device"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], help="settings that stay fixed, as in `harmonium train`")
    options = parser.parse_args()
    if len(options.graphs) == len(options.models) == 1 and os.environ.get("BENCH_PRESETS_ONE"):
        arguments = options.minutes, options.threads, options.device, options.seed, options.set
        options.out.write_text(json.dumps(measure(options.graphs[0], options.models[0], *arguments)))
        return

    def run_alone(job: tuple[int, str, str]) -> dict[str, Any]:
        number, graph, model = job
        part = options.out.with_suffix(f".{number}")
        command = [sys.executable, __file__, str(part), graph, "--models", model, "--minutes", str(options.minutes)]
        command += ["--threads", str(options.threads), "--device", options.device, "--seed", str(options.seed)]
        command += [word for setting in options.set for word in ("--set", setting)]
        cores = [number % options.jobs * options.threads + core for core in range(options.threads)]
        pinned = ["taskset", "-c", ",".join(map(str, cores))] if options.jobs > 1 else []
        environment = os.environ | {"BENCH_PRESETS_ONE": "1", "OMP_NUM_THREADS": str(options.threads)}
        subprocess.run([*pinned, *command], check=True, env=environment)
        row: dict[str, Any] = json.loads(part.read_text())
        part.unlink()
        selected = (row["selection"] or {}).get("settings", {})
        shown = {key.split(".")[1]: value for key, value in selected.items()}
        print(
            f"{row['graph']:10} {model:15} mrr {row['metrics']['mrr']:.4f} {row['seconds']:5.0f} s", shown, flush=True
        )
        return row

    jobs = [(number, *pair) for number, pair in enumerate((g, m) for m in options.models for g in options.graphs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(run_alone, jobs))
    stored = json.loads(options.out.read_text()) if options.out.exists() else {"runs": []}
    stored["command"] = "python benchmarks/bench_presets.py results/presets.json GRAPH ... --minutes M"
    stored["protocol"] = "test heads and tails, filtered by train+valid+test, all entities, realistic ties"
    stored["device"] = rows[0]["device"]
    stored["runs"] += rows
    options.out.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
