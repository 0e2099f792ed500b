"""Facts as steps between entities, and walks along them, counted exactly for many starts at once by sparse products.

A step r < R follows relation r from head to tail, r + R from tail to head. The steps from one entity to another are a
body: (born_in, located_in) for "born in a place that is located in". A walk does not return to its start, so that none
uses a fact between its two ends except where a body has a single step.

What it costs: walks that meet go on together with their number, and bodies with the same first steps share them, so that
one more step of a body costs as many multiply-adds as its reached entities have such facts, some 40 ns each on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples

Array = npt.NDArray[Any]
Body = tuple[int, ...]
OTHER_END = {Slot.HEAD: Slot.TAIL, Slot.TAIL: Slot.HEAD}
CELLS_AT_ONCE = 1 << 22  # of a body, a start and an entity that it reaches: 50 MB
FIRST_BLOCK = 16  # starts whose walks show how many more fit into a block
LARGEST_TABLE = 1 << 26  # entries of the table of positions: 256 MB; larger graphs are searched


def steps_between(facts: Triples, n_relations: int) -> CsrIndex:
    """entity -> neighbour * number of steps + the step to it."""
    n_steps = 2 * n_relations
    forwards = facts.tail * n_steps + facts.relation
    backwards = facts.head * n_steps + facts.relation + n_relations
    return CsrIndex.build(torch.cat([facts.head, facts.tail]), torch.cat([forwards, backwards]))


@dataclass(frozen=True)
class Reached:
    """Where bodies of one length lead from a block of starts."""

    rule: Array  # (cells,) the number of the body
    cell: Array  # (cells,) row of the block * n_entities + entity
    walks: Array  # (cells,) float64, at least 1


def strength(walks: Array) -> Array:
    """What a number of walks along a body counts, before its weight."""
    values: Array = np.log2(1 + walks)
    return values


@dataclass(frozen=True)
class Steps:
    """Facts as steps between entities, in both directions."""

    index: CsrIndex  # step * n_entities + entity -> the entities that the step leads to
    n_entities: int
    n_relations: int

    @classmethod
    def build(cls, facts: Triples, n_entities: int, n_relations: int) -> Steps:
        forwards, backwards = facts.relation, facts.relation + n_relations
        keys = torch.cat([forwards * n_entities + facts.head, backwards * n_entities + facts.tail])
        return cls(CsrIndex.build(keys, torch.cat([facts.tail, facts.head])), n_entities, n_relations)

    def reverse(self, body: Body) -> Body:
        """The same path, walked from its other end."""
        return tuple((step + self.n_relations) % (2 * self.n_relations) for step in reversed(body))

    def from_known_end(self, bodies: Sequence[Body], open_slot: Slot) -> list[Body]:
        """Bodies, which lead from head to tail, as walked from the given entity of a query to its open slot."""
        return [body if open_slot is Slot.TAIL else self.reverse(body) for body in bodies]

    def step_to(self, slot: Slot, relation: int) -> int:
        """The step of a fact from its other end to this slot."""
        return relation if slot is Slot.TAIL else relation + self.n_relations

    @cached_property
    def degree(self) -> torch.Tensor:
        """(n_entities,): facts of each entity."""
        spans = self.index.offsets.diff()
        return torch.zeros(self.n_entities, dtype=torch.int64).index_add_(0, self.index.keys % self.n_entities, spans)

    @cached_property
    def _adjacency(self) -> sparse.csr_array:
        """(keys, n_entities): one row for each step and entity that it can be taken from, with a 1 where it leads."""
        offsets, values = self.index.offsets.numpy(), self.index.values.numpy()
        dtype = np.int32 if len(values) < 2**31 else np.int64
        parts = np.ones(len(values)), values.astype(dtype), offsets.astype(dtype)
        return sparse.csr_array(parts, shape=(len(offsets) - 1, self.n_entities))

    @cached_property
    def _positions(self) -> Array | None:
        """(steps * n_entities,): the row of the adjacency, -1 where the step leads nowhere; None: too large a table."""
        size = 2 * self.n_relations * self.n_entities
        if size > LARGEST_TABLE:
            return None
        table = np.full(size, -1, dtype=np.int32)
        table[self.index.keys.numpy()] = np.arange(len(self.index.keys), dtype=np.int32)
        return table

    def _position(self, keys: Array) -> Array:
        if self._positions is not None:
            return self._positions[keys]
        known = self.index.keys.numpy()
        position = np.searchsorted(known, keys)
        position[position == len(known)] = 0
        return np.where(known[position] == keys, position, -1)

    def count_walks(
        self, tree: BodyTree, starts: Array, hidden: tuple[int, Array] | None = None
    ) -> Iterator[tuple[slice, list[Reached]]]:
        """For each block of starts (m,) what the bodies of a tree reach, the shortest first.

        Bounded memory: the first block is small, and shows how many starts later ones may have.

        `hidden`, a step and the entity (m,) that it leads to from each start (-1: none), is not taken as first step.
        """
        first, rows = 0, FIRST_BLOCK
        while first < len(starts):
            block = slice(first, min(first + rows, len(starts)))
            reached, largest = self._count_block(
                tree, starts[block], None if hidden is None else (hidden[0], hidden[1][block])
            )
            yield block, reached
            size = block.stop - block.start
            first, rows = block.stop, max(1, min(8 * rows, CELLS_AT_ONCE * size // largest))

    def _count_block(
        self, tree: BodyTree, starts: Array, hidden: tuple[int, Array] | None
    ) -> tuple[list[Reached], int]:
        """What a block of starts reaches, and the number of cells in memory."""
        m, n, total = len(starts), self.n_entities, 0
        walks = sparse.csr_array((np.ones(m), starts.astype(np.int32), np.arange(m + 1)), shape=(m, n))
        first_cell = np.arange(m) * n
        reached = []
        for depth, level in enumerate(tree.levels):  # walks: (prefixes * starts, entities)
            walks = self._extend(walks, level, m)
            n_prefixes, sizes = len(level.step), np.diff(walks.indptr)
            allowed = walks.indices != np.repeat(np.tile(starts.astype(np.int32), n_prefixes), sizes)
            if hidden is not None and not depth:
                is_hidden_step = np.repeat(np.repeat(level.step == hidden[0], m), sizes)
                allowed &= ~is_hidden_step | (walks.indices != np.repeat(np.tile(hidden[1], n_prefixes), sizes))
            walks.data *= allowed
            rule = np.repeat(np.repeat(level.rule, m), sizes)
            used = np.flatnonzero((walks.data > 0) & (rule >= 0))
            cell = np.repeat(np.tile(first_cell, n_prefixes), sizes)
            cell += walks.indices
            reached.append(Reached(rule[used], cell[used], walks.data[used]))
            total += walks.nnz
        return reached, max(total, m * n)

    def _extend(self, walks: sparse.csr_array, level: Level, m: int) -> sparse.csr_array:
        """(longer prefixes * m, n_entities): the walks of each prefix's parent, one step further."""
        n, indptr = self.n_entities, walks.indptr
        spans = [slice(indptr[parent * m], indptr[(parent + 1) * m]) for parent in level.parent.tolist()]
        sizes = np.array([span.stop - span.start for span in spans])
        entity = np.concatenate([walks.indices[span] for span in spans])
        position = self._position(np.repeat(level.step * n, sizes) + entity)
        leads = position >= 0
        rows = (level.parent[:, None] * m + np.arange(m)).ravel()
        ends = np.concatenate([[0], np.diff(indptr)[rows].cumsum()])
        ends = np.concatenate([[0], leads.cumsum()])[ends]
        data = np.concatenate([walks.data[span] for span in spans])[leads]
        adjacency = self._adjacency
        source = sparse.csr_array((data, position[leads], ends), shape=(len(rows), adjacency.shape[0]))
        return source @ adjacency


