"""Facts hidden from a graph, and how many of them `complete` finds: python benchmarks/bench_missing.py OUT.json GRAPH ...

Facts are removed from the whole graph, from all splits alike: at random, or only values, that is facts that are their
head's only value of the relation. As many are hidden as validation holds of that kind, the number for which
probabilities are calibrated, and they are drawn as validation was: one by one where train has other facts over the same
two entities (UMLS), else only facts that are alone over their two entities where those of validation are (FB15K-237), else
all facts over the same two entities together, as `harmonium` splits. An only value is always alone. Every entity and
relation keeps a training fact. A model is trained on the rest, with its own splits, and asked for the most probable
missing facts: for hidden only values those in empty slots.

Two baselines answer from the same candidates: `frequency` orders facts by the share of their tail among the facts of the
relation; `frequency, calibrated` has all of the calibration, types included, with counts in place of the model's scores.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium import load
from harmonium.answers.calibration.calibration_fit import reliability_bins
from harmonium.answers.calibration.fact_probability import FactCalibration, fit_fact_calibration
from harmonium.answers.candidate_facts import FEATURES, CandidateSearch
from harmonium.answers.complete import find_missing
from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.index import is_member
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.baselines import Frequency
from harmonium.model.build import build_model
from harmonium.model.scoring import Scorer
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.training.fit import fit

SETTINGS = [
    "model.composition=complex", "model.harmony=false", "model.normalise=false", "model.reciprocal=true",
    "model.entity_dim=128", "train.loss=full", "train.optimiser=adagrad", "train.learning_rate=0.2",
    "train.batch_size=200", "train.n3=0.05", "train.epochs=15",
]  # fmt: skip
KINDS = ("random", "only values")
TOPS = (50, 300, 1000)


def is_only_value(facts: Triples, graph: Graph, splits: Sequence[str]) -> Tensor:
    """(n,) bool: whether no other fact of these splits has the same head and relation."""
    known = graph.known_answers(Slot.TAIL, splits)
    others = known.of(facts)[0].bincount(minlength=len(facts)) - known.contain(facts).long()
    return others == 0


def pairs_of(facts: Triples, n_entities: int) -> Tensor:
    """(n,): the two entities of each fact, in either order, as one number."""
    return torch.minimum(facts.head, facts.tail) * n_entities + torch.maximum(facts.head, facts.tail)


def choose_hidden(graph: Graph, kind: str, seed: int) -> Triples:
    """Facts to hide, as many as validation holds of this kind where there are so many."""
    facts, count = graph.facts(), len(graph.valid)
    group = pairs_of(facts, graph.n_entities)
    _, inverse, together = group.unique(return_inverse=True, return_counts=True)
    is_alone, first, last = together[inverse] == 1, len(graph.train), len(graph.train) + len(graph.valid)
    allowed = torch.ones_like(is_alone)
    if torch.isin(group[first:last], group[:first]).double().mean() > 0.05:
        group = torch.arange(len(facts))
    elif is_alone[first:last].double().mean() > 0.9:
        allowed = is_alone
    if kind == "only values":
        count = int((is_only_value(graph.valid, graph, ("train", "valid")) & is_alone[first:last]).sum())
        allowed = is_alone & is_only_value(facts, graph, tuple(graph.splits))
    return _draw(graph, facts, group.tolist(), allowed.tolist(), count, seed)


def _draw(graph: Graph, facts: Triples, group: list[int], allowed: list[bool], count: int, seed: int) -> Triples:
    """Random groups of facts, so long as every entity and relation keeps a training fact."""
    members: dict[int, list[int]] = {}
    for row, key in enumerate(group):
        members.setdefault(key, []).append(row)
    names, chosen = facts.to_rows().tolist(), []
    left = Counter(
        name for h, r, t in graph.train.to_rows().tolist() for name in (("entity", h), ("relation", r), ("entity", t))
    )
    for row in torch.randperm(len(facts), generator=torch.Generator().manual_seed(seed)).tolist():
        rows = members.pop(group[row], []) if allowed[row] and len(chosen) < count else []
        trained = [names[member] for member in rows if member < len(graph.train)]  # facts() begins with train
        lost = Counter(name for h, r, t in trained for name in (("entity", h), ("relation", r), ("entity", t)))
        if all(left[name] > number for name, number in lost.items()):
            chosen += rows
            left.subtract(lost)
    return facts[torch.tensor(sorted(chosen), dtype=torch.int64)]


def without(graph: Graph, hidden: Triples) -> Graph:
    """The graph without some of its facts."""

    def keys(facts: Triples) -> Tensor:
        return (facts.relation * graph.n_entities + facts.head) * graph.n_entities + facts.tail

    removed = keys(hidden).sort().values
    return replace(graph, **{split: facts[~is_member(keys(facts), removed)] for split, facts in graph.splits.items()})


def by_share(graph: Graph) -> FactCalibration:
    """Weights that order candidates by the share of their tail among the facts of the relation."""
    n_facts = graph.facts().relation.bincount(minlength=graph.n_relations).clamp(min=1).double()
    weights = [float(name == "heads") for name in FEATURES]  # log(1 + known heads of the tail)
    by_relation = {relation: [0.0] * len(FEATURES) + [-value] for relation, value in enumerate(n_facts.log().tolist())}
    return FactCalibration([0.0] * len(FEATURES), [1.0] * len(FEATURES), [*weights, 0.0], by_relation, 0)


def ask(
    scorer: Scorer, rest: Graph, hidden: Triples, only_empty: bool, calibration: FactCalibration | None
) -> dict[str, Any]:
    """Complete the rest, and compare the list with the hidden facts; either direction of a symmetric one counts."""
    began = time.perf_counter()
    search = CandidateSearch.prepare(scorer, rest, only_empty=only_empty)
    missing = find_missing(search, None, 10 * max(TOPS), calibration)
    seconds = time.perf_counter() - began
    known = replace(rest, train=hidden, valid=hidden[:0], test=hidden[:0]).known_answers(Slot.TAIL)
    facts = missing.triples
    reversed = Triples(facts.tail, facts.relation, facts.head)
    hit = known.contain(facts) | known.contain(reversed) & search.traits.symmetric[facts.relation]
    hits = {str(top): int(hit[:top].sum()) for top in TOPS}
    record: dict[str, Any] = {"hits": hits, "precision": {top: count / int(top) for top, count in hits.items()}}
    if missing.probabilities is not None:
        record["expected"] = {str(top): missing.probabilities[:top].sum().item() for top in TOPS}
        record["bins"] = reliability_bins(missing.probabilities, hit)
    return record | {"seconds": {"complete": seconds}}


def ask_calibrated(scorer: Scorer, rest: Graph, hidden: Triples, only_empty: bool) -> dict[str, Any]:
    began = time.perf_counter()
    calibration = fit_fact_calibration(scorer, rest)
    seconds = {"fit": time.perf_counter() - began}
    record = ask(scorer, rest, hidden, only_empty, calibration)
    return record | {"seconds": seconds | record["seconds"]}


def measure(graph: Graph, kind: str, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    """Hide facts, train on the rest, and complete it."""
    hidden, only_empty = choose_hidden(graph, kind, seed), kind == "only values"
    rest, config = without(graph, hidden), Config.read(None, [*settings, f"train.seed={seed}"])
    model, began = build_model(config.model, rest.n_entities, rest.n_relations, seed), time.perf_counter()
    fit(model, rest, config)
    counts = {"hidden": len(hidden), "valid": len(rest.valid), "training_seconds": time.perf_counter() - began}
    plain = ask(Frequency(rest), rest, hidden, only_empty, by_share(rest))
    answers = {
        "model": ask_calibrated(model, rest, hidden, only_empty),
        "frequency": {name: plain[name] for name in ("hits", "precision")},  # shares are no probabilities
        "frequency, calibrated": ask_calibrated(Frequency(rest), rest, hidden, only_empty),
    }
    return {"graph": graph.name, "kind": kind, "seed": seed, **counts, **answers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="settings in addition to SETTINGS")
    chosen = parser.parse_args()
    keep_freed_memory()
    settings, results = [*SETTINGS, *chosen.overrides], []
    for name in chosen.graphs:
        graph = load(name)
        for kind in chosen.kinds:
            for seed in range(chosen.seeds):
                if not len(choose_hidden(graph, kind, seed)):
                    print(graph.name, kind, seed, "nothing to hide", flush=True)
                    continue
                results.append(row := measure(graph, kind, seed, settings))
                hits = {name: value["hits"] for name, value in row.items() if isinstance(value, dict)}
                print(row["graph"], kind, seed, row["hidden"], hits, row["model"].get("expected"), flush=True)
    options = f" --set {' '.join(chosen.overrides)}" if chosen.overrides else ""
    graphs = " ".join(dict.fromkeys(row["graph"] for row in results))
    about = {
        "command": f"python benchmarks/bench_missing.py {chosen.out} {graphs} --seeds {chosen.seeds}{options}",
        "settings": settings,
        "environment": environment(),
        "load": os.getloadavg()[0],
    }
    Path(chosen.out).write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
