"""Walks counted one by one, from a list of facts: slow, plain, right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Facts = Sequence[tuple[int, ...]]


def take(facts: Facts, n_relations: int, step: int, entity: int) -> list[int]:
    """Where a step leads."""
    if step < n_relations:
        return [tail for head, relation, tail in sorted(set(facts)) if (head, relation) == (entity, step)]
    return [head for head, relation, tail in sorted(set(facts)) if (tail, relation) == (entity, step - n_relations)]


def count_walks(
    facts: Facts, n_relations: int, body: Sequence[int], start: int, hidden: tuple[int, int] | None = None
) -> Counter[int]:
    """Ends of all walks from a start that do not return to it; `hidden`, a step and its end, is not taken first."""
    walks = [[start]]
    for number, step in enumerate(body):
        walks = [
            [*walk, end]
            for walk in walks
            for end in take(facts, n_relations, step, walk[-1])
            if end != start and (number or hidden != (step, end))
        ]
    return Counter(walk[-1] for walk in walks)
