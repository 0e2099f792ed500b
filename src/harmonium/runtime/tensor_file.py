"""Tensors in one file (safetensors): written in parts, and memory-mapped when large."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from harmonium.runtime import storage

MIN_MAPPED_BYTES = 1 << 26  # of a file that is memory-mapped; smaller ones may be replaced while they are in use
BYTES_PER_PART = 1 << 24  # written at a time
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
}  # fmt: skip


def parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """The contents of a file in parts; equal tensors give equal bytes. Tensors of other devices are copied one at a time."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that all are aligned
    yield _header(tensors, names, metadata)
    for tensor in (tensors[name] for name in names if tensors[name].numel()):
        numbers = tensor.detach().cpu().contiguous().as_strided((tensor.numel(),), (1,))
        for part in numbers.view(torch.uint8).split(BYTES_PER_PART):
            yield part.numpy().data


def _header(tensors: Mapping[str, Tensor], names: list[str], metadata: Mapping[str, str] | None) -> bytes:
    """Type, shape and position of each tensor, as safetensors specifies it; padded to 64 bytes."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def set_aside(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors, on the same device or, if large, in an unnamed file that takes no memory until it is read."""
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) >= MIN_MAPPED_BYTES:
        with suppress(OSError), tempfile.NamedTemporaryFile(dir=storage.temporary_folder()) as file:
            file.writelines(parts(tensors))
            file.flush()
            return read(Path(file.name))[0]
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata. Tensors of a large file are memory-mapped, copy on write."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() or {}
    if path.stat().st_size < MIN_MAPPED_BYTES:
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    return tensors, metadata
