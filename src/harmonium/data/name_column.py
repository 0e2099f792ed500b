"""Many names in one column of bytes, which may be memory-mapped; a name becomes a str only when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NAMES_PER_BLOCK = 1 << 16  # names processed at a time
HASH_BASE = 0x9E3779B97F4A7C15  # odd, so that no power of it is 0 modulo 2^64


class NameColumn(Sequence[str]):
    """An immutable list of strings; `find` looks one up in a sorted column of hashes."""

    def __init__(
        self, content: Tensor, offsets: Tensor, hashes: Tensor | None = None, order: Tensor | None = None
    ) -> None:
        self.content, self.offsets = content.numpy(), offsets.numpy()  # (bytes,) uint8 in UTF-8; (n + 1,) int64
        if hashes is not None and order is not None:
            self.hash_index = hashes.numpy().view(np.uint64), order.numpy()

    @classmethod
    def of(cls, names: Iterable[str]) -> NameColumn:
        if isinstance(names, NameColumn):
            return names
        encoded = [name.encode() for name in names]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=offsets[1:])
        content = torch.frombuffer(bytearray(b"".join(encoded) or b" "), dtype=torch.uint8)[: offsets[-1]]
        return cls(content, torch.from_numpy(offsets))

    def columns(self) -> dict[str, Tensor]:
        """The tensors to save; `NameColumn(**columns)` is equal to this one."""
        hashes, order = self.hash_index
        columns = {"content": self.content, "offsets": self.offsets, "hashes": hashes.view(np.int64), "order": order}
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        name: str = self.content[self.offsets[index] : self.offsets[index + 1]].tobytes().decode()
        return name

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), NAMES_PER_BLOCK):
            bounds = self.offsets[start : start + NAMES_PER_BLOCK + 1].tolist()
            block = self.content[bounds[0] : bounds[-1]].tobytes()
            for low, high in pairwise(bounds):
                yield block[low - bounds[0] : high - bounds[0]].decode()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True)))

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return repr(list(self) if len(self) <= 8 else [*self[:7], f"... {len(self):,} in all"])

    # Lookup ----------------------------------------------------------------------------------------------------------

    @cached_property
    def hash_index(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The hashes of all names, ascending (n,), and the position of the name of each (n,)."""
        hashes = np.empty(len(self), np.uint64)
        for start in range(0, len(self), NAMES_PER_BLOCK):
            bounds = self.offsets[start : start + NAMES_PER_BLOCK + 1]
            hashes[start : start + NAMES_PER_BLOCK] = _hash_all(
                self.content[bounds[0] : bounds[-1]], bounds - bounds[0]
            )
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def find(self, name: str) -> list[int]:
        """All positions of a name, ascending."""
        hashes, order = self.hash_index
        key = np.uint64(_hash(name.encode(errors="replace")))
        first, last = (int(hashes.searchsorted(key, side)) for side in ("left", "right"))
        return [position for position in order[first:last].tolist() if self[position] == name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.find(name))

    @cached_property
    def distinct(self) -> bool:
        """Whether no name occurs twice."""
        hashes, order = self.hash_index
        same = hashes[1:] == hashes[:-1]
        colliding = np.concatenate([same, [False]]) | np.concatenate([[False], same])
        positions = order[colliding] if len(same) else order[:0]
        return len({self[position] for position in positions}) == len(positions)


def _hash(content: bytes) -> int:
    """Polynomial hash: the sum of (byte + 1) * HASH_BASE^position, modulo 2^64."""
    value = 0
    for byte in reversed(content):
        value = (value * HASH_BASE + byte + 1) & 0xFFFFFFFFFFFFFFFF
    return value


def _hash_all(content: NDArray[np.uint8], bounds: NDArray[np.int64]) -> NDArray[Any]:
    """(n,) uint64: `_hash` of each name, vectorised."""
    lengths = np.diff(bounds)
    powers = np.full(lengths.max(initial=0) + 1, HASH_BASE, np.uint64)
    powers[0] = 1
    position = np.arange(len(content)) - np.repeat(bounds[:-1], lengths)
    total = np.zeros(len(content) + 1, np.uint64)
    np.cumsum((content.astype(np.uint64) + np.uint64(1)) * np.cumprod(powers)[position], out=total[1:])
    return total[bounds[1:]] - total[bounds[:-1]]
