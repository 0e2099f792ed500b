"""What tokens may be used for, each beside its controls: python benchmarks/bench_token_uses.py RUN ... --out FILE.json.

- confidence: is a test fact true? AUC within relation and side, against other entities in the place, by the number of known
  facts among the five nearest in each space, by the score of the fact itself, and by both (the sum of their ranks). This
  is also what a wrong fact whose token lies among false ones would be suspected by.
- types (`--types FILE` of lines entity TAB type): of the entities that no known fact puts into the place, which are of the
  type of the role, by nearness to an entity that is? The share of the ten nearest.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from bench_tokens import FALSE, NEAREST, compared, separations, spaces
from torch import Tensor

from harmonium import Run
from harmonium.answers.tokens import SIDES, TokenSpace, truth_unit_for
from harmonium.data.graph import Graph

SHOWN = ("composed", "composed, cosine", "entity, cosine", "score", "tokens")
FEW, MIN_FILLERS = 10, 3  # nearest entities whose types are looked at, and fillers that a role has at least


@torch.no_grad()
def confidence(space: TokenSpace, graph: Graph, count: int, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, list[Tensor]] = {}
    relation, group = [], []
    for slot in SIDES:
        facts = graph.test[torch.randperm(len(graph.test), generator=generator)[:count]]
        known, seen = graph.known_answers(slot, ("train", "valid"), facts), graph.slot_candidates(slot)
        every = graph.known_answers(slot, queries=facts)
        for fact in facts.chunks(1):
            candidates = seen.lookup(fact.relation)[1]
            is_known = torch.isin(candidates, known.of(fact)[1])
            false = (~torch.isin(candidates, every.of(fact)[1])).nonzero().flatten()
            if not len(false):
                continue
            true = (candidates == fact[slot]).nonzero().flatten()
            anchors = torch.cat([true, false[torch.randint(len(false), (FALSE,), generator=generator)]])
            for name, distances in spaces(space, slot, fact, candidates).items():
                if name in SHOWN:
                    distance = distances(anchors)
                    distance[torch.arange(len(anchors)), anchors] = torch.inf
                    nearest = distance.topk(min(NEAREST, len(candidates) - 1), largest=False).indices
                    values.setdefault(f"facts near, {name}", []).append(is_known[nearest].sum(1).double())
            values.setdefault("the score itself", []).append(space.role(slot, fact, candidates[anchors]).truth.double())
            relation.append(int(fact.relation))
            group.append(2 * int(fact.relation) + SIDES.index(slot))
    tables, groups = {name: torch.stack(part) for name, part in values.items()}, torch.tensor(group)
    own = tables["the score itself"]
    for name in ("composed", "tokens"):
        tables[f"both, {name}"] = _ranks(own) + _ranks(tables[f"facts near, {name}"])
    auc = {name: separations(table, groups) for name, table in tables.items()}
    control = auc["the score itself"]
    return {
        name: {"auc": value.mean().item(), "beside_score": compared(value, control, torch.tensor(relation))}
        for name, value in auc.items()
    }


def _ranks(table: Tensor) -> Tensor:
    """Of the values among all; equal ones share their mean."""
    _, position, counts = table.flatten().unique(return_inverse=True, return_counts=True)
    middle = counts.cumsum(0) - counts.double() / 2
    return middle[position].view_as(table)


@torch.no_grad()
def types(space: TokenSpace, graph: Graph, file: Path, count: int, seed: int = 0) -> dict[str, Any]:
    """A role's type is the one of the entity's types that is most frequent among those who play it, relative to all."""
    has_type, generator = read_types(file, graph), torch.Generator().manual_seed(seed)
    values: dict[str, list[float]] = {}
    relation = []
    for slot in SIDES:
        known, done = graph.known_answers(slot), 0
        for row in torch.randperm(len(graph.test), generator=generator).tolist():
            fact = graph.test[[row]]
            fillers, entity = known.of(fact)[1], int(fact[slot])
            lift = has_type[fillers].float().mean(0) / has_type.float().mean(0).clamp(min=1e-6) * has_type[entity]
            if len(fillers) < MIN_FILLERS or not lift.any():
                continue
            everyone = torch.arange(graph.n_entities)
            for name, distances in spaces(space, slot, fact, everyone).items():
                if name in SHOWN:
                    distance = distances(fact[slot])[0].index_fill(0, fillers, torch.inf)
                    nearest = distance.topk(FEW, largest=False).indices
                    values.setdefault(name, []).append(has_type[nearest, lift.argmax()].double().mean().item())
            relation.append(int(fact.relation))
            done += 1
            if done == count:
                break
    tables, clusters = {name: torch.tensor(part) for name, part in values.items()}, torch.tensor(relation)
    return {
        name: {"share": table.mean().item(), "tokens_better": compared(tables["tokens"], table, clusters)}
        for name, table in tables.items()
    }


def read_types(file: Path, graph: Graph) -> Tensor:
    """(n_entities, types) bool, from lines of an entity's identifier, a tab, and one of its types."""
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    number = {name: position for position, name in enumerate(sorted({kind for _, kind in lines}))}
    entity = {identifier: position for position, identifier in enumerate(graph.entities.ids)}
    has_type = torch.zeros(graph.n_entities, len(number), dtype=torch.bool)
    for identifier, kind in lines:
        if identifier in entity:
            has_type[entity[identifier], number[kind]] = True
    return has_type


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--types", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    records = []
    for folder in options.runs:
        run = Run.load(folder)
        scorer = run.held_out_scorer().prepare()
        space = TokenSpace(run.model.prepare(), scorer, truth_unit_for(run, scorer))
        record = {"graph": run.graph.name, "confidence": confidence(space, run.graph, options.count)}
        if options.types:
            record["types"] = types(space, run.graph, options.types, options.count)
        records.append(record)
        print(json.dumps(record, indent=1), flush=True)
        options.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
