"""Do tokens gather, and what are they good for? Each measure beside its controls, on test facts that nothing has seen.

    python benchmarks/bench_tokens.py RUN ... --out results/tokens.json

Vectors and constraints are those that know train facts alone; the truth unit was learned on validation facts. A query is a
test fact with one side open; its candidates are the entities seen in that place.

- density: facts among the five nearest of the true answer, and of FALSE other candidates that make no fact of any split.
  Separation is the probability that the true answer has more of them than a false one of the same relation and side.
- roles: the reciprocal rank of the true answer among all entities by distance from a train answer X of the same query. The
  alike anchor is the train answer that shares most facts with the true one (Jaccard index), else one at random.

Differences are tested by relation (evaluation/significance.py).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from role_queries import RoleQuery, role_queries
from torch import Tensor
from torch.nn import functional as F

from harmonium import Run
from harmonium.answers.tokens import FAITHFULNESS, SIDES, TokenSpace, truth_unit_for
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.significance import compare_paired

NEAREST, FALSE = 5, 8
STRETCH = 4.0  # of composed vectors along the score: the paper's cap at lambda = 1
LAMBDAS = (2.0, 1.0, 0.25, 0.125)  # beside the default
TOKENS = "tokens"
Space = Callable[[Tensor], Tensor]  # anchors (a,) -> squared distances (a, n)


def spaces(space: TokenSpace, slot: Slot, query: Triples, candidates: Tensor) -> dict[str, Space]:
    """Tokens, and the controls."""
    entities = space.vectors.entity_vectors.of(candidates)
    composed = space.vectors.slot_map(slot, query).apply(entities)
    scores = space.scorer.score_slot(slot, query, candidates)[0].to(composed)
    plain = space.vectors.form(composed)[:, None]
    stretched = math.sqrt((STRETCH**2 - 1) / composed.shape[1]) * composed.sum(1, keepdim=True)
    role = space.role(slot, query, candidates)
    found = {
        "composed": euclidean(composed),
        "composed, cosine": euclidean(role.composed),
        "entity": euclidean(entities),
        "entity, cosine": euclidean(F.normalize(entities, dim=1)),
        "score": euclidean(scores[:, None]),
        "score of vectors": euclidean(plain),
        "stretched along the score": euclidean(torch.cat([composed, stretched], dim=1)),
        "truth unit alone": euclidean(role.truth[:, None]),
        TOKENS: euclidean(role.tokens()),
    }
    return found | {f"tokens, lambda = {x:g}": euclidean(role.tokens(x)) for x in LAMBDAS}


def euclidean(vectors: Tensor) -> Space:
    length = vectors.square().sum(1)
    return lambda rows: (length[rows, None] + length - 2 * vectors[rows] @ vectors.T).clamp(min=0)


# Density --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def density(space: TokenSpace, graph: Graph, split: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Facts among the nearest of true and of false answers, in each space."""
    generator = torch.Generator().manual_seed(seed)
    counts: dict[str, list[Tensor]] = {}
    relation, group = [], []
    for slot in SIDES:
        facts = graph.splits[split]
        facts = facts[torch.randperm(len(facts), generator=generator)[:count]]
        known, seen = graph.known_answers(slot, queries=facts), graph.slot_candidates(slot)
        for row in range(len(facts)):
            query = facts[[row]]
            candidates = seen.lookup(query.relation)[1]
            is_fact = torch.isin(candidates, known.of(query)[1])
            false = (~is_fact).nonzero().flatten()
            if not len(false):
                continue
            true = (candidates == query[slot]).nonzero().flatten()
            anchors = torch.cat([true, false[torch.randint(len(false), (FALSE,), generator=generator)]])
            for name, distances in spaces(space, slot, query, candidates).items():
                distance = distances(anchors)
                distance[torch.arange(len(anchors)), anchors] = torch.inf
                nearest = distance.topk(min(NEAREST, len(candidates) - 1), largest=False).indices
                counts.setdefault(name, []).append(is_fact[nearest].sum(1).double())
            relation.append(int(query.relation))
            group.append(2 * int(query.relation) + SIDES.index(slot))
    clusters, groups = torch.tensor(relation), torch.tensor(group)
    tables = {name: torch.stack(rows) for name, rows in counts.items()}  # (queries, 1 + FALSE)
    values = {name: separations(table, groups) for name, table in tables.items()}
    base, rows = tables["composed"], {}
    for name, table in tables.items():
        rows[name] = {
            "true": table[:, 0].mean().item(),
            "false": table[:, 1:].mean().item(),
            "separation": values[name].mean().item(),
        }
        if name == "composed":
            continue
        false, other = table[:, 1:].mean(1), base[:, 1:].mean(1)
        rows[name] |= {
            "true_change": compared(table[:, 0], base[:, 0], clusters),
            "false_change": compared(false, other, clusters),
            "gap_change": compared(table[:, 0] - false, base[:, 0] - other, clusters),
            "separation_change": compared(values[name], values["composed"], clusters),
        }
    return {"queries": len(clusters), "relations": len(clusters.unique()), "spaces": rows}


