"""How the cost of a training step grows: python benchmarks/bench_scale.py results/scale.json docs/images/scale.png.

One size varies at a time around a centre (100,000 entities, 1 million triples, d = 64, batch 512, 32 negatives per side,
HHolE with W of rank 8); a power law cost = a * size^k is fitted to the medians. Random triples.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

import torch

from harmonium.config.settings import Config
from harmonium.data.triples import Triples
from harmonium.model.build import build_model
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.training.step import TrainingStep

MIDDLE = {"entities": 100_000, "triples": 1_000_000, "dim": 64, "negatives": 32, "rank": 8}
SWEEPS = {
    "entities": [10_000, 30_000, 100_000, 300_000, 1_000_000],
    "triples": [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000],
    "dim": [32, 64, 128, 256],
    "negatives": [8, 16, 32, 64, 128],
    "rank": [1, 4, 16, 64],
}
STEPS = 12


def step_milliseconds(entities: int, triples: int, dim: int, negatives: int, rank: int) -> float:
    """Median time of a step after three warm-up steps."""
    settings = [f"model.entity_dim={dim}", f"model.rank={rank}", f"train.negatives={negatives}", "train.epochs=1"]
    config = Config.read(None, settings)
    generator = torch.Generator().manual_seed(0)
    columns = (torch.randint(size, (triples,), generator=generator) for size in (entities, 200, entities))
    model = build_model(config.model, entities, 200)
    take_step = TrainingStep(model, Triples(*columns), config.train, generator)
    times = []
    for index in torch.randint(triples, (STEPS + 3, 512), generator=generator):
        began = time.perf_counter()
        take_step(index)
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times[3:])


def exponent(sizes: list[float], costs: list[float]) -> float:
    """The slope of log cost over log size."""
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mean_x, mean_y = statistics.mean(x), statistics.mean(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slope / sum((a - mean_x) ** 2 for a in x)


def plot(sweeps: dict, path: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, sweep) in zip(figure.subplots(1, len(sweeps)), sweeps.items(), strict=True):
        axes.loglog(sweep["sizes"], sweep["milliseconds"], "o-", color="#1b7f5c")
        axes.set_title(f"{name}: exponent {sweep['exponent']:.2f}")
        axes.set_ylim(1, 1000)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    figure.get_axes()[0].set_ylabel("ms per step")
    figure.savefig(path, dpi=90)


def main(out: str, picture: str) -> None:
    keep_freed_memory()
    sweeps = {}
    for name, sizes in SWEEPS.items():
        costs = [step_milliseconds(**(MIDDLE | {name: size})) for size in sizes]
        sweeps[name] = {"sizes": sizes, "milliseconds": costs, "exponent": exponent(sizes, costs)}
        print(f"{name:10} exponent {sweeps[name]['exponent']:5.2f}", [round(c, 1) for c in costs], flush=True)
    plot(sweeps, picture)
    about = {"command": "python benchmarks/bench_scale.py", "middle": MIDDLE, "environment": environment()}
    about["load_before"] = os.getloadavg()[0]
    Path(out).write_text(json.dumps(about | {"sweeps": sweeps}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
