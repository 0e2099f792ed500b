"""Updating a model against training it again: python benchmarks/bench_update.py results/bench-update.json GRAPH.graph.

A share of the training facts is added or removed, or a share of the entities or relations is held out and then added with
all their training facts. The base model is trained on the graph before the change, updated (`training/refit/local_refit.py`)
and compared with a model trained on the graph after it, with the same settings and seed. Needs torch, numpy and
safetensors only; `--set train.device=cuda` and `--set model.entity_dim=512` and so on choose the rest.

Filtered MRR, both sides, all entities, of the base model, the updated one and the one trained again, on

    changed        the facts that were added (they are training facts then) or removed (nobody has them then)
    test_concerned test facts with an entity of a changed fact; of held-out entities or relations: those with one
    test_others    all other test facts
    train_others   training facts that did not change

The base model does not know held-out entities and relations, so it has no numbers for their facts.

`--chain 10` makes ten random changes in a row instead, each an update of the run before it: facts, entities and relations
added, facts removed, all facts of an entity but one removed, and mixtures, of one fact to a tenth of the graph. After the
first, the middle and the last one the updated model is compared with one trained again, on the facts added so far, those
removed so far, and test and training facts as above.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from portable_command import portable_command
from torch import Tensor

from harmonium.config.settings import Config
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.data.graph_changes import GraphChange, change_graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit
from harmonium.training.refit.local_refit import refit

KINDS = ("add", "remove", "entities", "relations")
CHANGES = ("add", "remove", "of one entity", "entities", "relations", "mixed")  # of a chain
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


# Many changes in a row -----------------------------------------------------------------------------------------------


def random_chain(graph: Graph, count: int, seed: int) -> tuple[Graph, list[tuple[Triples, Triples]]]:
    """The graph before all changes, and for each change the facts to add and to remove, in the ids of the whole graph.

    Facts are added from those held out at the start. Removed facts are of the start: what an update added stays.
    """
    generator, train = torch.Generator().manual_seed(seed), graph.train

    def pick(available: Tensor, size: int) -> Tensor:
        rows = available.nonzero()[:, 0]
        return rows[torch.randperm(len(rows), generator=generator)[:size]]

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    later_entity, later_relation = torch.zeros(graph.n_entities), torch.zeros(graph.n_relations)
    later_entity[torch.randperm(graph.n_entities, generator=generator)[: round(0.1 * graph.n_entities)]] = 1
    later_relation[torch.randperm(graph.n_relations, generator=generator)[: round(0.1 * graph.n_relations)]] = 1
    is_later = (later_entity[train.head] + later_entity[train.tail] + later_relation[train.relation]) > 0
    spare = changed_rows(graph, 0.15, generator) & ~is_later
    start = ~is_later & ~spare
    pools = {"add": spare, "entities": (later_entity[train.head] + later_entity[train.tail] > 0) & is_later}
    pools["relations"] = is_later & ~pools["entities"]
    pools["remove"] = start.clone()
    n_start, changes = int(start.sum()), list[tuple[Triples, Triples]]()
    for _ in range(count):
        size = max(1, round(math.exp(draw(0, math.log(0.1 * n_start)))))
        kind = CHANGES[int(torch.randint(len(CHANGES), (), generator=generator))]
        chosen = {name: train.head.new_empty(0) for name in pools}
        if kind == "of one entity":
            ends = torch.cat([train.head[pools["remove"]], train.tail[pools["remove"]]]).bincount()
            entity = int(ends.double().clamp(max=0.02 * n_start).multinomial(1, generator=generator))
            chosen["remove"] = pick(pools["remove"] & ((train.head == entity) | (train.tail == entity)), n_start)[1:]
        for name in pools if kind == "mixed" else [kind] if kind in pools else []:
            chosen[name] = pick(pools[name], math.ceil(size / (len(pools) if kind == "mixed" else 1)))
        if not any(map(len, chosen.values())):
            chosen["remove"] = pick(pools["remove"], size)
        for name, rows in chosen.items():
            pools[name][rows] = False
        added = torch.cat([chosen[name] for name in ("add", "entities", "relations")])
        changes.append((train[added], train[chosen["remove"]]))
    known_entities = torch.zeros(graph.n_entities, dtype=torch.bool)
    known_relations = torch.zeros(graph.n_relations, dtype=torch.bool)
    known_entities[torch.cat([train.head[start], train.tail[start]])] = True
    known_relations[train.relation[start]] = True
    return restricted(replace(graph, train=train[start]), known_entities, known_relations), changes


def restricted(graph: Graph, known_entities: Tensor, known_relations: Tensor) -> Graph:
    """The part of a graph with these entities and relations."""
    entity, relation = (mask.cumsum(0) - 1 for mask in (known_entities, known_relations))

    def change(facts: Triples) -> Triples:
        facts = facts[known_entities[facts.head] & known_entities[facts.tail] & known_relations[facts.relation]]
        return replace(facts, head=entity[facts.head], relation=relation[facts.relation], tail=entity[facts.tail])

    names = (
        Vocabulary([name for name, keep in zip(v.ids, mask.tolist(), strict=True) if keep], None, v.kind)
        for v, mask in ((graph.entities, known_entities), (graph.relations, known_relations))
    )
    return with_facts(graph, change, **dict(zip(("entities", "relations"), names, strict=True)))


def in_ids_of(graph: Graph, facts: Triples, of: Graph) -> Triples:
    """Facts of another graph in the ids of this one; those with unknown names are left out."""
    entity, relation = (
        torch.tensor([known.index(name) if name in known else -1 for name in given.ids])
        for known, given in ((graph.entities, of.entities), (graph.relations, of.relations))
    )
    rows = torch.stack([entity[facts.head], relation[facts.relation], entity[facts.tail]], dim=1)
    return Triples.from_rows(rows[(rows >= 0).all(1)])


def measure_chain(graph: Graph, count: int, config: Config, trained: dict[str, Trained]) -> Iterator[dict[str, Any]]:
    """The results after the first, the middle and the last of many updates in a row."""
    device, none = pick_device(config.train.device), graph.train[:0]
    names = Vocabulary(graph.entities.ids), Vocabulary(graph.relations.ids, None, "relation")
    start, changes = random_chain(graph, count, config.train.seed)
    base, _ = train_model(start, config, trained)
    current, model, seconds, moved, moved_relations = start, base, list[float](), 0, 0
    added, removed = none, none
    for number, (to_add, to_remove) in enumerate(changes, 1):
        given = [Graph(*names, facts, none, none) if len(facts) else None for facts in (to_add, to_remove)]
        change = change_graph(current, *given)
        began = time.perf_counter()
        refitted = refit(model, change, config.train)
        seconds.append(time.perf_counter() - began)
        current, model = change.graph, refitted.model
        moved, moved_relations = moved + len(refitted.entities), moved_relations + len(refitted.relations)
        added, removed = Triples.cat([added, to_add]), Triples.cat([removed, to_remove])
        if number not in (1, (count + 1) // 2, count):
            continue
        again, seconds_again = train_model(current, config, trained)
        now = replace(current, test=in_ids_of(current, graph.test, graph))
        sets = {"added": in_ids_of(now, added, graph), "removed": in_ids_of(now, removed, graph)}
        is_end = torch.zeros(now.n_entities, dtype=torch.bool)
        for facts in sets.values():
            is_end[facts.head] = is_end[facts.tail] = True
        concerned = is_end[now.test.head] | is_end[now.test.tail]
        sets |= {"test_concerned": now.test[concerned], "test_others": now.test[~concerned]}
        sets["train_others"] = now.train[: len(now.train) - len(sets["added"])]
        before = replace(
            start, train=in_ids_of(start, now.facts(), now), valid=none, test=none
        )  # the same are filtered
        results = {
            name: {
                "updated": mrr(model, now, facts, device),
                "retrained": mrr(again, now, facts, device),
                "base": mrr(base, before, in_ids_of(start, facts, now), device),
            }
            for name, facts in sets.items()
        }
        yield {
            "updates": number,
            "sizes": [[len(to_add), len(to_remove)] for to_add, to_remove in changes[:number]],
            "changed_facts": len(added) + len(removed),
            "moved_entities": moved,
            "moved_relations": moved_relations,
            "counts": {name: len(facts) for name, facts in sets.items()},
            "mrr": results,
            "seconds": {"update": max(seconds), "retrain": seconds_again},
            "times_faster": seconds_again / max(seconds),
        }


def show(result: dict[str, Any]) -> None:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    change = f"{result['updates']} updates" if "updates" in result else f"{result['kind']} {result['share']:g}"
    print(
        f"{change}, seed {result['seed']}: {result['changed_facts']:,} facts, "
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
    parser.add_argument("--chain", type=int, default=0, metavar="COUNT")
    parser.add_argument("--recipe", default="plain")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    keep_freed_memory()
    graph, results = graph_file.load(Path(chosen.graph)), []
    config = Config.read(chosen.recipe, chosen.set)
    about = {
        "command": portable_command("bench_update.py"),
        "graph": graph.name,
        "settings": [chosen.recipe, *chosen.set],
        "protocol": f"at most {RANKED:,} facts of each set, both sides, filtered, all entities",
        "environment": environment(pick_device(config.train.device)),
        "load": os.getloadavg()[0],
    }
    for result in run_benchmark(graph, chosen):
        results.append(result)
        show(result)
        Path(chosen.out).write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


def run_benchmark(graph: Graph, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    trained: dict[str, Trained] = {}  # a removal and an addition of the same facts need the same two models
    configs = [Config.read(chosen.recipe, [*chosen.set, f"train.seed={seed}"]) for seed in range(chosen.seeds)]
    if chosen.chain:
        for seed, config in enumerate(configs):
            for result in measure_chain(graph, chosen.chain, config, trained):
                yield {"kind": "chain", "seed": seed, **result}
        return
    for share in chosen.shares:
        for kind in chosen.kinds:
            for seed, config in enumerate(configs):
                change = make_change(graph, kind, share, seed)
                yield {"kind": kind, "share": share, "seed": seed, **measure(change, config, trained)}


if __name__ == "__main__":
    main()
