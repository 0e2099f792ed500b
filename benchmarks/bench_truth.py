"""Are stated probabilities true? Missing facts are listed on graphs whose truth is known, and compared with it.

    python benchmarks/bench_truth.py results/truth.json RUNS CFamily=.data/CFamily atlas=atlas atlas-20=atlas:.2:random

RUNS is a folder for the trained runs; those in it are used again. Of a bed NAME=DATA the test facts are removed; the rest is
trained on (train) and calibrated on (valid). Of NAME=DATA:SHARE:HOW all facts are taken, a SHARE of them is removed, at
`random` or by `block` (a relation of all entities that have some value in common), and the rest is split by the program.
CFamily, UMLS and Nations are complete: every listed fact is one of those removed or false. Of atlas the same holds by its
sources; of CoDEx-S and Wiki79k true facts that no split has count as false.

Rows: {bed, list, top, stated, true, n} and {bed, list, bin, stated, true, n}, and the number of missing facts. The lists are
those of the program (`harmonium`), of its vectors alone, and of how frequent heads and tails are; all are calibrated alike.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import harmonium
from harmonium.answers.calibration.completeness import completeness_of
from harmonium.answers.calibration.fact_probability import fit_fact_calibration
from harmonium.answers.candidate_facts import CandidateSearch
from harmonium.answers.complete import find_missing
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.graph import Graph
from harmonium.data.split import split
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.baselines import Frequency
from harmonium.model.scoring import Scorer

SETTINGS = {"dim": 128, "epochs": 30, "n3": 0.01, "learning_rate": 0.1, "constraints": True, "threads": 1}
TOPS = (100, 300, 1000, 3000)
EDGES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
LISTED, MIN_BIN = 6000, 50
LARGEST_BLOCK = 5  # blocks that make up what is removed, at least


def prepare(data: str) -> tuple[Graph, Graph]:
    """The graph that the program sees, and the same entities with the removed facts as test."""
    source, *removal = data.split(":")
    whole = harmonium.load(source)
    if not removal:
        return replace(whole, test=whole.test[:0]), whole
    facts, share, how = whole.facts(), float(removal[0]), removal[1]
    gone = remove_blocks(facts, share) if how == "block" else remove_at_random(facts, share)
    kept, none = facts[~gone], facts[:0]
    seen = replace(whole, train=kept, valid=none, test=none)
    return split(seen), replace(seen, test=facts[gone])


def remove_at_random(facts: Triples, share: float) -> torch.Tensor:
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))
    return torch.zeros(len(facts), dtype=torch.bool).index_fill_(0, order[: round(share * len(facts))], True)


def remove_blocks(facts: Triples, share: float) -> torch.Tensor:
    """All facts of a relation whose heads have another value in common, for one relation and value after the other."""
    draw, gone = random.Random(0), torch.zeros(len(facts), dtype=torch.bool)
    while int(gone.sum()) < share * len(facts):
        row = draw.randrange(len(facts))
        head, relation = int(facts.head[row]), int(facts.relation[row])
        others = ((facts.head == head) & (facts.relation != relation)).nonzero()[:, 0].tolist()
        if others:
            other = draw.choice(others)
            alike = facts.head[(facts.relation == facts.relation[other]) & (facts.tail == facts.tail[other])]
            block = (facts.relation == relation) & torch.isin(facts.head, alike)
            if int(block.sum()) <= max(20, share * len(facts) / LARGEST_BLOCK):
                gone |= block
    return gone


def open_bed(name: str, data: str, runs: Path) -> tuple[OpenRun, Graph]:
    """The run of a bed, trained unless it is in the folder, and the graph whose test facts were removed."""
    graph, whole = prepare(data)
    if not (runs / name).exists():
        harmonium.train(graph, "plain", progress=False, minutes=60, out=runs / name, **SETTINGS)
    return open_run(runs / name), whole


def are_removed(facts: Triples, opened: OpenRun, whole: Graph) -> torch.Tensor:
    """(n,) float64: 1 for a removed fact; entities are compared by name."""
    entity = torch.tensor([whole.entities.index(name) for name in opened.graph.entities.ids])
    relation = torch.tensor([whole.relations.index(name) for name in opened.graph.relations.ids])
    named = Triples(entity[facts.head], relation[facts.relation], entity[facts.tail])
    removed = whole.known_answers(Slot.TAIL, ("test",))
    swapped = removed.contain(Triples(named.tail, named.relation, named.head))
    return (removed.contain(named) | (swapped & opened.traits.symmetric[facts.relation])).double()


def lists(opened: OpenRun) -> Iterator[tuple[str, Scorer, Scorer]]:
    """A name, the scorer that has learned from train facts alone, and the one that lists."""
    yield "harmonium", opened.held_out_scorer, opened.scorer
    yield "vectors alone", opened.run.model.prepare(), opened.vectors
    graph = opened.graph
    yield "frequency", Frequency(replace(graph, valid=graph.valid[:0], test=graph.test[:0])), Frequency(graph)


def judge(bed: str, opened: OpenRun, whole: Graph) -> list[dict[str, Any]]:
    """Rows of stated and true shares, for tops and bins of each list, and of the total number of missing facts."""
    rows: list[dict[str, Any]] = []
    for name, held_out, scorer in lists(opened):
        began = time.process_time()
        header: dict[str, Any] = {"bed": bed, "list": name}
        calibration = fit_fact_calibration(held_out, opened.graph)
        search = CandidateSearch.prepare(scorer, opened.graph)
        missing = find_missing(search, None, LISTED, calibration)
        assert calibration is not None and missing.probabilities is not None, "beds have validation facts"
        true, stated = are_removed(missing.triples, opened, whole), missing.probabilities
        for top in TOPS:
            if top <= len(true):
                rows.append(header | {"top": top} | compare(stated[:top], true[:top]))
        high = 1.01
        for low in EDGES:
            inside = (stated >= low) & (stated < high)
            if int(inside.sum()) >= MIN_BIN:
                rows.append(header | {"bin": low} | compare(stated[inside], true[inside]))
            high = low
        estimated = sum(relation.missing for relation in calibration.completeness(opened.graph))
        total = {"missing_estimated": round(estimated), "missing_true": len(whole.test)}
        rows.append(header | total | {"cpu_seconds": round(time.process_time() - began, 1)})
    inside = [within(row, opened, whole) for row in completeness_of(opened)]
    rows.append({"bed": bed, "relations": len(inside), "completeness_within_interval": sum(inside)})
    return rows


def compare(stated: torch.Tensor, true: torch.Tensor) -> dict[str, Any]:
    return {"stated": round(stated.mean().item(), 3), "true": round(true.mean().item(), 3), "n": len(true)}


def within(row: dict[str, Any], opened: OpenRun, whole: Graph) -> bool:
    """Whether the true completeness of a relation is in the interval that is stated."""
    names = [whole.relations.name(relation) for relation in whole.test.relation.tolist()]
    share = row["known"] / (row["known"] + names.count(row["relation"]))
    return bool(row["complete_low"] - 1e-9 <= share <= row["complete_high"] + 1e-9)


def main(out: str, runs: str, *beds: str) -> None:
    """Judge beds; rows of others that are in the file already are kept."""
    torch.set_num_threads(1)
    content: dict[str, Any] = {
        "command": "python benchmarks/bench_truth.py results/truth.json RUNS NAME=DATA ...",
        "protocol": "removed facts among the listed missing ones; settings: " + json.dumps(SETTINGS),
        "device": "CPU, one thread",
        "rows": json.loads(Path(out).read_text(encoding="utf-8"))["rows"] if Path(out).exists() else [],
    }
    for bed in beds:
        name, data = bed.split("=", 1)
        rows = judge(name, *open_bed(name, data, Path(runs)))
        content["rows"] = [row for row in content["rows"] if row["bed"] != name] + rows
        for row in rows:
            print(row, flush=True)
        Path(out).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
