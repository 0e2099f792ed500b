"""Training with rounded operands (train.precision=high) against exact ones: python benchmarks/bench_precision.py OUT.json.

Validation MRR of the same training from the same seeds on a small graph, with a full and a low-rank W. On a processor
without bfloat16 the two are the same.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import harmonium
from harmonium.kernels.precision import has_bfloat16
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory

SETTINGS = [
    "model.entity_dim=64", "train.negatives=32", "train.epochs=30", "train.evaluate_every=10", "train.patience=99",
    "train.device=cpu", "evaluate.split=valid",
]  # fmt: skip
MODELS = {
    "hdistmult": ["model.composition=distmult"],
    "hhole": ["model.composition=hole"],
    "h_rank8hole": ["model.composition=hole", "model.rank=8"],
}
SEEDS = range(3)


def main(out: str, data: str = "atlas") -> None:
    keep_freed_memory()
    graph, mrr = harmonium.load(data), {}
    for name, more in MODELS.items():
        mrr[name] = {}
        for precision in ("high", "highest"):
            scores = []
            for seed in SEEDS:
                overrides = [*SETTINGS, *more, f"train.precision={precision}", f"train.seed={seed}"]
                scores.append(harmonium.train(data=graph, overrides=overrides).metrics["mrr"])
            mrr[name][precision] = scores
            print(f"{name}, {precision}: {statistics.mean(scores):.4f}", scores, flush=True)
    about = {
        "command": f"python benchmarks/bench_precision.py results/precision.json {graph.name}",
        "graph": graph.name,
    }
    about |= {"settings": SETTINGS, "models": MODELS, "bfloat16": has_bfloat16(), "environment": environment()}
    Path(out).write_text(json.dumps(about | {"mrr": mrr}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
