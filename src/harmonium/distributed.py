"""Several processes, launched by torchrun: who they are, what they share, and what they tell each other.

Every process runs the same program. Triples of a batch and rows of the entity table are dealt over them; relations, W
and b are everywhere and stay equal. Random numbers are drawn for the whole batch by everyone, so that the result is
that of one process up to the order of sums.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harmonium import folder, launch
from harmonium.errors import HarmoniumError, Together


@dataclass(frozen=True)
class World:
    """This process among the others."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this one writes files and speaks."""
        return self.rank == 0

    def share(self, n: int) -> int:
        """Rows of n that a process holds, the last ones perhaps fewer; as torch.chunk and DTensor deal them."""
        return -(-n // self.size)

    def rows(self, n: int, rank: int | None = None) -> slice:
        """Those of this process."""
        first = min(n, self.share(n) * (self.rank if rank is None else rank))
        return slice(first, min(n, first + self.share(n)))

    def part(self, n: int) -> slice:
        """This process's part of n triples of a batch, as even as can be."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def deal(self, rows: Tensor, given: list[int] | None = None, taken: list[int] | None = None) -> Tensor:
        """Give `given[i]` of the rows (m, ...) to process i and take `taken[i]` from it; one each when left out."""
        received = rows.new_empty((sum(taken) if taken else len(rows), *rows.shape[1:]))
        dist.all_to_all_single(received, rows.contiguous(), taken, given)
        return received

    def sum(self, tensors: list[Tensor]) -> None:
        """Each tensor becomes its sum over the processes; they travel as one."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def any(self, here: Sequence[bool]) -> list[bool]:
        """Whether each is so in some process."""
        flags = torch.tensor(here, dtype=torch.int32)
        dist.all_reduce(flags)
        return (flags > 0).tolist()

    def least(self, here: int) -> int:
        """The smallest number that some process has."""
        number = torch.tensor(here)
        dist.all_reduce(number, dist.ReduceOp.MIN)
        return int(number)

    def tell(self, value: Any) -> Any:
        """What the first process says, to all."""
        held = [value]
        dist.broadcast_object_list(held, device=torch.device("cpu"))
        return held[0]

    def collect(self, value: Any) -> list[Any]:
        """What each process has, in their order, to all."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def first(self, act: Callable[[], Any]) -> Any:
        """Let the first process do something, and all have what it returns, or the error that it raises."""
        found, error, told = None, None, None
        if self.leads:
            try:
                found = act()
            except Exception as raised:
                error = raised
                told = OSError(raised.errno, raised.strerror) if isinstance(raised, OSError) else Together(str(raised))
        found, told = self.tell((found, told))
        if error is not None or told is not None:
            raise error or told
        return found

    def agree(self, about: dict[str, str]) -> None:
        """An error that names who differs in what, unless the same holds in every process."""
        found = self.collect(about)
        for rank, other in enumerate(found):
            for key, value in other.items():
                if value != found[0].get(key):
                    kind = HarmoniumError if self.leads else Together
                    raise kind(
                        f"process {rank} has another {key} ({_brief(value)}) than process 0 ({_brief(found[0].get(key))}); "
                        "give all the same program, data and settings"
                    )

    def gather(self, rows: Tensor, n: int) -> Tensor | None:
        """The whole table (n, dim) of dealt rows, in the first process: in a file without a name, not in memory."""
        if not self.leads:
            dist.send(rows.detach().contiguous(), 0)
            return None
        with tempfile.NamedTemporaryFile(dir=folder.spare()) as file:
            os.posix_fallocate(file.fileno(), 0, max(1, n * rows.shape[1] * rows.element_size()))
            whole = torch.from_file(file.name, shared=True, size=n * rows.shape[1], dtype=rows.dtype).view(n, -1)
        for rank in range(self.size):
            part = whole[self.rows(n, rank)]
            if rank:
                dist.recv(part, rank)
            else:
                part.copy_(rows.detach())
        return whole


def alone_or_first(world: World | None, act: Callable[[], Any]) -> Any:
    """Done once: by the process alone, or by the first of several."""
    return act() if world is None else world.first(act)


@contextlib.contextmanager
def one_by_one(world: World | None) -> Iterator[None]:
    """First the first process of each machine, then the others, for whom what it downloads or builds is there."""
    waits = world is not None and launch.local_rank() != 0
    if waits and world.any([False])[0]:
        raise Together("the first process of a machine could not")
    failed = True
    try:
        yield
        failed = False
    finally:
        if world is not None and not waits:
            world.any([failed])


@contextlib.contextmanager
def joined() -> Iterator[World | None]:
    """The world that torchrun made, or None for a process alone; what goes wrong between processes is said in words.

    After a restart the store may still hold the addresses of processes that are gone, hence the prefix.
    """
    if not launch.launched():
        yield None
        return
    mine = not dist.is_initialized()
    try:
        if mine:
            if gpu := torch.cuda.device_count() >= launch.local_size():
                torch.cuda.set_device(launch.local_rank())
            try:
                store, rank, size = next(dist.rendezvous("env://"))
            except ValueError as error:
                raise HarmoniumError(f"the processes cannot meet ({error}); start them by torchrun") from error
            store = dist.PrefixStore(f"attempt {launch.attempt()}", store)
            backend = "cuda:nccl,cpu:gloo" if gpu else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(hours=6))
        yield World(dist.get_rank(), dist.get_world_size())
    except RuntimeError as error:
        if not between_processes(error):
            raise
        raise HarmoniumError(_in_words(error)) from error
    finally:
        if mine and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


def between_processes(error: Exception) -> bool:
    """Whether it tells of another process rather than of this one."""
    words = "gloo|NCCL|Connection (closed|reset|refused)|TCPStore|socket|EADDRINUSE|[Tt]imed? ?out|process group"
    return isinstance(error, dist.DistError) or bool(re.search(words, str(error)))


def _in_words(error: RuntimeError) -> str:
    what = re.sub(r"\[/\S+\] | This is typically.*", "", str(error).splitlines()[0])
    if re.search("EADDRINUSE|address already in use|failed to listen", str(error)):
        port = os.environ.get("MASTER_PORT", "?")
        return f"port {port} is in use ({what}); choose another by torchrun --master-port, or say --standalone"
    return (
        f"process {launch.rank()} lost another one ({what}); `torchrun --max-restarts 3 ...` goes on from the "
        "last checkpoint by itself, `harmonium resume RUN` by hand, if there is one"
    )


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
