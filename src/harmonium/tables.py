"""Where the entity vectors live while training, and how a step reaches the rows it uses and moves them.

Each kind has `fetch(ids)`: the rows (m, dim) of distinct sorted ids, on the device that computes, and
`move(gradient)`: the step of the optimiser on the rows fetched last.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from harmonium.distributed import World
from harmonium.optimiser import RowOptimiser
from harmonium.rounding import computed_in


class Table(Protocol):
    def fetch(self, ids: Tensor) -> Tensor: ...
    def move(self, gradient: Tensor) -> None: ...


class Local:
    """In this process, on the device that computes."""

    def __init__(self, table: Tensor, optimiser: RowOptimiser) -> None:
        self.table, self.optimiser = table.detach(), optimiser

    def fetch(self, ids: Tensor) -> Tensor:
        self.ids = ids
        return self.table.index_select(0, ids).to(computed_in(self.table))

    def move(self, gradient: Tensor) -> None:
        self.optimiser.step(self.ids, gradient)


class Hosted:
    """In the memory of the host, beside a GPU that computes: rows travel there, gradients back, the host moves rows.

    Rows that are expected next are read in a thread while a step is computed and moved; those of them that it moved are
    read again when they are fetched, so that the result is the same.
    """

    def __init__(self, table: Tensor, optimiser: RowOptimiser, device: torch.device) -> None:
        self.table, self.optimiser, self.device = table.detach(), optimiser, device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.out, self.back = Pinned(self.table.dtype), Pinned(computed_in(self.table))
        self.thread, self.expected = ThreadPoolExecutor(1, "rows"), None

    def fetch(self, ids: Tensor) -> Tensor:
        expected, self.expected = self.expected, None
        if expected is not None and expected[0] is ids:
            self.ids, rows, moved = expected[1].result()
            return rows.index_copy_(0, moved.to(self.device), self._read(self.ids[moved]))
        if expected is not None:
            expected[1].result()  # it uses the same memory
        self.ids = ids.cpu()
        return self._read(self.ids)

    def move(self, gradient: Tensor) -> None:
        self.optimiser.step(self.ids, self.back.room(*gradient.shape).copy_(gradient) if self.stream else gradient)

    def beside(self) -> AbstractContextManager:
        """Inside, a GPU does not wait for what it computes already."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def expect(self, ids: Tensor) -> None:
        """These ids are fetched next, once the rows fetched last have moved."""
        self.expected: tuple[Tensor, Future] | None = (ids, self.thread.submit(self._read_ahead, ids.cpu(), self.ids))

    def _read_ahead(self, ids: Tensor, moving: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of sorted ids: themselves, their rows, and the places of those that are moving."""
        place = torch.searchsorted(moving, ids).clamp_(max=len(moving) - 1)
        return ids, self._read(ids), (moving[place] == ids).nonzero().squeeze(1)

    def _read(self, ids: Tensor) -> Tensor:
        if self.stream is None:
            return self.table.index_select(0, ids).to(computed_in(self.table))
        rows = torch.index_select(self.table, 0, ids, out=self.out.room(len(ids), self.table.shape[1]))
        with torch.cuda.stream(self.stream):
            found = rows.to(self.device, non_blocking=True).to(computed_in(self.table))
        found.record_stream(torch.cuda.default_stream(self.device))
        self.stream.synchronize()
        return found


class Pinned:
    """Memory of the host that a GPU copies from and to at full speed: taken once, and more when more is needed."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.memory = torch.empty(0, dtype=dtype)

    def room(self, m: int, dim: int) -> Tensor:
        if m * dim > len(self.memory):
            self.memory = torch.empty(m * dim * 5 // 4, dtype=self.memory.dtype, pin_memory=True)
        return self.memory[: m * dim].view(m, dim)


class Dealt:
    """Over the processes of a world, each holding `world.rows(n)` of the table, and what the optimiser remembers of them.

    Owners learn which of their rows are asked for, send them, and get their gradients back. Without an optimiser of
    rows the sum of these becomes the table's gradient, for an optimiser of all rows.
    """

    def __init__(self, table: Tensor, n: int, optimiser: RowOptimiser | None, world: World) -> None:
        self.table, self.optimiser, self.world = table, optimiser, world
        self.first, self.share = world.rows(n).start, world.share(n)

    def fetch(self, ids: Tensor) -> Tensor:
        ends = torch.searchsorted(ids, self.share * torch.arange(1, self.world.size + 1, device=ids.device))
        asked = ends.diff(prepend=ends.new_zeros(1))
        self.asked, self.wanted = asked.tolist(), self.world.deal(asked).tolist()
        self.rows = self.world.deal(ids, self.asked, self.wanted) - self.first
        return self.world.deal(self.table.detach()[self.rows], self.wanted, self.asked).to(computed_in(self.table))

    def move(self, gradient: Tensor) -> None:
        received = self.world.deal(gradient, self.asked, self.wanted)
        if self.optimiser is None:
            self.table.grad = torch.zeros_like(self.table).index_add_(0, self.rows, received)
        else:
            rows, place = self.rows.unique(return_inverse=True)
            self.optimiser.step(rows, received.new_zeros(len(rows), received.shape[1]).index_add_(0, place, received))