@dataclass(frozen=True)
class Level:
    """The distinct beginnings of bodies that have one length, as the beginning one step shorter and the last step."""

    parent: Array  # (prefixes,): number in the level before
    step: Array  # (prefixes,)
    rule: Array  # (prefixes,): the number of the body that is complete with it, or -1


@dataclass
class BodyTree:
    """Bodies whose common first steps are walked together."""

    levels: list[Level] = field(default_factory=list)

    @classmethod
    def of(cls, bodies: Sequence[Body]) -> BodyTree:
        known: list[dict[Body, int]] = [{(): 0}]
        rules = {body: number for number, body in enumerate(bodies)}
        levels = []
        for length in range(1, max(map(len, bodies), default=0) + 1):
            prefixes = sorted({body[:length] for body in bodies if len(body) >= length})
            parent = np.array([known[-1][prefix[:-1]] for prefix in prefixes])
            step = np.array([prefix[-1] for prefix in prefixes])
            levels.append(Level(parent, step, np.array([rules.get(prefix, -1) for prefix in prefixes], dtype=np.int32)))
            known.append({prefix: number for number, prefix in enumerate(prefixes)})
        return cls(levels)


def example_walk(steps: Steps, body: Body, head: int, tail: int) -> list[tuple[int, int, int]]:
    """The facts (head, relation, tail) of one walk from head to tail, over entities with few facts; empty: there is none."""
    layers = [torch.tensor([head])]
    for step in body:
        reached = steps.index.lookup(step * steps.n_entities + layers[-1])[1].unique()
        layers.append(reached[reached != head])
    if tail not in layers[-1]:
        return []
    facts: list[tuple[int, int, int]] = []
    end = tail
    for step, layer in zip(reversed(body), reversed(layers[:-1]), strict=True):
        (back,) = steps.reverse((step,))
        sources = steps.index.lookup(back * steps.n_entities + torch.tensor([end]))[1]
        sources = sources[torch.isin(sources, layer)]
        visited = torch.tensor([fact[slot] for fact in facts for slot in (0, 2)] + [end])
        order = steps.degree[sources].double()
        order[torch.isin(sources, visited)] = torch.inf
        source = int(sources[order.argmin()])
        forwards = step < steps.n_relations
        facts.append((source, step, end) if forwards else (end, step - steps.n_relations, source))
        end = source
    return facts[::-1]
