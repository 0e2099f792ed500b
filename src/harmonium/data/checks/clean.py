"""A copy of a graph without leaks, as FB15K-237 was made from FB15K."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.relation_rules import RULE_KINDS, Rules, find_implied, mine_rules


def clean_copy(graph: Graph) -> tuple[Graph, dict[str, Any]]:
    """A copy without leaks, as FB15K-237 was made from FB15K, and a report of what was dropped. Names do not change.

    A repeated fact is kept in the first split that has it. Of redundant relations the one with the most facts is kept. Facts
    of valid and test that a confident rule still derives from train are dropped.
    """
    facts, n = graph.facts(), graph.n_entities
    sizes = torch.tensor([len(graph.splits[split]) for split in SPLITS])
    split = torch.repeat_interleave(torch.arange(3), sizes)  # (n,): index into SPLITS
    pair = (facts.head * n + facts.tail).unique(return_inverse=True)[1]
    rules = mine_rules(facts, n, graph.n_relations)
    replaced_by = _replaced_relations(rules)
    is_first = _first_occurrence(pair * graph.n_relations + facts.relation)
    is_kept_relation = ~torch.isin(facts.relation, torch.tensor(list(replaced_by), dtype=torch.int64))
    train = facts[is_first & is_kept_relation & (split == 0)]
    is_implied = find_implied(facts, train, rules, n)[0].any(0)
    is_not_implied = ~is_implied | (split == 0)
    steps = {"repeated": is_first, "redundant relation": is_kept_relation, "found by a rule": is_not_implied}
    dropped, keep = {}, torch.ones(len(facts), dtype=torch.bool)
    for reason, allowed in steps.items():
        counts = split[keep & ~allowed].bincount(minlength=3).tolist()
        dropped[reason], keep = dict(zip(SPLITS, counts, strict=True)), keep & allowed
    names = graph.relations.unique_names()
    train, valid, test = (facts[keep & (split == number)] for number in range(3))
    report = {
        "dropped": dropped,
        "relations": [{"dropped": names[r], "kept": names[other]} for r, other in replaced_by.items()],
        "triples": {"train": len(train), "valid": len(valid), "test": len(test)},
    }
    return replace(graph, train=train, valid=valid, test=test, name=f"{graph.name}-clean"), report


def _first_occurrence(codes: Tensor) -> Tensor:
    """(n,) bool: whether each number occurs for the first time."""
    order = codes.argsort(stable=True)
    is_first = torch.ones_like(codes, dtype=torch.bool)
    is_first[order[1:]] = codes[order[1:]] != codes[order[:-1]]
    return is_first


def _replaced_relations(rules: Rules) -> dict[int, int]:
    """Dropped relation -> the larger relation, kept in its stead, whose inverse or duplicate it is."""
    mutual = rules[rules.kind < RULE_KINDS.index("implied")]
    equivalent: dict[int, list[int]] = {}
    for body, head in zip(mutual.body.tolist(), mutual.head.tolist(), strict=True):
        equivalent.setdefault(body, []).append(head)
    kept: set[int] = set()
    replaced_by = {}
    for relation in rules.facts.argsort(descending=True, stable=True).tolist():
        larger = next((other for other in equivalent.get(relation, ()) if other in kept), None)
        if larger is None:
            kept.add(relation)
        else:
            replaced_by[relation] = larger
    return replaced_by
