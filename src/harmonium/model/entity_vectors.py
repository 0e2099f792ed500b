"""Entity vectors as scoring reads them: all, those of given ids, or block by block."""

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
    """Rows of a table, converted (and normalised, where still needed) as they are read.

    A large table is thus never normalised whole where no gradient is wanted.
    """

    table: Tensor  # (n_entities, entity_dim), or the local rows of a sharded table
    like: Tensor  # vectors take the device and dtype of this one
    normalise: bool  # whether rows still are to be divided by their lengths
    block_size: int  # candidates scored at once
    sharded: ShardedTable | None = None

    @property
    def n_entities(self) -> int:
        """Of all processes."""
        return len(self.table) if self.sharded is None else self.sharded.n_rows

    @property
    def block_width(self) -> int:
        """Entities of the largest block of this process."""
        return min(len(self.table), self.block_size)

    @cached_property
    def all(self) -> Tensor:
        """(n_entities, entity_dim)."""
        return self.convert(self.table)

    def of(self, ids: Tensor) -> Tensor:
        """(..., entity_dim): the vectors of these ids, wherever they are held."""
        if self.sharded is None:
            return self.local(ids)
        distinct, positions = ids.unique(return_inverse=True)
        return self.convert(F.embedding(positions, self.sharded.fetch(distinct)))

    def local(self, ids: Tensor) -> Tensor:
        """(..., entity_dim): the vectors of these ids, all of them held by this process."""
        offset = 0 if self.sharded is None else self.sharded.offset
        return self.convert(F.embedding((ids - offset).to(self.table.device), self.table))

    def convert(self, rows: Tensor) -> Tensor:
        """Vectors from rows of the table."""
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
