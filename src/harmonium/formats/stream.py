"""Facts that come a part at a time: names become numbers, numbers become columns, and memory holds little of either."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import folder
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples, mix
from harmonium.texts import Texts

HELD = 1 << 25  # bytes of a column that are held in memory; what is larger lies in a file without a name
FACTS = 1 << 22  # looked at together
ODD = 0x2545F4914F6CDD1D


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = folder.spare() or tempfile.gettempdir()
        raise HarmoniumError(
            f"{where}: no room for temporary files ({error.strerror}); make room, or name another folder by HARMONIUM_CACHE"
        ) from error


class Column:
    """Numbers that come in parts, as one tensor in the end: in memory, or mapped from a file that goes with it."""

    def __init__(self) -> None:
        self.parts: list[NDArray] = []
        self.file: IO[bytes] | None = None

    def add(self, numbers: NDArray) -> None:
        self.parts.append(numbers)
        if sum(part.nbytes for part in self.parts) > HELD:
            with _room():
                if self.file is None:
                    self.file = tempfile.TemporaryFile(dir=folder.spare())  # noqa: SIM115
                while self.parts:
                    self.file.write(np.ascontiguousarray(self.parts.pop(0)))

    def tensor(self, dtype: type = np.int64) -> Tensor:
        if self.file is None:
            return torch.from_numpy(np.concatenate([np.empty(0, dtype), *self.parts]))
        with _room():
            self.file.writelines(map(np.ascontiguousarray, self.parts))
            self.file.flush()
        return torch.from_numpy(np.memmap(self.file, dtype, "r+"))

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()


class Numbering:
    """Numbers for names in order of first appearance, known by a hash of 64 bits: 24 bytes a name, and no objects."""

    def __init__(self) -> None:
        self.keys = self.checks = np.empty(0, np.uint64)  # hashes, rising; another hash of each name, by number
        self.numbers = np.empty(0, np.int64)  # of the keys
        self.content, self.lengths = Column(), [np.zeros(1, np.int64)]

    def __call__(self, names: pl.Series) -> NDArray:
        keys, first, back = np.unique(names.hash(0).to_numpy(), return_index=True, return_inverse=True)
        at = np.searchsorted(self.keys, keys)
        new = np.append(self.keys, ~keys[-1:])[at] != keys
        numbers = np.append(self.numbers, 0)[at]
        order = np.argsort(first[new])
        numbers[np.flatnonzero(new)[order]] = len(self.numbers) + np.arange(len(order))
        self.keys, self.numbers = (
            np.insert(column, at[new], found[new]) for column, found in ((self.keys, keys), (self.numbers, numbers))
        )
        if len(order):
            fresh = names.gather(first[new][order])
            self.content.add(np.frombuffer((fresh.str.join("").item() or "").encode(), np.uint8))
            self.lengths.append(fresh.str.len_bytes().to_numpy())
            self.checks = np.append(self.checks, fresh.hash(1).to_numpy())
        numbers = numbers[back]
        if (self.checks[numbers] != names.hash(1).to_numpy()).any():
            raise HarmoniumError("two names have the same hash of 64 bits, as of billions of names some do; rename one")
        return numbers

    def texts(self) -> Texts:
        return Texts(
            self.content.tensor(np.uint8), torch.from_numpy(np.concatenate(self.lengths).cumsum(dtype=np.int64))
        )


def interleaved(one: pl.Series, other: pl.Series) -> pl.Series:
    """one[0], other[0], one[1], other[1], ..."""
    return pl.concat([one, other]).gather(np.arange(2 * len(one)).reshape(2, -1).T.ravel())


def chosen(triples: Triples, mask: Tensor) -> Triples:
    """The triples where the mask (n,) is true, a part at a time."""
    columns = [Column() for _ in range(3)]
    for start in range(0, len(triples), FACTS):
        part = slice(start, start + FACTS)
        for slot, column in zip(Slot, columns, strict=True):
            column.add(triples[slot][part][mask[part]].numpy())
    return Triples(*(column.tensor() for column in columns))


def repeated(triples: Triples) -> Tensor:
    """(n,) bool: whether a triple stood there before. Hashes are sorted, a share at a time; those alike are compared."""
    hashes, found = Column(), torch.zeros(len(triples), dtype=torch.bool)
    for part in triples.chunks(FACTS):
        hashes.add(mix((part.head * ODD + part.relation) * ODD + part.tail).numpy())
    keys, bits = hashes.tensor(), (len(triples) // FACTS).bit_length()
    for share in range(1 << bits):
        inside = ((part >> 63 - bits == share).nonzero()[:, 0] for part in keys.split(FACTS))
        rows = torch.cat([part + FACTS * number for number, part in enumerate(inside)])
        key, order = keys[rows].sort()
        same = torch.zeros(len(key), dtype=torch.bool)
        same[1:] = key[1:] == key[:-1]
        same[:-1] |= same[1:].clone()
        alike = rows[order[same]].sort().values
        again = pl.DataFrame(triples[alike].rows().numpy()).select(~pl.struct(pl.all()).is_first_distinct())
        found[alike[torch.from_numpy(again.to_series().to_numpy())]] = True
    return found
