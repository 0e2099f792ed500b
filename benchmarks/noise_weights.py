"""Wrong facts that are marked as doubtful: noise_weights.py OUT.json GRAPH.graph ... [--set KEY=VALUE ...].

Wrong facts, a fifth as many as there are training facts, are added to them: each is a training fact with its head or tail
replaced at random. Compared is the MRR on the test facts, with the known facts of the clean graph filtered, of models
trained on all facts alike ("unmarked"), with the weight .3 for the wrong ones, with that weight squared
(train.weight_power=2), with the weight 0, and without them ("dropped"). `recovered` is the share of what the wrong facts
cost that a weight makes good. Each seed draws other wrong facts and trains all models anew. Needs torch, numpy and
safetensors only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.run.environment import environment
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit

SHARE, WEIGHT = 0.2, 0.3
COMPLEX = [
    "model.composition=complex", "model.harmony=false", "model.normalise=false", "model.reciprocal=true",
    "model.initial_spread=0.001", "train.optimiser=adagrad", "train.learning_rate=0.1",
]  # fmt: skip
SETTINGS = {  # by the loss
    "full": [*COMPLEX, "train.loss=full", "train.n3=0.02"],
    "sampled": [*COMPLEX, "train.loss=sampled", "train.negatives=50", "train.n3=0.002"],
}


def add_wrong_facts(graph: Graph, share: float, generator: torch.Generator) -> Triples:
    """The training facts, then wrong ones: each a training fact with its head or tail replaced, in no split."""
    facts, known = graph.train, graph.known_answers(Slot.TAIL)
    count, wrong = round(share * len(facts)), facts[:0]
    while len(wrong) < count:
        drawn = facts[torch.randint(len(facts), (count,), generator=generator)]
        other = torch.randint(graph.n_entities, (count,), generator=generator)
        is_head = torch.rand(count, generator=generator) < 0.5
        head, tail = torch.where(is_head, other, drawn.head), torch.where(is_head, drawn.tail, other)
        corrupted = Triples(head, drawn.relation, tail)
        wrong = Triples.cat([wrong, corrupted[~known.contain(corrupted)]])
        wrong = Triples.from_rows(wrong.to_rows().unique(dim=0))
        wrong = wrong[torch.randperm(len(wrong), generator=generator)]
    return Triples.cat([facts, wrong[:count]])


def with_weights(facts: Triples, n_clean: int, weight: float) -> Triples:
    """Facts whose first ones have the weight 1, and the others a given one."""
    weights = torch.ones(len(facts), dtype=torch.float64)
    weights[n_clean:] = weight
    return replace(facts, weight=weights)


def mrr(graph: Graph, train: Triples, settings: list[str], seed: int) -> float:
    """MRR on the test facts of a model trained on these facts; the known facts of the graph are filtered."""
    config = Config.read(None, [*settings, f"train.seed={seed}"])
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed)
    fit(model, replace(graph, train=train, valid=graph.valid[:0]), config)
    device = pick_device(config.train.device)
    return evaluate_scorer(model, graph, EvaluateConfig(split="test"), device=device).metrics["mrr"]


def compare(graph: Graph, settings: list[str], seeds: int) -> dict[str, Any]:
    """The MRR of each training, by seed."""
    n_clean, by_training = len(graph.train), dict[str, list[float]]()
    for seed in range(seeds):
        noisy = add_wrong_facts(graph, SHARE, torch.Generator().manual_seed(seed))
        marked, ignored = (with_weights(noisy, n_clean, weight) for weight in (WEIGHT, 0.0))
        trainings = {
            "dropped": (graph.train, []),
            "unmarked": (noisy, []),
            "weight .3": (marked, []),
            "weight .3 squared": (marked, ["train.weight_power=2"]),
            "weight 0": (ignored, []),
        }
        for name, (train, more) in trainings.items():
            by_training.setdefault(name, []).append(mrr(graph, train, [*settings, *more], seed))
            print(graph.name, seed, name, round(by_training[name][-1], 4), flush=True)
    means = {name: statistics.mean(values) for name, values in by_training.items()}
    lost = means["dropped"] - means["unmarked"]
    recovered = {name: (means[name] - means["unmarked"]) / lost for name in means if name.startswith("weight")}
    return {
        "graph": graph.name, "train": n_clean, "wrong": len(noisy) - n_clean, "settings": settings, "mrr": by_training,
        "mean": means, "recovered": recovered if lost > 0 else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--loss", choices=[*SETTINGS], action="append")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    options = [f"--seeds {arguments.seeds}", *(f"--set {setting}" for setting in arguments.set)]
    for path in arguments.graphs:
        for loss in arguments.loss or SETTINGS:
            start, graph = time.perf_counter(), graph_file.load(path)
            row = compare(graph, [*SETTINGS[loss], *arguments.set], arguments.seeds)
            command = f"python benchmarks/noise_weights.py OUT.json {path.name} --loss {loss} {' '.join(options)}"
            row = {"loss": loss, **row, "seconds": round(time.perf_counter() - start), "command": command}
            rows = [old for old in rows if (old["graph"], old["loss"]) != (graph.name, loss)] + [row]
            arguments.out.write_text(json.dumps(result(rows), indent=1) + "\n")


def result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is written: rows of earlier calls stay, but for those of the same graph and loss."""
    return {
        "command": "python benchmarks/noise_weights.py OUT.json GRAPH.graph",
        "protocol": "test heads and tails, filtered by the clean graph, all entities are candidates",
        "share": SHARE, "weight": WEIGHT, "rows": rows, "environment": environment(pick_device("auto")),
    }  # fmt: skip


if __name__ == "__main__":
    main()
