"""Explanations checked by training again: bench_explain.py OUT.json GRAPH.graph [--set KEY=VALUE ...].

The protocol of Kelpie (Rossi et al. 2022). Test facts whose tail is ranked first are drawn at random.
Necessary: the explaining facts of all of them, at most four each, are removed and the model is trained again; removing as
many random facts of the same heads, and nothing, are the controls. What is compared is hits@1 and MRR of the same tails.
Every retraining has its own seed. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from portable_command import portable_command

from harmonium.analysis.influence import Influence
from harmonium.analysis.necessary_facts import MAX_NECESSARY_FACTS, find_necessary_facts
from harmonium.config.settings import Config
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.ranking import rank
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.environment import environment
from harmonium.training.fit import fit

COMPLEX = [
    "model.composition=complex", "model.harmony=false", "model.normalise=false", "model.reciprocal=true",
    "model.initial_spread=0.001", "model.entity_dim=256", "train.loss=full", "train.optimiser=adagrad",
    "train.learning_rate=0.1", "train.n3=0.05", "train.batch_size=500", "train.epochs=30",
]  # fmt: skip


class Experiment:
    """One graph: the model that is explained, and models trained again."""

    def __init__(self, graph: Graph, settings: list[str], count: int) -> None:
        self.graph, self.settings = replace(graph, valid=graph.valid[:0]), settings
        self.known = graph.known_answers(Slot.TAIL)
        self.model = self.train(self.graph.train, seed=0)
        ranks = self.ranks(self.model, graph.test)
        first = (ranks == 1).nonzero()[:, 0]
        drawn = torch.randperm(len(first), generator=torch.Generator().manual_seed(0))[:count]
        self.predictions, self.hits = graph.test[first[drawn]], len(first) / len(ranks)
        self.influence = Influence(self.model, self.graph)
        self.random = torch.Generator().manual_seed(1)

    def train(self, facts: Triples, seed: int) -> GradientGraph:
        config = Config.read(None, [*self.settings, f"train.seed={seed}"])
        model = build_model(config.model, self.graph.n_entities, self.graph.n_relations, seed)
        fit(model, replace(self.graph, train=facts), config)
        return model.cpu().eval()

    @torch.no_grad()
    def ranks(self, model: GradientGraph, triples: Triples) -> torch.Tensor:
        return rank(model.prepare(), triples, Slot.TAIL, self.known).values()

    def random_facts(self, triple: Triples, count: int) -> Triples:
        """Of the head."""
        facts = self.influence.facts_of(int(triple.head))
        return facts[torch.randperm(len(facts), generator=self.random)[:count]]

    def without(self, removed: list[Triples]) -> Triples:
        rows = {tuple(row) for facts in removed for row in facts.to_rows().tolist()}
        kept = [tuple(row) not in rows for row in self.graph.train.to_rows().tolist()]
        return self.graph.train[torch.tensor(kept)]

    def compare(self, facts: Triples, asked: Triples, seeds: range) -> dict[str, Any]:
        """Changes of hits@1 and MRR of triples when the model is trained on other facts."""
        before = self.ranks(self.model, asked)
        measured: dict[str, Any] = {"facts": len(facts) - len(self.graph.train), "hits@1": [], "mrr": []}
        for seed in seeds:
            after = self.ranks(self.train(facts, seed), asked)
            measured["hits@1"].append(round(((after == 1).double().mean() - (before == 1).double().mean()).item(), 4))
            measured["mrr"].append(round((1 / after - 1 / before).mean().item(), 4))
            measured["ranks"] = after.tolist()
        return measured


def each(predictions: Triples, explain: Callable[[Triples], Any]) -> tuple[list[Any], float]:
    """The explanation of each prediction, and seconds for one."""
    begun = time.perf_counter()
    explanations = [explain(predictions[row : row + 1]) for row in range(len(predictions))]
    return explanations, (time.perf_counter() - begun) / max(1, len(predictions))


def measure_necessary(experiment: Experiment, seeds: range) -> dict[str, Any]:
    predictions = experiment.predictions
    necessary, seconds = each(predictions, lambda triple: find_necessary_facts(experiment.influence, triple))
    random = [
        experiment.random_facts(predictions[row : row + 1], len(explained.facts))
        for row, explained in enumerate(necessary)
    ]
    removed = [explained.facts for explained in necessary]
    measured = {
        "explained": experiment.compare(experiment.without(removed), predictions, seeds),
        "random": experiment.compare(experiment.without(random), predictions, seeds),
        "nothing": experiment.compare(experiment.graph.train, predictions, seeds),
        "seconds_each": round(seconds, 3),
        "facts_each": sum(map(len, removed)) / len(removed),
    }
    decided = torch.tensor([bool(explained.ranks) and explained.ranks[-1] > 1 for explained in necessary])
    fell = torch.tensor(measured["explained"]["ranks"]) > 1
    measured["estimated_to_fall"] = {
        "share": decided.double().mean().item(),
        "fell": fell[decided].double().mean().item(),
        "others_fell": fell[~decided].double().mean().item(),
    }
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--set", nargs="*", default=[], help="settings KEY=VALUE")
    parser.add_argument("--predictions", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3, help="times that each model is trained again")
    chosen = parser.parse_args()
    results: dict[str, Any] = {
        "command": portable_command("bench_explain.py"),
        "protocol": f"Kelpie's: test tails ranked first, at most {MAX_NECESSARY_FACTS} facts each, filtered ranks of tails",
        "environment": environment(),
        "graphs": {},
    }
    for path in chosen.graphs:
        graph, settings = graph_file.load(path), [*COMPLEX, *chosen.set]
        experiment, seeds = Experiment(graph, settings, chosen.predictions), range(1, 1 + chosen.seeds)
        measured = {"settings": settings, "hits@1_of_test_tails": experiment.hits}
        measured["predictions"] = len(experiment.predictions)
        measured["necessary"] = necessary = measure_necessary(experiment, seeds)
        for part in ("explained", "random", "nothing"):
            necessary[part].pop("ranks")
            print(path.stem, part, necessary[part], flush=True)
        print(path.stem, necessary["estimated_to_fall"])
        results["graphs"][path.stem] = measured
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
