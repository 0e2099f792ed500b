"""Where entity vectors are stored during training: on the device, in host memory, or sharded over processes."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from harmonium.config.settings import TrainConfig
from harmonium.kernels.stochastic_rounding import compute_dtype
from harmonium.model.gradient_graph import GradientGraph
from harmonium.runtime.distributed import World
from harmonium.runtime.sharding import ShardedTable
from harmonium.training.optimisers import RowOptimiser


class EntityStore(Protocol):
    def fetch(self, ids: Tensor) -> Tensor:
        """(m, dim): the rows of distinct sorted ids (m,), on the device that computes."""

    def apply_gradient(self, gradient: Tensor) -> None:
        """Optimiser step on the rows fetched last, with their gradient (m, dim)."""


def make_entity_store(
    model: GradientGraph, settings: TrainConfig, optimiser: RowOptimiser | None, device: torch.device
) -> EntityStore | None:
    """Create the store that the settings ask for; None if every step uses all entities, in one process."""
    if model.world is not None:
        return ShardedStore(model.entity, model.n_entities, optimiser, model.world)
    if optimiser is None:
        return None
    if settings.entity_storage == "host":
        return HostStore(model.entity, optimiser, device)
    return DeviceStore(model.entity, optimiser)


class DeviceStore:
    """Table on the device that computes, in a single process."""

    def __init__(self, table: Tensor, optimiser: RowOptimiser) -> None:
        self.table, self.optimiser = table.detach(), optimiser
        self.ids = torch.empty(0, dtype=torch.int64)

    def fetch(self, ids: Tensor) -> Tensor:
        self.ids = ids
        return self.table.index_select(0, ids).to(compute_dtype(self.table))

    def apply_gradient(self, gradient: Tensor) -> None:
        self.optimiser.step(self.ids, gradient)


class HostStore:
    """Table in host memory: rows are copied to the GPU and gradients back, and the host updates the rows.

    `prefetch` reads the rows of the next step in a thread while the current step runs. `fetch` reads again the
    rows that the current step updated, so prefetching does not change results.
    """

    def __init__(self, table: Tensor, optimiser: RowOptimiser, device: torch.device) -> None:
        self.table, self.optimiser, self.device = table.detach(), optimiser, device
        self.ids = torch.empty(0, dtype=torch.int64)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.row_buffer = PinnedBuffer(self.table.dtype)
        self.gradient_buffer = PinnedBuffer(compute_dtype(self.table))
        self.thread = ThreadPoolExecutor(1, "prefetch")
        self.prefetched: tuple[Tensor, Future[tuple[Tensor, Tensor, Tensor]]] | None = None

    def fetch(self, ids: Tensor) -> Tensor:
        prefetched, self.prefetched = self.prefetched, None
        if prefetched is not None and prefetched[0] is ids:
            self.ids, rows, updated = prefetched[1].result()
            return rows.index_copy_(0, updated.to(self.device), self._read(self.ids[updated]))
        if prefetched is not None:
            prefetched[1].result()  # it uses the same buffer
        self.ids = ids.cpu()
        return self._read(self.ids)

    def apply_gradient(self, gradient: Tensor) -> None:
        if self.stream is not None:
            gradient = self.gradient_buffer.rows(*gradient.shape).copy_(gradient)
        self.optimiser.step(self.ids, gradient)

    def prefetch(self, ids: Tensor) -> None:
        """Start reading the rows of the next fetch; call it before applying the gradient of the current one."""
        self.prefetched = ids, self.thread.submit(self._read_ahead, ids.cpu(), self.ids)

    def side_stream(self) -> AbstractContextManager[Any]:
        """Inside the block, GPU work does not wait for work queued earlier."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def _read_ahead(self, ids: Tensor, updated_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The ids, their rows, and the positions among them of ids that the current step updates; ids are sorted."""
        nearest = torch.searchsorted(updated_ids, ids).clamp_(max=len(updated_ids) - 1)
        return ids, self._read(ids), (updated_ids[nearest] == ids).nonzero().squeeze(1)

    def _read(self, ids: Tensor) -> Tensor:
        if self.stream is None:
            return self.table.index_select(0, ids).to(compute_dtype(self.table))
        host_rows = torch.index_select(self.table, 0, ids, out=self.row_buffer.rows(len(ids), self.table.shape[1]))
        with torch.cuda.stream(self.stream):
            rows = host_rows.to(self.device, non_blocking=True).to(compute_dtype(self.table))
        rows.record_stream(torch.cuda.default_stream(self.device))
        self.stream.synchronize()
        return rows


class PinnedBuffer:
    """Pinned host memory, which a GPU copies at full speed; grows on demand."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.memory = torch.empty(0, dtype=dtype)

    def rows(self, count: int, dim: int) -> Tensor:
        """(count, dim): a view of the start of the buffer."""
        if count * dim > len(self.memory):
            self.memory = torch.empty(count * dim * 5 // 4, dtype=self.memory.dtype, pin_memory=True)
        return self.memory[: count * dim].view(count, dim)


class ShardedStore:
    """Table sharded over processes, as is the state of the row optimiser.

    Without a row optimiser, the summed gradient is added to that of the local rows, for a dense optimiser.
    """

    def __init__(self, table: Tensor, n_entities: int, optimiser: RowOptimiser | None, world: World) -> None:
        self.table, self.optimiser = table, optimiser
        self.sharded = ShardedTable(table, n_entities, world)

    def fetch(self, ids: Tensor) -> Tensor:
        return self.sharded.fetch(ids).to(compute_dtype(self.table))

    def apply_gradient(self, gradient: Tensor) -> None:
        rows, summed = self.sharded.reduce_gradient(gradient)
        if self.optimiser is None:
            gradient = torch.zeros_like(self.table) if self.table.grad is None else self.table.grad
            self.table.grad = gradient.index_add_(0, rows, summed)
        else:
            self.optimiser.step(rows, summed)
