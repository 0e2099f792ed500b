"""Harmony beside plain: bench_harmony.py OUT.json DEVICE MINUTES GRAPH.graph ...

For each graph the preset best is trained with W and b fitted afterwards (`train.harmony=after`), and test facts are ranked
with and without W. On the first graph an epoch of joint all-entity training is timed with W of rank 1, 4 and 8, and plain.
"""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import harmonium
from harmonium.config.settings import Config
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.harmony import Sum
from harmonium.training.search.cost import time_steps
from harmonium.training.state import TrainingState


def epoch_seconds(graph: Graph, device: str, overrides: list[str]) -> float:
    config = Config.read("plain", [f"train.device={device}", *overrides])
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed).move_to(device)
    state = TrainingState(model, graph.train.to(device), config.train)
    return time_steps(state, seconds=1.0) * math.ceil(len(graph.train) / config.train.batch_size)


def main() -> None:
    out, device, minutes, *paths = sys.argv[1:]
    graph = graph_file.load(Path(paths[0]))
    sizes = ["model.entity_dim=512", "train.batch_size=1000"]
    epochs = {"graph": Path(paths[0]).stem, "d": 512, "batch": 1000, "plain": epoch_seconds(graph, device, sizes)}
    for rank in (1, 4, 8):
        harmony = ["model.harmony=true", f"model.rank={rank}"]
        epochs[f"rank {rank}"] = epoch_seconds(graph, device, [*sizes, *harmony])
    print(epochs, flush=True)
    runs = []
    for path in paths:
        started = time.perf_counter()
        settings = [f"train.device={device}", "train.harmony=after"]
        run = harmonium.train(path, "best", overrides=settings, minutes=float(minutes))
        seconds = time.perf_counter() - started
        plain = copy.deepcopy(run.model)
        plain.form = Sum(plain.form.dim, learn_scale=False)
        without = evaluate_scorer(plain, run.graph, run.config.evaluate).metrics
        runs.append(
            {
                "graph": Path(path).stem,
                "minutes": float(minutes),
                "seconds": seconds,
                "training_seconds": run.history.seconds,
                "harmony": run.metrics,
                "plain": without,
                "fit": run.history.harmony,
                "selection": run.selection.to_json() if run.selection else None,
                "device": run.environment["device"],
                "seed": 0,
            }
        )
        print(path, run.metrics["mrr"], without["mrr"], run.history.harmony, flush=True)
    protocol = "test heads and tails, filtered by train+valid+test, all entities, realistic ties, unseen entities kept"
    command = "python benchmarks/bench_harmony.py results/harmony-after.json cuda 2 GRAPH.graph ..."
    result = {
        "device": runs[0]["device"],
        "command": command,
        "protocol": protocol,
        "epoch_seconds": epochs,
        "runs": runs,
    }
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
