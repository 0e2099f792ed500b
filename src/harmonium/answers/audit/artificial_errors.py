"""Artificial errors: facts that are wrong on purpose, of several kinds, to learn what wrong facts look like.

Each is a known fact that was changed so that it is not known. A changed fact may be true by chance, where the graph lacks
it; in a graph that lacks few facts hardly any is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples

Change = Callable[["Draws", Triples], Triples]
ATTEMPTS = 20  # rounds of drawing; a graph that has nearly all combinations yields fewer errors


@dataclass(frozen=True)
class Draws:
    """What is needed to draw changes of facts."""

    facts: Triples
    n_entities: int
    n_relations: int
    generator: torch.Generator

    def ids(self, below: int, count: int) -> Tensor:
        return torch.randint(below, (count,), generator=self.generator)


def one_slot(draws: Draws, facts: Triples) -> Triples:
    """The head, the relation or the tail is any other."""
    slot, count = draws.ids(3, len(facts)), len(facts)
    sizes = draws.n_entities, draws.n_relations, draws.n_entities
    columns = [
        torch.where(slot == number, draws.ids(size, count), facts[name])
        for number, (name, size) in enumerate(zip(Slot, sizes, strict=True))
    ]
    return Triples(*columns)


def all_slots(draws: Draws, facts: Triples) -> Triples:
    """Head, relation and tail are any."""
    count = len(facts)
    return Triples(
        draws.ids(draws.n_entities, count), draws.ids(draws.n_relations, count), draws.ids(draws.n_entities, count)
    )


def same_role(draws: Draws, facts: Triples) -> Triples:
    """The head or the tail is that of another fact of the relation: right in kind, wrong in value."""
    order = draws.facts.relation.argsort(stable=True)
    relation = draws.facts.relation[order]
    first = torch.searchsorted(relation, facts.relation)
    count = torch.searchsorted(relation, facts.relation, right=True) - first
    share = torch.rand(len(facts), generator=draws.generator, dtype=torch.float64)
    other = draws.facts[order[first + (share * count).long().minimum(count - 1)]]
    is_head = draws.ids(2, len(facts)) == 0
    return Triples(
        torch.where(is_head, other.head, facts.head), facts.relation, torch.where(is_head, facts.tail, other.tail)
    )


def exchanged(draws: Draws, facts: Triples) -> Triples:
    """Head and tail are exchanged."""
    return Triples(facts.tail, facts.relation, facts.head)


KINDS: dict[str, Change] = {
    "one slot": one_slot, "all slots": all_slots, "same role": same_role, "exchanged": exchanged
}  # fmt: skip


@dataclass(frozen=True)
class Errors:
    """Artificial errors, and the facts that were changed to make them."""

    facts: Triples
    originals: Triples

    def __len__(self) -> int:
        return len(self.facts)


def draw_errors(
    kind: str, facts: Triples, n_entities: int, n_relations: int, count: int, generator: torch.Generator
) -> Errors:
    """`count` different errors of one kind, or as many as there are; none of them is one of the facts."""
    draws = Draws(facts, n_entities, n_relations, generator)
    known, none = KnownAnswers.build(Slot.TAIL, facts, n_entities), facts[:0]
    errors, originals = none, none
    for _ in range(ATTEMPTS if len(facts) else 0):
        if len(errors) >= count:
            break
        chosen = facts[draws.ids(len(facts), max(count, 1))]
        changed = KINDS[kind](draws, chosen)
        is_new = ~known.contain(changed)
        rows = torch.cat([errors.to_rows(), changed[is_new].to_rows()])
        first = _first_of_each(rows)
        errors = Triples.from_rows(rows[first])
        originals = Triples.from_rows(torch.cat([originals.to_rows(), chosen[is_new].to_rows()])[first])
    return Errors(errors[:count], originals[:count])


def _first_of_each(rows: Tensor) -> Tensor:
    """Positions of rows that occur for the first time, in order."""
    if not len(rows):
        return torch.empty(0, dtype=torch.int64)
    _, number = rows.unique(dim=0, return_inverse=True)
    first = torch.full((int(number.max()) + 1,), len(rows)).scatter_reduce_(0, number, torch.arange(len(rows)), "amin")
    return first.sort().values
