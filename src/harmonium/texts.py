"""Many texts as one column of bytes, which may be a mapped file: none is a Python object until it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 1 << 16  # texts at a time
BASE = 0x9E3779B97F4A7C15  # of the hash: odd, so that no power of it is lost


class Texts(Sequence[str]):
    """A list of texts that cannot be changed; `find` says where one is, by a sorted column of hashes."""

    def __init__(
        self, content: Tensor, offsets: Tensor, hashes: Tensor | None = None, order: Tensor | None = None
    ) -> None:
        self.content, self.offsets = content.numpy(), offsets.numpy()  # (bytes,) uint8 in UTF-8; (n + 1,) int64
        if hashes is not None and order is not None:
            self.index = hashes.numpy().view(np.uint64), order.numpy()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        if isinstance(texts, Texts):
            return texts
        encoded = [text.encode() for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(torch.frombuffer(bytearray(b"".join(encoded) or b" "), dtype=torch.uint8)[: offsets[-1]],
                   torch.from_numpy(offsets))  # fmt: skip

    def columns(self) -> dict[str, Tensor]:
        """What a file keeps: `Texts(**columns)` is the same again."""
        hashes, order = (torch.from_numpy(column) for column in (self.index[0].view(np.int64), self.index[1]))
        found = {"content": torch.from_numpy(self.content), "offsets": torch.from_numpy(self.offsets)}
        return found | {"hashes": hashes, "order": order}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        return self.content[self.offsets[place] : self.offsets[place + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BLOCK):
            bounds = self.offsets[start : start + BLOCK + 1].tolist()
            block = self.content[bounds[0] : bounds[-1]].tobytes()
            for low, high in pairwise(bounds):
                yield block[low - bounds[0] : high - bounds[0]].decode()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True)))

    __hash__ = None  # as a list has none

    def __repr__(self) -> str:
        return repr(list(self) if len(self) <= 8 else [*self[:7], f"... {len(self):,} in all"])

    # Where a text is -------------------------------------------------------------------------------------------------

    @cached_property
    def index(self) -> tuple[NDArray, NDArray]:
        """The hashes of all texts in rising order (n,) uint64, and which text has each (n,)."""
        found = np.empty(len(self), np.uint64)
        for start in range(0, len(self), BLOCK):
            bounds = self.offsets[start : start + BLOCK + 1]
            found[start : start + BLOCK] = _hashes(self.content[bounds[0] : bounds[-1]], bounds - bounds[0])
        order = np.argsort(found, kind="stable")
        return found[order], order

    def find(self, text: str) -> list[int]:
        """All places of a text, rising: the index is stable."""
        key, (hashes, order), found = np.uint64(_hash(text.encode(errors="replace"))), self.index, []
        at = int(hashes.searchsorted(key))
        while at < len(hashes) and hashes[at] == key:
            if self[place := int(order[at])] == text:
                found.append(place)
            at += 1
        return found

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and bool(self.find(text))

    @cached_property
    def distinct(self) -> bool:
        """Whether no text is there twice."""
        hashes, order = self.index
        same = hashes[1:] == hashes[:-1]
        places = order[np.concatenate([same, [False]]) | np.concatenate([[False], same])] if len(same) else order[:0]
        return len({self[place] for place in places}) == len(places)


def _hash(content: bytes) -> int:
    """The sum of (byte + 1) BASE^place, in 64 bits."""
    found = 0
    for byte in reversed(content):
        found = (found * BASE + byte + 1) & 0xFFFFFFFFFFFFFFFF
    return found


def _hashes(content: NDArray, bounds: NDArray) -> NDArray:
    """(n,) uint64: the same of each text."""
    lengths = np.diff(bounds)
    powers = np.full(lengths.max(initial=0) + 1, BASE, np.uint64)
    powers[0] = 1
    place = np.arange(len(content)) - np.repeat(bounds[:-1], lengths)
    total = np.zeros(len(content) + 1, np.uint64)
    np.cumsum((content.astype(np.uint64) + np.uint64(1)) * np.cumprod(powers)[place], out=total[1:])
    return total[bounds[1:]] - total[bounds[:-1]]
