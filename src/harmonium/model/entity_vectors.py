"""Entity vectors as used for scoring: all of them, by id, or block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.kernels.unit_rows import unit_rows
from harmonium.runtime.sharding import ShardedTable


@dataclass(frozen=True)
class EntityVectors:
    """Rows of a table, converted and, if needed, normalised when they are read.

    So a large table is never normalised as a whole when no gradient is needed.
    """

    table: Tensor  # (n_entities, entity_dim), or the local rows of a sharded table
    like: Tensor  # vectors are converted to its device and dtype
    normalise: bool  # whether rows must still be divided by their lengths
    block_size: int  # candidates scored at once
    sharded: ShardedTable | None = None

    @property
    def n_entities(self) -> int:
        """Number of entities, over all processes."""
        return len(self.table) if self.sharded is None else self.sharded.n_rows

    @property
    def block_width(self) -> int:
        """Size of the largest block of this process."""
        return min(len(self.table), self.block_size)

    @cached_property
    def all(self) -> Tensor:
        """(n_entities, entity_dim)."""
        return self.convert(self.table)

    def of(self, ids: Tensor) -> Tensor:
        """(..., entity_dim): the vectors of these ids, fetched from other processes where needed."""
        if self.sharded is None:
            return self.local(ids)
        distinct, positions = ids.unique(return_inverse=True)
        return self.convert(F.embedding(positions, self.sharded.fetch(distinct)))

    def local(self, ids: Tensor) -> Tensor:
        """(..., entity_dim): the vectors of these ids, which must be rows of this process."""
        offset = 0 if self.sharded is None else self.sharded.offset
        return self.convert(F.embedding((ids - offset).to(self.table.device), self.table))

    def convert(self, rows: Tensor) -> Tensor:
        """Convert rows of the table to vectors."""
        rows = rows.to(self.like)
        return unit_rows(rows) if self.normalise else rows

    @cached_property
    def longest(self) -> Tensor:
        """The length of the longest local vector."""
        if self.normalise:
            return self.like.new_ones(())
        lengths = [torch.linalg.vector_norm(rows, dim=-1).max() for _, rows in self.blocks() if len(rows)]
        return torch.stack(lengths).max() if lengths else self.like.new_zeros(())

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """For each block: the id of its first entity, and vectors (block, entity_dim). Sharded: the local rows."""
        offset = 0 if self.sharded is None else self.sharded.offset
        if len(self.table) <= self.block_size:
            yield offset, self.all
            return
        for start in range(0, len(self.table), self.block_size):
            yield offset + start, self.convert(self.table[start : start + self.block_size])
