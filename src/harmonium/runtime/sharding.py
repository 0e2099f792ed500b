"""A table whose rows are sharded over processes, and how a process reads rows and sends gradients back."""

import torch
from torch import Tensor

from harmonium.runtime.distributed import World


class ShardedTable:
    """A table (n_rows, dim) of which each process holds the rows `world.shard(n_rows)`.

    All processes must call each method together: a fetch is three exchanges between all of them.
    """

    def __init__(self, local_rows: Tensor, n_rows: int, world: World) -> None:
        self.local_rows, self.n_rows, self.world = local_rows, n_rows, world
        self.offset, self.shard_size = world.shard(n_rows).start, world.shard_size(n_rows)

    def fetch(self, ids: Tensor) -> Tensor:
        """(m, dim): the rows of distinct sorted ids (m,), wherever they are held."""
        shard_ends = self.shard_size * torch.arange(1, self.world.size + 1, device=ids.device)
        ends = torch.searchsorted(ids, shard_ends)
        counts = ends.diff(prepend=ends.new_zeros(1))
        self._requested = counts.tolist()  # rows that this process reads from each other one
        self._served = self.world.all_to_all(counts).tolist()  # rows that each other one reads from this process
        self._served_rows = self.world.all_to_all(ids, self._requested, self._served) - self.offset
        rows = self.local_rows.detach()[self._served_rows]
        return self.world.all_to_all(rows, self._served, self._requested)

    def reduce_gradient(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Send the gradient (m, dim) of the rows fetched last to their holders.

        Returns the local rows (k,) that any process fetched, and their gradients (k, dim) summed over processes.
        """
        received = self.world.all_to_all(gradient, self._requested, self._served)
        rows, positions = self._served_rows.unique(return_inverse=True)
        return rows, received.new_zeros(len(rows), received.shape[1]).index_add_(0, positions, received)
