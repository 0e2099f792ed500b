"""Triples of entity and relation ids, one column for each slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import overload

import torch
from torch import Tensor


class Slot(StrEnum):
    """One of the three positions in a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


@dataclass(frozen=True)
class Triples:
    """Facts as three columns of ids and, where their source has them, weights."""

    head: Tensor  # (n,) int64
    relation: Tensor  # (n,) int64
    tail: Tensor  # (n,) int64
    weight: Tensor | None = None  # (n,) float64 (float32 on other devices), finite, at least 0

    @classmethod
    def from_rows(cls, rows: Tensor | Sequence[Sequence[int]]) -> Triples:
        """Triples from rows of (head, relation, tail)."""
        rows = torch.as_tensor(rows, dtype=torch.int64).reshape(-1, 3)
        return cls(*(column.contiguous() for column in rows.T))

    @classmethod
    def cat(cls, parts: Sequence[Triples]) -> Triples:
        """Concatenate parts in order; if any part has weights, facts of the others get the weight 1."""
        weight = None
        if any(part.weight is not None for part in parts):
            weight = torch.cat([part.weights() for part in parts])
        head, relation, tail = (torch.cat([part[slot] for part in parts]) for slot in Slot)
        return cls(head, relation, tail, weight)

    def __len__(self) -> int:
        return len(self.head)

    def __repr__(self) -> str:
        rows = ", ".join(map(str, map(tuple, self[:3].to_rows().tolist())))
        return f"<Triples of {len(self):,}: {rows}{', ...' if len(self) > 3 else ''}>"

    @overload
    def __getitem__(self, index: Slot) -> Tensor: ...
    @overload
    def __getitem__(self, index: Tensor | slice | list[int]) -> Triples: ...
    def __getitem__(self, index: Slot | Tensor | slice | list[int]) -> Tensor | Triples:
        """A column by its slot, or a selection of rows."""
        if isinstance(index, Slot):
            return {Slot.HEAD: self.head, Slot.RELATION: self.relation, Slot.TAIL: self.tail}[index]
        weight = None if self.weight is None else self.weight[index]
        return Triples(self.head[index], self.relation[index], self.tail[index], weight)

    def weights(self) -> Tensor:
        """(n,) float64: the weight of each fact, 1 where none is given."""
        return torch.ones(len(self), dtype=torch.float64) if self.weight is None else self.weight

    def positive(self) -> Triples:
        """The facts whose weight is not 0; the others count as absent."""
        if self.weight is None or bool((self.weight > 0).all()):
            return self
        return self[self.weight > 0]

    def confidence_of(self, triples: Triples) -> Tensor:
        """(m,) float64: the weight of each triple, capped at 1; 0 if it is not one of these facts."""
        rows, inverse = torch.cat([self.to_rows(), triples.to_rows()]).unique(dim=0, return_inverse=True)
        confidence = torch.zeros(len(rows), dtype=torch.float64)
        confidence[inverse[: len(self)]] = self.weights().clamp(max=1)
        return confidence[inverse[len(self) :]]

    def to_rows(self) -> Tensor:
        """(n, 3), columns head, relation, tail."""
        return torch.stack([self.head, self.relation, self.tail], dim=1)

    def chunks(self, size: int) -> Iterator[Triples]:
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def to(self, device: torch.device | str) -> Triples:
        weight = None if self.weight is None else self.weight.to(device, torch.float32)
        return Triples(self.head.to(device), self.relation.to(device), self.tail.to(device), weight)


def read_columns(tensors: Mapping[str, Tensor], name: str, n_entities: int, n_relations: int) -> Triples:
    """The facts in columns called `name`.head, ...; a ValueError unless they are ids of a graph of this size."""
    head, relation, tail = (tensors[f"{name}.{slot.value}"] for slot in Slot)
    triples = Triples(head, relation, tail, tensors.get(f"{name}.weight"))
    for slot in Slot:
        ids, size = triples[slot], n_relations if slot is Slot.RELATION else n_entities
        if ids.dtype != torch.int64 or ids.shape != (triples.head.numel(),):
            raise ValueError(f"{name} is not three columns of ids")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            raise ValueError(f"{name} has an id without a name")
    weight = triples.weight
    if weight is not None and (weight.dtype != torch.float64 or weight.shape != triples.head.shape):
        raise ValueError(f"{name} has no column of weights")
    if weight is not None and not (weight.isfinite() & (weight >= 0)).all():
        raise ValueError(f"{name} has a weight that is not finite or below 0")
    return triples
