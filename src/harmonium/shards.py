"""A checkpoint that several processes write together, by torch.distributed.checkpoint: a folder of safetensors files.

Rows of the entity table, and what optimisers remember of them, are dealt over the processes; any number of them, one
included, can read them back, each its own rows. Everything else is written once.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.distributed import World


def save(place: Path, tensors: Mapping[str, Tensor], dealt: Collection[str], n: int, world: World) -> None:
    """Write the tensors into a new folder; those named in `dealt` are this process's rows of n."""
    import torch.distributed.checkpoint as dcp

    state = {name: _whole(t, n, world) if name in dealt else t.detach().cpu() for name, t in tensors.items()}
    try:
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(str(place), save_distributed=True))
    except dcp.CheckpointException as error:
        rank, (why, _) = next(iter(error.failures.items()))
        raise OSError(
            getattr(why, "errno", None), f"process {rank}: {getattr(why, 'strerror', None) or why}"
        ) from error


def load(place: Path, dealt: Collection[str], world: World | None) -> dict[str, Tensor]:
    """Read a folder back: all rows in one process alone, its own in each of several."""
    import torch.distributed.checkpoint as dcp

    reader, state = dcp.HuggingFaceStorageReader(str(place)), {}
    for name, about in reader.read_metadata().state_dict_metadata.items():
        if world is None or name not in dealt:
            state[name] = torch.empty(about.size, dtype=about.properties.dtype)
        else:
            held = world.rows(about.size[0])
            rows = torch.empty(held.stop - held.start, *about.size[1:], dtype=about.properties.dtype)
            state[name] = _whole(rows, about.size[0], world)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            dcp.load(state, storage_reader=reader, no_dist=world is None)
    except dcp.CheckpointException as error:  # no Exception, by itself
        raise RuntimeError(next(iter(error.failures.values()))[0]) from error
    return {name: tensor.to_local() if hasattr(tensor, "to_local") else tensor for name, tensor in state.items()}


def _whole(rows: Tensor, n: int, world: World) -> Any:
    """The table of n rows that these rows are a part of, as torch.distributed sees it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((n, *rows.shape[1:]))
    stride = torch.empty(shape, device="meta").stride()
    mesh = init_device_mesh("cpu", (world.size,))
    return DTensor.from_local(rows.detach().cpu(), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)
