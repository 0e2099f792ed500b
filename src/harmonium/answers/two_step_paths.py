"""Paths of two known facts between two entities, and how often entities so connected have a relation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Triples
from harmonium.grammar.walks import Steps, steps_between

MIDDLES = 8  # entities between two others that are looked at: those with the fewest facts
STARTS, FIRST_STEPS, SECOND_STEPS = 200, 1000, 20_000  # sampled at most to estimate a confidence
MAX_EDGES = 20_000  # of an entity that are compared with those of another


@dataclass(frozen=True)
class Path:
    """head -first-> middle -second-> tail; a step r + n_relations is relation r backwards."""

    first: int
    middle: int
    second: int


class PathIndex:
    """The facts of a graph as steps in both directions."""

    def __init__(self, facts: Triples, n_entities: int, n_relations: int) -> None:
        self.facts, self.n_entities, self.n_relations = facts, n_entities, n_relations
        self._confidence: dict[tuple[int, int, int], tuple[int, int]] = {}

    @cached_property
    def steps(self) -> CsrIndex:
        """step * n_entities + entity -> entities that it leads to."""
        return Steps.build(self.facts, self.n_entities, self.n_relations).index

    @cached_property
    def edges(self) -> CsrIndex:
        """entity -> neighbour * number of steps + step."""
        return steps_between(self.facts, self.n_relations)

    @cached_property
    def degree(self) -> Tensor:
        """(n_entities,): facts of each entity."""
        return torch.cat([self.facts.head, self.facts.tail]).bincount(minlength=self.n_entities)

    def between(self, head: int, tail: int) -> Iterator[Path]:
        """Paths from head to tail, over the entities in between that have the fewest facts."""
        n_steps = 2 * self.n_relations
        from_head, from_tail = (self._edges_of(entity) for entity in (head, tail))
        middles = _common(from_head // n_steps, from_tail // n_steps)
        middles = middles[(middles != head) & (middles != tail)]
        for middle in middles[self.degree[middles].argsort(stable=True)[:MIDDLES]].tolist():
            firsts = from_head[from_head // n_steps == middle] % n_steps
            seconds = (from_tail[from_tail // n_steps == middle] + self.n_relations) % n_steps
            for first in firsts.tolist():
                for second in seconds.tolist():
                    yield Path(first, middle, second)

    def _edges_of(self, entity: int) -> Tensor:
        return self.edges.lookup(torch.tensor([entity]))[1][:MAX_EDGES]

    def confidence(self, path: Path, relation: int) -> tuple[int, int]:
        """Of pairs that are connected in this way (a sample of them): how many have the relation, how many there are."""
        key = path.first, path.second, relation
        if key not in self._confidence:
            start, end = self._sample_pairs(path)
            has_relation = self.steps.contains(relation * self.n_entities + start, end)
            self._confidence[key] = int(has_relation.sum()), len(start)
        return self._confidence[key]

    def _sample_pairs(self, path: Path) -> tuple[Tensor, Tensor]:
        """(m,) and (m,): starts and ends of such paths, each pair once."""
        n = self.n_entities
        bounds = torch.searchsorted(self.steps.keys, torch.tensor([path.first * n, (path.first + 1) * n])).tolist()
        starts = _thin(self.steps.keys[bounds[0] : bounds[1]], STARTS)
        row, middle = self.steps.lookup(starts)
        row, middle = _thin(torch.stack([starts[row] - path.first * n, middle], dim=1), FIRST_STEPS).unbind(1)
        step, end = self.steps.lookup(path.second * n + middle)
        pairs = torch.stack([row[step], middle[step], end], dim=1)
        start, middle, end = _thin(pairs, SECOND_STEPS).unbind(1)
        proper = (start != end) & (middle != end) & (middle != start)
        pair = (start[proper] * n + end[proper]).unique()
        return pair // n, pair % n


def _common(first: Tensor, second: Tensor) -> Tensor:
    """The distinct values that both have."""
    common: Tensor = first[torch.isin(first, second)].unique()
    return common


def _thin(rows: Tensor, count: int) -> Tensor:
    """At most so many rows, evenly spaced."""
    return rows if len(rows) <= count else rows[torch.linspace(0, len(rows) - 1, count).long()]
