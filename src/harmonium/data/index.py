"""Sorted indexes over ids: key -> values (CSR), query -> known answers; membership and hashes of ids."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples


@dataclass(frozen=True)
class CsrIndex:
    """key -> the sorted distinct values seen with it, in compressed sparse rows."""

    keys: Tensor  # (k,) sorted, distinct
    offsets: Tensor  # (k + 1,)
    values: Tensor  # (offsets[-1],)

    @classmethod
    def build(cls, keys: Tensor, values: Tensor) -> CsrIndex:
        """Build the index from (key, value) pairs of numbers >= 0."""
        size = int(values.max()) + 1 if len(values) else 1
        if len(keys) and int(keys.max()) >= torch.iinfo(torch.int64).max // size:  # key * size would overflow
            distinct, ranks = torch.unique(keys, return_inverse=True)
            index = cls.build(ranks, values)
            return replace(index, keys=distinct[index.keys])
        pairs = keys * size + values
        if pairs.device.type == "cpu":
            pairs.numpy().sort()  # in place; torch.sort would also allocate a copy and the permutation
        else:
            pairs = pairs.sort().values
        pairs = pairs.unique_consecutive()
        keys, counts = torch.unique_consecutive(pairs // size, return_counts=True)
        return cls(keys, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), pairs.remainder_(size))

    def _spans(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The offset of the first value of each key, and the number of its values (zero for an unknown key)."""
        if len(self.keys) == 0:
            return torch.zeros_like(keys), torch.zeros_like(keys)
        position = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        start = self.offsets[position]
        return start, torch.where(self.keys[position] == keys, self.offsets[position + 1] - start, 0)

    def lookup(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """All (row, value) pairs where value was seen with keys[row]."""
        start, count = self._spans(keys)
        row = torch.repeat_interleave(torch.arange(len(keys), device=keys.device), count)
        within = torch.arange(len(row), device=keys.device) - (count.cumsum(0) - count)[row]
        return row, self.values[start[row] + within]

    def draw(self, keys: Tensor, generator: torch.Generator) -> Tensor:
        """(m,): one random value for each key that has values."""
        start, count = self._spans(keys)
        start, count = start[count > 0], count[count > 0]
        within = torch.rand(len(count), generator=generator, device=count.device) * count
        return self.values[start + within.long().minimum(count - 1)]

    def sample(self, keys: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Like `lookup`, but at most `count` values per key; of a key with more they are drawn with replacement."""
        start, total = self._spans(keys)
        drawn = total.clamp(max=count)
        row = torch.repeat_interleave(torch.arange(len(keys)), drawn)
        within = torch.arange(len(row)) - (drawn.cumsum(0) - drawn)[row]
        random = (torch.rand(len(row), generator=generator, dtype=torch.float64) * total[row]).long()
        return row, self.values[start[row] + torch.where(total[row] > count, random.clamp(max=total[row] - 1), within)]

    def contains(self, keys: Tensor, values: Tensor) -> Tensor:
        """Whether each value was seen with its key: a binary search among the key's values."""
        low, count = self._spans(keys)
        end = low + count
        if len(self.values) == 0:
            return torch.zeros_like(values, dtype=torch.bool)
        high = end.clone()
        for _ in range(int(count.max()).bit_length() if len(keys) else 0):
            middle = (low + high) // 2
            smaller = (low < high) & (self.values[middle.clamp(max=len(self.values) - 1)] < values)
            low, high = torch.where(smaller, middle + 1, low), torch.where(smaller, high, middle)
        return (low < end) & (self.values[low.clamp(max=len(self.values) - 1)] == values)

    def to(self, device: torch.device | str) -> CsrIndex:
        return CsrIndex(self.keys.to(device), self.offsets.to(device), self.values.to(device))


@dataclass(frozen=True)
class KnownAnswers:
    """Index from queries with one open slot to their known answers."""

    slot: Slot
    index: CsrIndex
    n_entities: int

    @classmethod
    def build(cls, slot: Slot, facts: Triples, n_entities: int) -> KnownAnswers:
        """Build the index of these facts. For a large graph use `Graph.known_answers`, which builds it in parts."""
        no_ids = facts.head[:0]
        keys = cls(slot, CsrIndex(no_ids, no_ids.new_zeros(1), no_ids), n_entities).keys(facts)
        return cls(slot, CsrIndex.build(keys, facts[slot]), n_entities)

    def keys(self, queries: Triples) -> Tensor:
        """(n,): the two given slots of each query, encoded as one number."""
        if self.slot is Slot.RELATION:
            return queries.head * self.n_entities + queries.tail
        return queries.relation * self.n_entities + (queries.tail if self.slot is Slot.HEAD else queries.head)

    def of(self, queries: Triples) -> tuple[Tensor, Tensor]:
        """All (row, answer) pairs known for the queries; the open slot of a query is ignored."""
        return self.index.lookup(self.keys(queries))

    def join(self, other: KnownAnswers) -> KnownAnswers:
        """The union of two indexes of the same slot."""
        keys = [torch.repeat_interleave(index.keys, index.offsets.diff()) for index in (self.index, other.index)]
        index = CsrIndex.build(torch.cat(keys), torch.cat([self.index.values, other.index.values]))
        return replace(self, index=index)

    def contain(self, triples: Triples) -> Tensor:
        """Whether each triple is a known fact."""
        return self.index.contains(self.keys(triples), triples[self.slot])

    def to(self, device: torch.device | str) -> KnownAnswers:
        return replace(self, index=self.index.to(device))


def is_member(values: Tensor, ascending: Tensor) -> Tensor:
    """(n,) bool: whether each value is in an ascending tensor."""
    if not len(ascending):
        return torch.zeros_like(values, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, values).clamp_(max=len(ascending) - 1)] == values


def hash_ids(ids: Tensor) -> Tensor:
    """(n,) pseudo-random numbers in [0, 2^63), one for each int64; equal on every machine and in every run."""
    for shift in (32, 29, 32):
        high = (ids >> shift) & (1 << 64 - shift) - 1
        ids = (ids ^ high) * 0x1E3779B97F4A7C15  # wraps round
    return ids & torch.iinfo(torch.int64).max
