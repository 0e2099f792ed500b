"""Are wrong facts found? Wrong facts of several kinds are mixed into graphs, and `audit` lists what it suspects.

    python benchmarks/bench_audit.py results/audit.json --bed atlas=atlas --noise random same-role --share .05 --seed 1

Kinds of noise: `random` (the recipe of CAGED: half with one slot replaced, half three random names), `same-role` (another
value of the same relation), `exchanged` (head and tail), `replaced` (half one slot, half exchanged, and the right facts are
gone, so that proposals can be checked), `negatives` (facts that people verified to be false: *_negatives.txt of CoDEx)
and `none`. Wrong facts are added to train, valid and test in proportion. Rows that the file has already are not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import Tensor

import harmonium
from harmonium.answers.audit import audit
from harmonium.answers.audit.artificial_errors import KINDS, Draws, draw_errors
from harmonium.answers.audit.fold_vectors import deal_folds
from harmonium.answers.audit.hidden_evidence import FEATURES
from harmonium.answers.audit.proposals import propose
from harmonium.answers.open_run import open_run
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples

SETTINGS = {"dim": 128, "epochs": 30, "n3": 0.01, "learning_rate": 0.1, "constraints": True, "threads": 1}
TOPS = (0.01, 0.02, 0.03, 0.04, 0.05)
Row = dict[str, Any]


def wrong_facts(graph: Graph, noise: str, count: int, seed: int, data: str) -> tuple[Triples, Triples]:
    """Wrong facts, and the right ones that they replace (none unless the noise is `replaced`)."""
    facts, generator = graph.facts(), torch.Generator().manual_seed(1000 + seed)
    sizes = graph.n_entities, graph.n_relations
    none = facts[:0]
    if noise == "random":
        kinds = ("one slot", count // 2), ("all slots", count - count // 2)
        return distinct(Triples.cat([draw_errors(k, facts, *sizes, n, generator).facts for k, n in kinds])), none
    if noise in ("same-role", "exchanged"):
        return draw_errors(noise.replace("-", " "), facts, *sizes, count, generator).facts, none
    if noise == "negatives":
        lines = [line.split("\t") for name in ("valid", "test") for line in negatives(data, name)]
        rows = torch.stack([graph.triple(*line).to_rows()[0] for line in lines])
        return Triples.from_rows(rows[torch.randperm(len(rows), generator=generator)[:count]]), none
    if noise == "replaced":
        chosen = facts[torch.randperm(len(facts), generator=generator)[: 2 * count]]
        draws, half = Draws(facts, *sizes, generator), len(chosen) // 2
        changed = Triples.cat([KINDS["one slot"](draws, chosen[:half]), KINDS["exchanged"](draws, chosen[half:])])
        new = ~KnownAnswers.build(Slot.TAIL, facts, graph.n_entities).contain(changed)
        order = new.nonzero()[:, 0]
        order = order[torch.randperm(len(order), generator=generator)][:count]
        return changed[order], chosen[order]
    return none, none


def negatives(data: str, split: str) -> list[str]:
    return (Path(data) / f"{split}_negatives.txt").read_text().splitlines()


def distinct(facts: Triples) -> Triples:
    return Triples.from_rows(facts.to_rows().unique(dim=0))


def mix(graph: Graph, wrong: Triples, replaced: Triples, seed: int) -> Graph:
    """The graph with wrong facts in all splits in proportion, without the facts that they replace."""
    generator = torch.Generator().manual_seed(seed)
    wrong = wrong[torch.randperm(len(wrong), generator=generator)]
    gone = KnownAnswers.build(Slot.TAIL, replaced, graph.n_entities)
    total, first, splits = len(graph.facts()), 0.0, {}
    for split in SPLITS:
        last = first + len(wrong) * len(graph.splits[split]) / total
        kept = graph.splits[split][~gone.contain(graph.splits[split])] if len(replaced) else graph.splits[split]
        splits[split] = Triples.cat([kept, wrong[round(first) : round(last)]])
        first = last
    return replace(graph, **splits)


def evaluate(bed: str, data: str, noise: str, share: float, seed: int) -> Row:
    """Train on the noisy graph, audit it, and compare with what is wrong."""
    clean = harmonium.load(data)
    count = round(share * len(clean.facts()))
    wrong, replaced = wrong_facts(clean, noise, count, seed, data)
    began = time.process_time()
    run = harmonium.train(
        mix(clean, wrong, replaced, seed), "plain", progress=False, minutes=60, last_training=True, **SETTINGS
    )
    trained = time.process_time()
    opened, graph = open_run(run), run.graph
    facts = graph.facts()
    folds = deal_folds(len(facts))
    witness = audit.call_witness(opened, facts, folds)
    judged = audit.judge(witness, facts, folds)
    log_odds = judged.model.log_odds(judged.heard.features)
    order = log_odds.argsort(descending=True, stable=True)
    likely = order[: int((log_odds.sigmoid() >= audit.PROPOSED).sum())]
    chosen = judged.rows[likely]
    meant = propose(witness, judged.model, facts[chosen], folds[chosen], judged.heard[likely])
    audited = time.process_time()
    is_wrong = contains(graph, clean, wrong, facts)
    row: Row = {"bed": bed, "noise": noise, "share": share, "seed": seed}
    row |= {"facts": len(facts), "wrong": int(is_wrong.sum()), "judged": len(judged.rows)}
    row |= {"train_seconds": round(trained - began, 1), "audit_seconds": round(audited - trained, 1)}
    low, high = judged.model.interval
    row |= {"estimated": [round(value, 4) for value in (judged.model.share, low, high)]}
    full = torch.full((len(facts),), -torch.inf, dtype=torch.float64)
    full[judged.rows] = log_odds
    row |= quality(full, is_wrong)
    for level in (0.5, 0.9):
        above = full.sigmoid() > level
        row[f"above_{level}"] = {"facts": int(above.sum()), "wrong": mean(is_wrong[above])}
    if len(judged.rows) == len(facts):
        row["alone"] = {name: quality(values, is_wrong) for name, values in baselines(graph, judged).items()}
    row["proposals"] = check_proposals(graph, clean, wrong, replaced, facts[chosen], is_wrong[chosen], meant)
    return row


def baselines(graph: Graph, judged: audit.Judged) -> dict[str, Tensor]:
    """Suspicion by one kind of evidence alone, not learned: minus the sum of both margins; frequency of head and tail."""
    column = {name: judged.heard.features[:, number] for number, name in enumerate(FEATURES)}
    facts, counts = graph.facts(), []
    for slot in (Slot.HEAD, Slot.TAIL):
        key = facts.relation * graph.n_entities + facts[slot]
        _, number, count = key.unique(return_inverse=True, return_counts=True)
        counts.append((count[number] - 1).double().log1p())
    return {
        "vectors": -(column["head by vectors"] + column["tail by vectors"]),
        "constraints": -(column["head by constraints"] + column["tail by constraints"]),
        "both": -(column["head margin"] + column["tail margin"]),
        "frequency": -(counts[0] + counts[1]),
    }


def contains(graph: Graph, clean: Graph, triples: Triples, facts: Triples) -> Tensor:
    """(n,) bool: which facts of a graph are among triples of the clean one."""
    renamed = rename(graph, clean, triples)
    return KnownAnswers.build(Slot.TAIL, renamed, graph.n_entities).contain(facts)


def rename(graph: Graph, clean: Graph, triples: Triples) -> Triples:
    """Triples of the clean graph by the ids of another graph with the same names."""
    entity = torch.tensor([graph.entities.index(name) for name in clean.entities.ids])
    relation = torch.tensor([graph.relations.index(name) for name in clean.relations.ids])
    return Triples(entity[triples.head], relation[triples.relation], entity[triples.tail])


def check_proposals(
    graph: Graph, clean: Graph, wrong: Triples, replaced: Triples, facts: Triples, is_wrong: Tensor, meant: list[Any]
) -> Row:
    """How many changes are proposed, for wrong facts, and how many of those are the facts that were replaced."""
    proposed = [(row, each) for row, each in enumerate(meant) if each is not None]
    result: Row = {"proposed": len(proposed), "of_wrong": sum(bool(is_wrong[row]) for row, _ in proposed)}
    if len(replaced):
        keys = map(tuple, rename(graph, clean, wrong).to_rows().tolist())
        right = dict(zip(keys, map(tuple, rename(graph, clean, replaced).to_rows().tolist()), strict=True))
        rows = facts.to_rows().tolist()
        hits = [right.get(tuple(rows[row])) == each.triple for row, each in proposed]
        result |= {"replaced": len(replaced), "right": sum(hits)}
        kinds = {each.change for _, each in proposed}
        result["right_by_change"] = {
            kind: [sum(h for h, (_, e) in zip(hits, proposed, strict=True) if e.change == kind),
                   sum(e.change == kind for _, e in proposed)]
            for kind in sorted(kinds)
        }  # fmt: skip
    return result


def quality(score: Tensor, is_wrong: Tensor) -> Row:
    """Precision of the first 1 to 5 %, recall at 5 %, AUC and average precision; none without wrong facts."""
    if not is_wrong.any():
        return {}
    order = score.argsort(descending=True, stable=True)
    hits = is_wrong[order].double()
    n, n_wrong = len(hits), float(hits.sum())
    precision = hits.cumsum(0) / torch.arange(1, n + 1)
    place = torch.empty(n, dtype=torch.float64).index_put_((order,), torch.arange(n, 0, -1, dtype=torch.float64))
    area = (float(place[is_wrong].sum()) - n_wrong * (n_wrong + 1) / 2) / (n_wrong * (n - n_wrong))
    return {
        "precision": [round(float(precision[max(0, round(top * n) - 1)]), 3) for top in TOPS],
        "recall": round(float(hits[: round(TOPS[-1] * n)].sum()) / n_wrong, 3),
        "auc": round(area, 4),
        "average_precision": round(float((precision * hits).sum()) / n_wrong, 3),
    }


def mean(values: Tensor) -> float | None:
    return round(values.double().mean().item(), 3) if len(values) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bed", nargs="+", required=True, help="NAME=GRAPH")
    parser.add_argument("--noise", nargs="+", default=["random"])
    parser.add_argument("--share", nargs="+", type=float, default=[0.05])
    parser.add_argument("--seed", nargs="+", type=int, default=[1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    content = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    content |= {"command": "python benchmarks/bench_audit.py", "settings": SETTINGS}
    content["protocol"] = "wrong facts added to all splits; every fact judged; CPU seconds of one thread"
    content["device"] = f"{platform.machine()} CPU, 1 thread, torch {torch.__version__}"
    for bed in options.bed:
        name, data = bed.split("=", 1)
        for noise in options.noise:
            for share in options.share if noise != "none" else [0.0]:
                for seed in options.seed:
                    key = name, noise, share, seed
                    if any((r["bed"], r["noise"], r["share"], r["seed"]) == key for r in content["rows"]):
                        continue
                    row = evaluate(name, data, noise, share, seed)
                    print(json.dumps(row), flush=True)
                    content["rows"].append(row)
                    options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
