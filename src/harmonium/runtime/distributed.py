"""Several processes launched by torchrun, and their communication.

Every process runs the same program. Triples of a batch and rows of the entity table are sharded over the processes;
relations, W and b are replicated. Every process draws the random numbers of the whole batch, so the result equals that
of a single process up to the order of sums.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from harmonium.errors import HarmoniumError, PeerError
from harmonium.runtime import storage, torchrun

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among the others. A method that communicates must be called by all processes."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def shard_size(self, n: int) -> int:
        """Rows of n that one process holds, the last ones perhaps fewer, as in torch.chunk and DTensor."""
        return -(-n // self.size)

    def shard(self, n: int, rank: int | None = None) -> slice:
        """The rows of n that the process with this rank holds; default: this process."""
        start = min(n, self.shard_size(n) * (self.rank if rank is None else rank))
        return slice(start, min(n, start + self.shard_size(n)))

    def batch_slice(self, n: int) -> slice:
        """The triples of a batch of n that belong to this process; sizes differ by at most one between processes."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def all_to_all(self, rows: Tensor, sent: list[int] | None = None, received: list[int] | None = None) -> Tensor:
        """Send `sent[i]` of the rows (m, ...) to process i and receive `received[i]` from it; default: one each."""
        output = rows.new_empty((sum(received) if received else len(rows), *rows.shape[1:]))
        dist.all_to_all_single(output, rows.contiguous(), received, sent)
        return output

    def all_reduce(self, tensors: list[Tensor]) -> None:
        """Sum each tensor over the processes, in place and in one exchange."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set in any process."""
        counts = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(counts)
        return [count > 0 for count in counts.tolist()]

    def minimum(self, value: int) -> int:
        """The smallest value over the processes."""
        number = torch.tensor(value)
        dist.all_reduce(number, dist.ReduceOp.MIN)
        return int(number)

    def broadcast(self, value: T) -> T:
        """Send the value of the main process to all; returns it in every process."""
        values = [value]
        dist.broadcast_object_list(values, device=torch.device("cpu"))
        return values[0]

    def all_gather(self, value: T) -> list[T]:
        """Collect the values of all processes, by rank; returns the list in every process."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def gather(self, value: T) -> list[T] | None:
        """Every process's value by rank, in the main process."""
        values: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, values)
        return values

    def sum_of_exponentials(self, logs: Tensor, summed: Tensor) -> tuple[Tensor, Tensor]:
        """log(sum of exp(x)) of logs (q,) and the sum of `summed` (k,) over the processes, in one exchange.

        Each process adds in the same order, so that all have the same result to the bit.
        """
        local = torch.cat([logs, summed])
        parts = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(parts, local)
        stacked = torch.stack(parts)
        return stacked[:, : len(logs)].logsumexp(0), stacked[:, len(logs) :].sum(0)

    def check_agreement(self, values: dict[str, str]) -> None:
        """Raise an error that names the process and the key, unless all processes have equal values."""
        by_rank = self.all_gather(values)
        for rank, others in enumerate(by_rank):
            for key, value in others.items():
                expected = by_rank[0].get(key)
                if value != expected:
                    error_type = HarmoniumError if self.is_main else PeerError
                    raise error_type(
                        f"process {rank} differs from process 0 in {key}: {value!s:.80}, not {expected!s:.80}; "
                        "start all processes with the same program, data and settings"
                    )

    def gather_rows(self, rows: Tensor, n: int, everywhere: bool = False) -> Tensor | None:
        """Gather sharded rows into the whole table (n, dim), in the main process (None in others) or `everywhere`."""
        if everywhere:
            whole = _new_table(n, rows)
            whole[self.shard(n)].copy_(rows.detach())
            for rank in range(self.size):
                dist.broadcast(whole[self.shard(n, rank)], rank)
            return whole
        if not self.is_main:
            dist.send(rows.detach().contiguous(), 0)
            return None
        whole = _new_table(n, rows)
        whole[self.shard(n)].copy_(rows.detach())
        for rank in range(1, self.size):
            dist.recv(whole[self.shard(n, rank)], rank)
        return whole


