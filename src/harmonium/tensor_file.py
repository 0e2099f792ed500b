"""Tensors in one file (safetensors): written a part at a time, and mapped, not read, where they are large."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from harmonium import folder

MAPPED = 1 << 26  # bytes: from this size a file is mapped; smaller ones may be replaced while they are in use
PART = 1 << 24  # bytes written at a time
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
}  # fmt: skip


def parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | NDArray]:
    """The contents of a file, the same for the same tensors; memory holds one tensor of another device at most."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that every number is aligned
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].numel() * tensors[name].element_size()
        kind, shape = DTYPES[tensors[name].dtype], list(tensors[name].shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)  # the first tensor starts where memory of its own would
    yield len(text).to_bytes(8, "little") + text
    for tensor in (tensors[name] for name in names if tensors[name].numel()):
        numbers = tensor.detach().cpu().contiguous().as_strided((tensor.numel(),), (1,))
        for part in numbers.view(torch.uint8).split(PART):
            yield part.numpy()


def set_aside(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy, where it is now or, if large, in a file without a name: it takes no memory until it is looked at."""
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) >= MAPPED:
        with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder.spare()) as file:
            file.writelines(parts(tensors))
            file.flush()
            return read(Path(file.name))[0]
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata; tensors of a large file are views of it, and changing them leaves it as it is."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() or {}
    if path.stat().st_size < MAPPED:
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    return tensors, metadata
