"""Coverage and size of answer sets on test facts: python benchmarks/bench_conformal.py OUT.json RUN ...

Each test fact is asked for twice, by its head and by its tail, with the facts of train and valid known; its answer set
holds candidates that are not known. Coverage is the share of sets that hold the answer of the fact. Thresholds come from
validation facts: one for all relations, as in the literature, or one for each relation; without and with types.
Published mean sizes at 90 % are those of ComplEx with softmax scores and one threshold.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.conformal import AnswerSets, count_answers, fit_answer_sets
from harmonium.data.entity_types import EntityTypes
from harmonium.data.triples import Slot
from harmonium.evaluation.candidates import score_and_log_normaliser
from harmonium.run.environment import environment
from harmonium.run.run import Run

KNOWN = ("train", "valid")
SIDES = (Slot.HEAD, Slot.TAIL)
PUBLISHED = {"FB15K-237": 271, "FB15K": 37, "WN18": 1.10, "WN18RR": 18_194}  # mean size at 90 %
MIN_FACTS = 20  # test facts of a relation that is judged on its own
SEED = 0  # of the sample of test facts


def measure(run: Run, sets: AnswerSets, coverage: float, count: int, by_relation: bool, typed: bool) -> dict[str, Any]:
    """Coverage and sizes over both sides of (at most `count`) test facts."""
    graph, scorer = run.graph, run.model.prepare()
    facts = graph.test[torch.randperm(len(graph.test), generator=torch.Generator().manual_seed(SEED))[:count]]
    types = EntityTypes.infer(graph, KNOWN) if typed else None
    covered, sizes = [], []
    for slot in SIDES:
        known = graph.known_answers(slot, KNOWN, facts)
        limits = sets.limits(scorer, graph, slot, facts, coverage, types, known, by_relation)
        reached = score_and_log_normaliser(scorer, slot, facts)[0].double() >= limits.score
        if limits.candidates is not None:
            reached &= ~limits.typed | limits.candidates.contains(facts.relation, facts[slot])
        covered.append(reached)
        sizes.append(count_answers(scorer, slot, facts, limits, known))
    return summarise(torch.cat([facts.relation] * 2), torch.cat(covered), torch.cat(sizes), coverage, run)


def summarise(relation: Tensor, covered: Tensor, sizes: Tensor, coverage: float, run: Run) -> dict[str, Any]:
    """All arguments but the last two are (sides * facts,)."""
    by_relation = {}
    for number in relation.unique().tolist():
        rows = relation == number
        if rows.sum() >= 2 * MIN_FACTS:
            by_relation[run.graph.relations.name(number)] = {
                "facts": int(rows.sum()) // 2,
                "coverage": round(covered[rows].double().mean().item(), 4),
                "mean size": round(sizes[rows].double().mean().item(), 2),
            }
    deviations = torch.tensor([abs(row["coverage"] - coverage) for row in by_relation.values()]).double()
    chance = torch.tensor([(coverage * (1 - coverage) / (2 * row["facts"])) ** 0.5 for row in by_relation.values()])
    result: dict[str, Any] = {
        "coverage": round(covered.double().mean().item(), 4),
        "mean size": round(sizes.double().mean().item(), 2),
        "median size": int(sizes.median()),
        "relations": len(by_relation),
    }
    if by_relation:
        result |= {
            "lowest coverage of a relation": min(row["coverage"] for row in by_relation.values()),
            "mean deviation over relations": round(deviations.mean().item(), 4),
            "mean deviation by chance": round(0.8 * chance.mean().item(), 4),  # that of a normal variable
        }
    return result | {"by relation": by_relation}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--coverage", type=float, nargs="+", default=[0.9])
    parser.add_argument("--facts", type=int, default=5000, help="test facts that are asked for")
    options = parser.parse_args()
    records = []
    for folder in options.runs:
        run, start = Run.load(folder), time.perf_counter()
        sets = fit_answer_sets(run.model, run.graph)
        seconds = round(time.perf_counter() - start, 1)
        for coverage in options.coverage:
            for by_relation in (False, True):
                for typed in (False, True):
                    record = {"graph": run.graph.name, "entities": run.graph.n_entities, "coverage asked for": coverage}
                    record |= {"threshold": "per relation" if by_relation else "one", "types": typed}
                    record |= {"published": PUBLISHED.get(run.graph.name), "seconds to fit": seconds}
                    record |= measure(run, sets, coverage, options.facts, by_relation, typed)
                    records.append(record)
                    print({key: value for key, value in record.items() if key != "by relation"}, flush=True)
    command = "python benchmarks/bench_conformal.py OUT.json " + " ".join(folder.name for folder in options.runs)
    content = {"command": command, "environment": environment(), "records": records}
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
