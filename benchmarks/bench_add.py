"""Fold-in of new entities against retraining with them: python benchmarks/bench_add.py results/bench-add.json FOLDER.

A share of the entities is held out of training. `add` then gets their training facts, all or at most a few each, and is
evaluated on their valid and test facts: filtered MRR, both sides, all entities as candidates. The retrained model has
the same facts from the start and is evaluated on the same queries.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from harmonium import load
from harmonium.answers.fold_in import FoldIn, add_entities
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.runtime.config import Config
from harmonium.training.fit import fit

MODELS = {
    "DistMult": ["model.composition=distmult", "model.harmony=false"],
    "HHolE, rank 8": ["model.composition=hole", "model.rank=8"],
}
SETTINGS = ["model.entity_dim=64", "train.negatives=64", "train.batch_size=512", "train.learning_rate=0.02"]
SETTINGS += ["train.validation_triples=1000", "train.device=cpu"]
FEW = 5


def renumber_held_out_last(graph: Graph, share: float, seed: int) -> tuple[Graph, int]:
    """The graph with a random share of its trained entities numbered last, and the first of those."""
    trained = torch.cat([graph.train.head, graph.train.tail]).unique()
    chosen = trained[torch.randperm(len(trained), generator=torch.Generator().manual_seed(seed))]
    chosen = chosen[: round(share * len(trained))]
    stay = torch.ones(graph.n_entities, dtype=torch.bool)
    stay[chosen] = False
    order = torch.cat([stay.nonzero().flatten(), chosen])
    new_id = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    renumbered = {
        split: Triples(new_id[facts.head], facts.relation, new_id[facts.tail])
        for split in ("train", "valid", "test")
        for facts in [getattr(graph, split)]
    }
    names = Vocabulary([graph.entities.ids[i] for i in order.tolist()])
    return replace(graph, entities=names, **renumbered), int(stay.sum())


def mentions_new(facts: Triples, first: int) -> Tensor:
    return (facts.head >= first) | (facts.tail >= first)


def at_most(facts: Triples, first: int, few: int) -> Triples:
    """The first facts of each new entity, `few` of them."""
    seen: dict[int, int] = {}
    kept = []
    for index, (head, _, tail) in enumerate(facts.to_rows().tolist()):
        new = [entity for entity in {head, tail} if entity >= first]
        if all(seen.get(entity, 0) < few for entity in new):
            kept.append(index)
            seen |= {entity: seen.get(entity, 0) + 1 for entity in new}
    return facts[torch.tensor(kept)]


def train(graph: Graph, config: Config) -> tuple[GradientGraph, float]:
    model, began = (
        build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed),
        time.perf_counter(),
    )
    fit(model, graph, config)
    return model, time.perf_counter() - began


def compare(graph: Graph, first: int, config: Config, few: int | None, base: GradientGraph) -> dict:
    """MRR on the other facts of the held-out entities: by fold-in, and retrained with the same facts."""
    held = mentions_new(graph.train, first)
    given = graph.train[held] if few is None else at_most(graph.train[held], first, few)
    full = replace(graph, train=Triples.cat([graph.train[~held], given]))
    other = Triples.cat(
        [getattr(graph, split)[mentions_new(getattr(graph, split), first)] for split in ("valid", "test")]
    )
    given_to = torch.cat([given.head, given.tail])
    other = other[torch.isin(torch.where(other.head >= first, other.head, other.tail), given_to)]
    began = time.perf_counter()
    added = add_entities(base, FoldIn(full, given, first, ()), config.train)
    solving = time.perf_counter() - began
    retrained, training = train(config, full)
    mrr = {
        name: evaluate_scorer(model, graph, triples=other).metrics["mrr"]
        for name, model in (("add", added), ("retrain", retrained))
    }
    return {
        "facts_per_entity": "all" if few is None else few,
        "facts_given": len(given),
        "queries": 2 * len(other),
        "mrr": mrr,
        "ratio": mrr["add"] / mrr["retrain"],
        "seconds": {"add": solving, "retrain": training},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("data")
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    keep_freed_memory()
    graph, first = renumber_held_out_last(load(chosen.data), chosen.share, chosen.seed)
    kept = {
        split: getattr(graph, split)[~mentions_new(getattr(graph, split), first)]
        for split in ("train", "valid", "test")
    }
    fewer = replace(graph, entities=Vocabulary(graph.entities.ids[:first]), **kept)
    results = []
    for name in chosen.models:
        config = Config.read(None, [*SETTINGS, *MODELS[name], f"train.epochs={chosen.epochs}"])
        base, _ = train(config, fewer)
        for few in (None, FEW):
            results.append({"model": name, **compare(graph, first, config, few, base)})
            print(results[-1], flush=True)
    about_run = {
        "command": f"python benchmarks/bench_add.py {chosen.out} {graph.name} --share {chosen.share} "
        f"--epochs {chosen.epochs} --models {' '.join(map(repr, chosen.models))}",
        "settings": SETTINGS,
        "graph": graph.name,
        "held_out": graph.n_entities - first,
        "seed": chosen.seed,
        "protocol": "valid and test facts of the held-out entities, both sides, filtered, all entities, realistic ties",
        "environment": environment(),
        "load": os.getloadavg()[0],
    }
    Path(chosen.out).write_text(json.dumps(about_run | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
