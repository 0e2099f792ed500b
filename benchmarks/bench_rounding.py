"""16-bit entity vectors with stochastic rounding or rounding to nearest, against 32-bit ones.

    python benchmarks/bench_rounding.py OUT.json [GRAPH]

The same training from the same seeds, row by row (as train.entity_storage=host does on any graph), by two optimisers.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import harmonium
from harmonium.kernels import stochastic_rounding as rounding
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory

SETTINGS = [
    "model.rank=8", "model.entity_dim=32", "train.negatives=32", "train.epochs=30", "train.evaluate_every=10",
    "train.patience=99", "train.entity_storage=host",
]  # fmt: skip
OPTIMISERS = {
    "adam": ["train.optimiser=adam"],
    "row-adagrad": ["train.optimiser=row-adagrad", "train.learning_rate=0.1"],
}
KINDS = {"float32": "float32", "bfloat16, stochastic rounding": "bfloat16", "bfloat16, round to nearest": "bfloat16"}
SEEDS = range(3)


def main(out: str, data: str = "atlas") -> None:
    keep_freed_memory()
    stochastic, graph, mrr = rounding.stochastic_round, harmonium.load(data), {}
    for optimiser, more in OPTIMISERS.items():
        for kind, dtype in KINDS.items():
            nearest = "nearest" in kind
            rounding.stochastic_round = (lambda values, generator: values.bfloat16()) if nearest else stochastic
            scores = []
            for seed in SEEDS:
                overrides = [*SETTINGS, *more, f"model.entity_dtype={dtype}", f"train.seed={seed}"]
                scores.append(harmonium.train(data=graph, overrides=overrides).metrics["mrr"])
            mrr[f"{optimiser}, {kind}"] = scores
            print(f"{optimiser}, {kind}: {statistics.mean(scores):.4f}", scores, flush=True)
    about = {"command": "python benchmarks/bench_rounding.py results/rounding.json UMLS", "graph": graph.name}
    about |= {"settings": SETTINGS, "optimisers": OPTIMISERS, "environment": environment(), "mrr": mrr}
    Path(out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