def _new_table(n: int, rows: Tensor) -> Tensor:
    """An uninitialised table (n, dim) for gathered rows: backed by a temporary file or, if the disk is full, by memory."""
    size = n * rows.shape[1]
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=storage.temporary_folder()) as file:
        os.posix_fallocate(file.fileno(), 0, max(1, size * rows.element_size()))
        return torch.from_file(file.name, shared=True, size=size, dtype=rows.dtype).view(n, rows.shape[1])
    return torch.empty(n, rows.shape[1], dtype=rows.dtype)


def agreed(world: World | None, flag: bool) -> bool:
    """A flag that clocks or machines decide, the same in all processes: whether it is set in any."""
    return flag if world is None else world.any([flag])[0]


def run_on_main(world: World | None, action: Callable[[], T]) -> T:
    """Run an action in the main process only; every process returns its result or raises its error."""
    if world is None:
        return action()
    result: T | None = None
    error: Exception | None = None
    if world.is_main:
        try:
            result = action()
        except OSError as raised:
            world.broadcast((None, OSError(raised.errno, raised.strerror)))
            raise
        except Exception as raised:
            world.broadcast((None, PeerError(str(raised))))
            raise
    result, error = world.broadcast((result, error))
    if error is not None:
        raise error
    return cast(T, result)


@contextlib.contextmanager
def local_main_first(world: World | None) -> Iterator[None]:
    """Let the main process of each machine enter first, so that the others find what it downloads or builds."""
    if world is None:
        yield
        return
    waits = torchrun.local_rank() != 0
    if waits and world.any([False])[0]:
        raise PeerError("the main process of a machine failed")
    failed = True
    try:
        yield
        failed = False
    finally:
        if not waits:
            world.any([failed])


@contextlib.contextmanager
def process_group() -> Iterator[World | None]:
    """The processes that torchrun started, or None for a single one; communication errors become HarmoniumErrors."""
    if not torchrun.is_launched():
        yield None
        return
    owns_group = not dist.is_initialized()
    try:
        if owns_group:
            _join_group()
        yield World(dist.get_rank(), dist.get_world_size())
    except RuntimeError as error:
        if not is_communication_error(error):
            raise
        raise HarmoniumError(_explain(error)) from error
    finally:
        if owns_group and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


def _join_group() -> None:
    """Join torchrun's processes, on NCCL where each has a GPU.

    After a restart the store may still hold the addresses of lost processes, hence the prefix.
    """
    on_gpu = torch.cuda.device_count() >= torchrun.local_size()
    if on_gpu:
        torch.cuda.set_device(torchrun.local_rank())
    try:
        store, rank, size = next(rendezvous("env://"))
    except ValueError as error:
        raise HarmoniumError(f"the processes cannot find each other ({error}); start them with torchrun") from error
    store = dist.PrefixStore(f"restart {torchrun.restart_count()}", store)  # type: ignore[attr-defined]  # not in stubs
    backend = "cuda:nccl,cpu:gloo" if on_gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(hours=6))


def is_communication_error(error: Exception) -> bool:
    """Whether an error comes from another process or the network rather than from this process."""
    words = "gloo|NCCL|Connection (closed|reset|refused)|TCPStore|socket|EADDRINUSE|[Tt]imed? ?out|process group"
    return isinstance(error, dist.DistError) or bool(re.search(words, str(error)))


def _explain(error: RuntimeError) -> str:
    summary = re.sub(r"\[/\S+\] | This is typically.*", "", str(error).splitlines()[0])
    if re.search("EADDRINUSE|address already in use|failed to listen", str(error)):
        port = os.environ.get("MASTER_PORT", "?")
        return f"port {port} is in use ({summary}); choose another with torchrun --master-port, or use --standalone"
    return (
        f"process {torchrun.rank()} lost another process ({summary}); continue from the last checkpoint with "
        "`harmonium resume RUN`, or automatically with `torchrun --max-restarts 3 ...`"
    )
