"""Columns of numbers that arrive in parts, kept in a temporary file where they are large."""

import tempfile
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.runtime import storage

MAX_BYTES_IN_MEMORY = 1 << 25  # of a column; more go to a temporary file
ROWS_PER_CHUNK = 1 << 22  # triples processed at a time


class GrowingColumn:
    """Numbers appended in parts. `tensor()` has them in memory or, if they are many, mapped from a temporary file."""

    def __init__(self) -> None:
        self.parts: list[NDArray[Any]] = []
        self.file: IO[bytes] | None = None

    def append(self, numbers: NDArray[Any]) -> None:
        self.parts.append(numbers)
        if sum(part.nbytes for part in self.parts) > MAX_BYTES_IN_MEMORY:
            self._flush()

    def tensor(self, dtype: type = np.int64) -> Tensor:
        if self.file is None:
            return torch.from_numpy(np.concatenate([np.empty(0, dtype), *self.parts]))
        self._flush()
        return torch.from_numpy(np.memmap(self.file, dtype, "r+"))

    def _flush(self) -> None:
        """Write the parts in memory to the file."""
        try:
            if self.file is None:
                self.file = tempfile.TemporaryFile(dir=storage.temporary_folder())  # noqa: SIM115
            while self.parts:
                self.file.write(np.ascontiguousarray(self.parts.pop(0)).data)
            self.file.flush()
        except OSError as error:
            folder = storage.temporary_folder() or tempfile.gettempdir()
            raise HarmoniumError(
                f"{folder}: no room for temporary files ({error.strerror}); make room, or set HARMONIUM_CACHE"
            ) from error

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()


def select_triples(triples: Triples, mask: Tensor) -> Triples:
    """The triples where the mask (n,) is true; a large selection is mapped from a temporary file."""
    columns, weight = [GrowingColumn() for _ in Slot], GrowingColumn()
    for start in range(0, len(triples), ROWS_PER_CHUNK):
        chunk = slice(start, start + ROWS_PER_CHUNK)
        for slot, column in zip(Slot, columns, strict=True):
            column.append(triples[slot][chunk][mask[chunk]].numpy())
        if triples.weight is not None:
            weight.append(triples.weight[chunk][mask[chunk]].numpy())
    head, relation, tail = (column.tensor() for column in columns)
    return Triples(head, relation, tail, None if triples.weight is None else weight.tensor(np.float64))
