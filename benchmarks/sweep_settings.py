"""Which settings matter on which graph: sweep_settings.py OUT.json GRAPH.graph ...

Each setting is varied around plain ComplEx (reciprocal, all entities, Adagrad, initial spread .001), and the MRR of at most
2,000 validation facts after the last epoch is kept. The presets' starting values and alternatives come from here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from harmonium.config.settings import Config
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.model.build import build_model
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit

N3 = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


def variants(n3: float) -> list[dict[str, Any]]:
    """Settings that differ from the start; `n3` is the best one at dimension 128."""
    sizes = [(128, 6), (128, 25), (32, 10), (512, 25)]
    rows: list[dict[str, Any]] = [
        {"model.entity_dim": dim, "train.epochs": epochs, "train.n3": value} for dim, epochs in sizes for value in N3
    ]
    rates = [(0.1, 25), (0.1, 60), (0.3, 25), (0.3, 60), (0.6, 25)]
    rows += [{"model.entity_dim": 512, "train.epochs": e, "train.n3": n3, "train.learning_rate": r} for r, e in rates]
    best: dict[str, Any] = {"model.entity_dim": 128, "train.epochs": 20, "train.n3": n3}
    rows += [best | {"train.relation_prediction": weight} for weight in (0.0, 0.1, 0.5, 2.0, 4.0)]
    rows += [best | {"train.batch_size": size} for size in (50, 100, 250, 1000)]
    rows += [best | {"model.composition": "distmult", "model.reciprocal": value} for value in (True, False)]
    rows += [best | {"model.reciprocal": False}, best | {"model.composition": "hole"}]
    return [*rows, best | {"model.initial_spread": 0.1}]


def train(graph: Graph, settings: dict[str, Any]) -> float:
    """The validation MRR after the last epoch."""
    batch_size = max(50, min(1000, len(graph.train) // 100))
    start = {"train.batch_size": batch_size, "train.validation_triples": 2000, "train.learning_rate": 0.1}
    chosen = start | settings | {"train.evaluate_every": settings["train.epochs"]}
    overrides = [f"{key}={str(value).lower()}" for key, value in chosen.items()]
    config = Config.read("plain", overrides)
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    return float(fit(model, graph, config).rows[-1]["valid"]["mrr"])


def main() -> None:
    out, *paths = sys.argv[1:]
    rows = []
    for path in paths:
        graph = graph_file.load(Path(path))
        start = [{"model.entity_dim": 128, "train.epochs": 15, "train.n3": n3} for n3 in N3]
        best = max(start, key=lambda settings: train(graph, settings))
        for settings in variants(best["train.n3"]):
            started = time.perf_counter()
            mrr = train(graph, settings)
            rows.append({"graph": Path(path).stem, "settings": settings, "valid_mrr": mrr})
            rows[-1]["seconds"] = round(time.perf_counter() - started, 1)
            print(rows[-1], flush=True)
    result = {"command": "python benchmarks/sweep_settings.py results/settings-sweep.json GRAPH.graph ...", "seed": 0}
    Path(out).write_text(json.dumps(result | {"device": str(pick_device("auto")), "trainings": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
