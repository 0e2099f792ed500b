"""Updating a model against training it again: python benchmarks/bench_update.py results/bench-update.json GRAPH.graph.

A share of the training facts is added or removed, or a share of the entities or relations is held out and then added with
all their training facts. The base model is trained on the graph before the change, updated (`training/local_refit.py`)
and compared with a model trained on the graph after it, with the same settings and seed. Needs torch, numpy and
safetensors only; `--set train.device=cuda` and `--set model.entity_dim=512` and so on choose the rest.

Filtered MRR, both sides, all entities, of the base model, the updated one and the one trained again, on

    changed        the facts that were added (they are training facts then) or removed (nobody has them then)
    test_concerned test facts with an entity of a changed fact; of held-out entities or relations: those with one
    test_others    all other test facts
    train_others   training facts that did not change

The base model does not know held-out entities and relations, so it has no numbers for their facts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
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
from torch import Tensor

from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.data.graph_changes import GraphChange
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.runtime.config import Config
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit
from harmonium.training.local_refit import refit

KINDS = ("add", "remove", "entities", "relations")
RANKED = 10_000  # facts of each set, at most


def changed_rows(graph: Graph, share: float, generator: torch.Generator) -> Tensor:
    """(n,) bool: a random share of the training facts, without which every entity and relation still has one."""
    train, chosen = graph.train, torch.zeros(len(graph.train), dtype=torch.bool)
    left = torch.cat([train.head, train.tail]).bincount(minlength=graph.n_entities).tolist()
    left_of_relation = train.relation.bincount(minlength=graph.n_relations).tolist()
    rows, wanted = train.to_rows().tolist(), round(share * len(train))
    for index in torch.randperm(len(train), generator=generator).tolist():
        head, relation, tail = rows[index]
        needed = 2 if head == tail else 1
        if wanted and left[head] > needed and left[tail] > needed and left_of_relation[relation] > 1:
            left[head] -= 1
            left[tail] -= 1
            left_of_relation[relation] -= 1
            chosen[index] = True
            wanted -= 1
    return chosen


def held_out_last(count: int, ids: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, int]:
    """A new number for each of `count` ids, a random share of the given ones last; and the first of those."""
    held = ids[torch.randperm(len(ids), generator=generator)][: max(1, round(share * len(ids)))]
    stays = torch.ones(count, dtype=torch.bool).index_fill_(0, held, False)
    order = torch.cat([stays.nonzero()[:, 0], held])
    return torch.empty_like(order).scatter_(0, order, torch.arange(count)), int(stays.sum())


def renumbered(vocabulary: Vocabulary, number: Tensor) -> Vocabulary:
    return Vocabulary([vocabulary.ids[i] for i in number.argsort().tolist()], None, vocabulary.kind)


def with_facts(graph: Graph, change: Callable[[Triples], Triples], **parts: Any) -> Graph:
    """The graph with its splits changed alike."""
    splits = {split: change(facts) for split, facts in graph.splits.items()}
    return replace(graph, **splits, **parts)


def make_change(graph: Graph, kind: str, share: float, seed: int) -> GraphChange:
    """The graph before and after: training facts that are added come last."""
    generator, train = torch.Generator().manual_seed(seed), graph.train
    n_entities, n_relations = graph.n_entities, graph.n_relations
    if kind == "entities":
        seen = torch.cat([train.head, train.tail]).unique()
        number, n_entities = held_out_last(graph.n_entities, seen, share, generator)
        entities = renumbered(graph.entities, number)
        graph = with_facts(graph, lambda f: replace(f, head=number[f.head], tail=number[f.tail]), entities=entities)
    elif kind == "relations":
        number, n_relations = held_out_last(graph.n_relations, train.relation.unique(), share, generator)
        relations = renumbered(graph.relations, number)
        graph = with_facts(graph, lambda f: replace(f, relation=number[f.relation]), relations=relations)

    def known(facts: Triples) -> Triples:
        return facts[(facts.head < n_entities) & (facts.tail < n_entities) & (facts.relation < n_relations)]

    if kind in ("add", "remove"):
        changed = changed_rows(graph, share, generator)
    else:
        facts = graph.train
        changed = (facts.head >= n_entities) | (facts.tail >= n_entities) | (facts.relation >= n_relations)
    facts, none = graph.train[changed], graph.train[:0]
    kept = replace(graph, train=graph.train[~changed])
    if kind == "remove":
        return GraphChange(graph, kept, none, facts, facts, none, {})
    names = Vocabulary(graph.entities.ids[:n_entities]), Vocabulary(graph.relations.ids[:n_relations], None, "relation")
    before = with_facts(kept, known, entities=names[0], relations=names[1])
    after = replace(graph, train=Triples.cat([kept.train, facts]))
    return GraphChange(before, after, facts, none, none, none, {})


Trained = tuple[GradientGraph, float]  # a model on the CPU, and the seconds of its training


def train_model(graph: Graph, config: Config, trained: dict[str, Trained]) -> Trained:
    """A model of the graph; one that was trained on the same facts with the same settings is taken from `trained`."""
    key = training_key(graph, config)
    if key not in trained:
        model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
        began = time.perf_counter()
        fit(model, graph, config)
        trained[key] = (model.eval().to("cpu"), time.perf_counter() - began)
    return trained[key]


def training_key(graph: Graph, config: Config) -> str:
    """The same for the same training facts in any order, names in the same order, and the same settings."""
    train = graph.train
    facts = (train.head * graph.n_relations + train.relation) * graph.n_entities + train.tail
    names = "\n".join([*graph.entities.ids, *graph.relations.ids])
    return hashlib.sha256(facts.sort().values.numpy().tobytes() + names.encode() + repr(config).encode()).hexdigest()


def fact_sets(change: GraphChange) -> dict[str, Triples]:
    """The sets of the docstring."""
    graph, changed = change.graph, Triples.cat([change.added, change.removed])
    test, concerned = graph.test, change.has_new(graph.test)
    if not len(change.new_entities) and not len(change.new_relations):
        is_end = torch.zeros(graph.n_entities, dtype=torch.bool)
        is_end[changed.head] = is_end[changed.tail] = True
        concerned = is_end[test.head] | is_end[test.tail]
    others = graph.train[: len(graph.train) - len(change.added)]
    return {
        "changed": changed,
        "test_concerned": test[concerned],
        "test_others": test[~concerned],
        "train_others": others,
    }


def mrr(model: GradientGraph, graph: Graph, facts: Triples, device: torch.device) -> float | None:
    if not len(facts):
        return None
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))[:RANKED]
    value = evaluate_scorer(model.to(device), graph, triples=facts[order], device=device).metrics["mrr"]
    model.to("cpu")
    return value


def measure(change: GraphChange, config: Config, trained: dict[str, Trained]) -> dict[str, Any]:
    """Train before, update, train again, and rank."""
    device = pick_device(config.train.device)
    base, _ = train_model(change.before, config, trained)
    again, seconds_again = train_model(change.graph, config, trained)
    if device.type == "cuda":  # kernels are compiled and memory is allocated before the time is taken
        refit(base, change, config.train)
        torch.cuda.synchronize()
    began = time.perf_counter()
    refitted = refit(base, change, config.train)
    seconds = time.perf_counter() - began
    is_wider = (
        change.graph.n_entities > change.before.n_entities or change.graph.n_relations > change.before.n_relations
    )
    results: dict[str, dict[str, float | None]] = {}
    for name, facts in fact_sets(change).items():
        row = {
            "updated": mrr(refitted.model, change.graph, facts, device),
            "retrained": mrr(again, change.graph, facts, device),
        }
        if not is_wider or not change.has_new(facts).any():
            row["base"] = mrr(base, change.before if is_wider else change.graph, facts, device)
        results[name] = row
    return {
        "changed_facts": len(change.added) + len(change.removed),
        "moved_entities": len(refitted.entities),
        "moved_relations": len(refitted.relations),
        "mrr": results,
        "seconds": {"update": seconds, "retrain": seconds_again},
        "times_faster": seconds_again / seconds,
    }


def show(result: dict[str, Any]) -> None:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    print(
        f"{result['kind']} {result['share']:g} seed {result['seed']}: {result['changed_facts']:,} facts, "
        f"{result['moved_entities']:,} entities moved, {result['times_faster']:.0f} times faster"
    )
    for name, row in result["mrr"].items():
        print(f"    {name:15}" + "".join(f"  {which} {text(value)}" for which, value in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("graph")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.01, 0.05, 0.2])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--recipe", default="plain")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    keep_freed_memory()
    graph, results = graph_file.load(Path(chosen.graph)), []
    trained: dict[str, Trained] = {}  # a removal and an addition of the same facts need the same two models
    for share in chosen.shares:
        for kind in chosen.kinds:
            for seed in range(chosen.seeds):
                config = Config.read(chosen.recipe, [*chosen.set, f"train.seed={seed}"])
                change = make_change(graph, kind, share, seed)
                results.append({"kind": kind, "share": share, "seed": seed, **measure(change, config, trained)})
                show(results[-1])
                about = {
                    "command": portable_command("bench_update.py"),
                    "graph": graph.name,
                    "settings": [chosen.recipe, *chosen.set],
                    "protocol": f"at most {RANKED:,} facts of each set, both sides, filtered, all entities",
                    "environment": environment(pick_device(config.train.device)),
                    "load": os.getloadavg()[0],
                }
                Path(chosen.out).write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
