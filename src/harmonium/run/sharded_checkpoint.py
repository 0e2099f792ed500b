"""Checkpoints written by several processes together (torch.distributed.checkpoint): a folder of safetensors files.

Rows of the entity table and their optimiser state are sharded over the processes; any number of processes, one included,
can read them back, each process its shard. Everything else is written once.
"""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.runtime.distributed import World


def save(folder: Path, tensors: Mapping[str, Tensor], sharded: Collection[str], n: int, world: World) -> None:
    """Write the tensors into a new folder; those named in `sharded` have only the rows (of n) of this process."""
    dcp = _distributed_checkpoint()
    state = {}
    for name, tensor in tensors.items():
        state[name] = _as_shard(tensor, n, world) if name in sharded else tensor.detach().cpu()
    try:
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except dcp.CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        reason = getattr(cause, "strerror", None) or cause
        raise OSError(getattr(cause, "errno", None), f"process {rank}: {reason}") from error


def load(folder: Path, sharded: Collection[str], world: World | None) -> dict[str, Tensor]:
    """Read a folder back: a single process gets all rows, each of several processes its shard."""
    dcp = _distributed_checkpoint()
    reader = dcp.HuggingFaceStorageReader(str(folder))
    state = {}
    for name, stored in reader.read_metadata().state_dict_metadata.items():
        if world is None or name not in sharded:
            state[name] = torch.empty(stored.size, dtype=stored.properties.dtype)
        else:
            shard = world.shard(stored.size[0])
            rows = torch.empty(shard.stop - shard.start, *stored.size[1:], dtype=stored.properties.dtype)
            state[name] = _as_shard(rows, stored.size[0], world)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            dcp.load(state, storage_reader=reader, no_dist=world is None)
    except dcp.CheckpointException as error:  # not a subclass of Exception
        raise RuntimeError(next(iter(error.failures.values()))[0]) from error
    return {name: tensor.to_local() if hasattr(tensor, "to_local") else tensor for name, tensor in state.items()}


def _as_shard(rows: Tensor, n: int, world: World) -> Any:
    """The table (n, ...), of which this process has `rows`, as a DTensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((n, *rows.shape[1:]))
    stride = torch.empty(shape, device="meta").stride()
    mesh = init_device_mesh("cpu", (world.size,))
    return DTensor.from_local(rows.detach().cpu(), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def _distributed_checkpoint() -> Any:
    """torch.distributed.checkpoint, imported on first use as that is slow; it lacks type declarations."""
    import torch.distributed.checkpoint

    return torch.distributed.checkpoint
