"""Queries for entities in a role: a held-out fact (Z, r, Y), and anchors X of training facts (X, r, Y)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.answers.tokens import SIDES
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples

ANCHORS, MAX_ANCHORS = 4, 32  # random anchors of a query, and those among which the most alike is sought


@dataclass(frozen=True)
class RoleQuery:
    """A held-out fact, and anchors in its place, the most alike first."""

    slot: Slot
    fact: Triples  # one row
    anchors: Tensor  # (a,)
    known: Tensor  # (k,): other answers, which do not compete


def role_queries(graph: Graph, split: str, count: int, seed: int = 0) -> list[RoleQuery]:
    """`count` queries of each side, from a random sample of held-out facts that share their role with training facts."""
    generator, profiles = torch.Generator().manual_seed(seed), fact_profiles(graph)
    queries: list[RoleQuery] = []
    for slot in SIDES:
        facts, found = graph.splits[split], 0
        trained, known = graph.known_answers(slot, ("train",), facts), graph.known_answers(slot, queries=facts)
        for index in torch.randperm(len(facts), generator=generator).tolist():
            fact = facts[[index]]
            anchors = trained.of(fact)[1]
            if not len(anchors):
                continue
            anchors = anchors[torch.randperm(len(anchors), generator=generator)[:MAX_ANCHORS]]
            truth = int(fact[slot])
            alike = [jaccard(profiles[anchor], profiles[truth]) for anchor in anchors.tolist()]
            nearest = max(range(len(anchors)), key=alike.__getitem__)
            answers = known.of(fact)[1]
            chosen = torch.cat([anchors[[nearest]], anchors[:ANCHORS]])
            queries.append(RoleQuery(slot, fact, chosen, answers[answers != truth]))
            found += 1
            if found == count:
                break
    return queries


def fact_profiles(graph: Graph) -> list[set[tuple[int, int, int]]]:
    """For each entity its training facts: relation, side, other entity."""
    profiles: list[set[tuple[int, int, int]]] = [set() for _ in range(graph.n_entities)]
    for head, relation, tail in graph.train.to_rows().tolist():
        profiles[head].add((relation, 0, tail))
        profiles[tail].add((relation, 1, head))
    return profiles


def jaccard(one: set[tuple[int, int, int]], other: set[tuple[int, int, int]]) -> float:
    shared = len(one & other)
    return shared / max(1, len(one) + len(other) - shared)