def separations(counts: Tensor, groups: Tensor) -> Tensor:
    """(queries,): how many of the false answers of the relation and side have fewer facts near, ties counting half."""
    values = torch.empty(len(counts), dtype=torch.float64)
    for group in groups.unique():
        mask = groups == group
        true, false = counts[mask, 0][:, None], counts[mask, 1:].flatten()
        values[mask] = ((true > false).double() + (true == false).double() / 2).mean(1)
    return values


def compared(model: Tensor, control: Tensor, relation: Tensor) -> dict[str, Any] | None:
    """The difference, its interval, and the larger p of both tests; None with a single relation."""
    if len(relation.unique()) < 2:
        return None
    result = compare_paired(model, control, relation, samples=2000)
    return {
        "difference": result.difference,
        "interval": result.interval,
        "p": max(result.p, result.sign_flip_p),
        "better_relations": result.better_relations,
        "relations": result.relations,
    }


# Roles ----------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def roles(space: TokenSpace, graph: Graph, split: str, count: int) -> dict[str, Any]:
    """Reciprocal ranks of the true answer by nearness to an anchor, in each space."""
    queries = role_queries(graph, split, count)
    everyone = torch.arange(graph.n_entities)
    values: dict[str, list[tuple[float, float]]] = {}
    for query in queries:
        for name, distances in spaces(space, query.slot, query.fact, everyone).items():
            if name.startswith("score"):
                scorer = space.scorer if name == "score" else space.vectors
                scores = scorer.score_slot(query.slot, query.fact)[0]
                distance = -scores.expand(len(query.anchors), -1)
            else:
                distance = distances(query.anchors)
            values.setdefault(name, []).append(reciprocal_ranks(distance.clone(), query))
    relation = torch.cat([query.fact.relation for query in queries])
    tables = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in values.items()}
    rows = {}
    for name, table in tables.items():
        rows[name] = {"alike": table[:, 0].mean().item(), "any": table[:, 1].mean().item()}
        if name != TOKENS:
            tokens = tables[TOKENS]
            rows[name] |= {
                f"tokens_better_{kind}": compared(tokens[:, column], table[:, column], relation)
                for column, kind in enumerate(("alike", "any"))
            }
    return {"queries": len(queries), "relations": len(relation.unique()), "spaces": rows}


def reciprocal_ranks(distance: Tensor, query: RoleQuery) -> tuple[float, float]:
    """Of the true answer, from the alike anchor (the first row) and the mean over the others; ties in the middle."""
    distance[:, query.known] = torch.inf  # other answers, the anchors among them, do not compete
    true = distance[:, query.fact[query.slot]]
    rank = 1 + (distance < true).sum(1) + ((distance == true).sum(1) - 1) / 2
    reciprocal = 1 / rank.double()
    return reciprocal[0].item(), reciprocal[1:].mean().item()


def measure(folder: Path, split: str, count: int) -> dict[str, Any]:
    run, start = Run.load(folder), time.perf_counter()
    scorer = run.held_out_scorer().prepare()
    space = TokenSpace(run.model.prepare(), scorer, truth_unit_for(run, scorer))
    learned = time.perf_counter() - start
    record = {
        "graph": run.graph.name,
        "split": split,
        "facts_of_a_side": count,
        "settings": repr(run.config),
        "device": run.environment["device"],
        "constraints": run.grammar is not None,
        "lambda": FAITHFULNESS,
        "seconds_to_learn": round(learned, 1),
        "density": density(space, run.graph, split, count),
        "roles": roles(space, run.graph, split, count // 2),
    }
    for name, row in record["density"]["spaces"].items():
        change = row.get("separation_change") or {}
        print(
            f"  {name:26} true {row['true']:.3f} false {row['false']:.3f} separation {row['separation']:.4f} "
            f"{change.get('difference', 0):+.4f} p {change.get('p', 1):.3f}"
        )
    for name, row in record["roles"]["spaces"].items():
        change = row.get("tokens_better_alike") or {}
        print(f"  {name:26} alike {row['alike']:.3f} any {row['any']:.3f} p {change.get('p', 1):.3f}", flush=True)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--count", type=int, default=500, help="facts of a side, a random sample")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    records = []
    for folder in arguments.runs:
        print(folder.name)
        records.append(measure(folder, arguments.split, arguments.count))
        if arguments.out:
            command = "python benchmarks/bench_tokens.py RUN ... --out results/tokens.json"
            summary = {"command": command, "device": records[0]["device"], "seed": 0, "runs": records}
            arguments.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
