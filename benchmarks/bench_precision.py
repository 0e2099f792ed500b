"""Training with rounded operands (train.precision=high) beside exact ones: python benchmarks/bench_precision.py OUT.json.

The same training from the same seeds on a small graph, with a full W and one of low rank, to validation MRR. Where
the processor has no bfloat16 the two are the same.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import harmonium
from harmonium.kernels.precision import has_bfloat16
from harmonium.run import environment

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
    graph, found = harmonium.load(data), {}
    for name, more in MODELS.items():
        found[name] = {}
        for precision in ("high", "highest"):
            scores = []
            for seed in SEEDS:
                sets = [*SETTINGS, *more, f"train.precision={precision}", f"train.seed={seed}"]
                scores.append(harmonium.train(data=graph, sets=sets).metrics["metrics"]["mrr"])
            found[name][precision] = scores
            print(f"{name}, {precision}: {statistics.mean(scores):.4f}", scores, flush=True)
    about = {
        "command": f"python benchmarks/bench_precision.py results/precision.json {graph.name}",
        "graph": graph.name,
    }
    about |= {"settings": SETTINGS, "models": MODELS, "bfloat16": has_bfloat16(), "environment": environment()}
    Path(out).write_text(json.dumps(about | {"mrr": found}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
