"""Entity vectors in 16 bits, rounded at random or to the nearest, beside 32.

    python benchmarks/bench_rounding.py OUT.json [GRAPH]

The same training from the same seeds, row by row (as train.table=host does on any graph), by two optimisers.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import harmonium
from harmonium import rounding
from harmonium.run import environment

SETTINGS = [
    "model.rank=8", "model.entity_dim=32", "train.negatives=32", "train.epochs=30", "train.evaluate_every=10",
    "train.patience=99", "train.table=host",
]  # fmt: skip
OPTIMISERS = {
    "adam": ["train.optimizer=adam"],
    "row-adagrad": ["train.optimizer=row-adagrad", "train.learning_rate=0.1"],
}
KINDS = {"float32": "float32", "bfloat16, at random": "bfloat16", "bfloat16, to the nearest": "bfloat16"}
SEEDS = range(3)


def main(out: str, data: str = "atlas") -> None:
    at_random, graph, found = rounding.round_at_random, harmonium.load(data), {}
    for optimiser, more in OPTIMISERS.items():
        for kind, dtype in KINDS.items():
            nearest = "nearest" in kind
            rounding.round_at_random = (lambda values, generator: values.bfloat16()) if nearest else at_random
            scores = []
            for seed in SEEDS:
                sets = [*SETTINGS, *more, f"model.entity_dtype={dtype}", f"train.seed={seed}"]
                scores.append(harmonium.train(data=graph, sets=sets).metrics["metrics"]["mrr"])
            found[f"{optimiser}, {kind}"] = scores
            print(f"{optimiser}, {kind}: {statistics.mean(scores):.4f}", scores, flush=True)
    about = {"command": "python benchmarks/bench_rounding.py results/rounding.json UMLS", "graph": graph.name}
    about |= {"settings": SETTINGS, "optimisers": OPTIMISERS, "environment": environment(), "mrr": found}
    Path(out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
