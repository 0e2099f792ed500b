"""A knowledge graph: who is in it, what is said of them, and an index of what is known."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.texts import Texts

SPLITS = ("train", "valid", "test")
PART = 1 << 22  # facts looked at together
HINTS = 1_000_000  # names looked at for a hint


class Slot(StrEnum):
    """One of the three places of a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


@dataclass(frozen=True)
class Triples:
    """Facts as three columns of ids."""

    head: Tensor  # (n,) int64
    relation: Tensor  # (n,) int64
    tail: Tensor  # (n,) int64

    @classmethod
    def from_rows(cls, rows: Tensor | Sequence[Sequence[int]]) -> Triples:
        """Rows of (head, relation, tail) as columns."""
        rows = torch.as_tensor(rows, dtype=torch.int64).reshape(-1, 3)
        return cls(*(column.contiguous() for column in rows.T))

    @classmethod
    def cat(cls, parts: Sequence[Triples]) -> Triples:
        return cls(*(torch.cat([part[slot] for part in parts]) for slot in Slot))

    def __len__(self) -> int:
        return len(self.head)

    def __getitem__(self, index: Slot | Tensor | slice) -> Tensor | Triples:
        """A column by its slot, or a selection of rows."""
        if isinstance(index, Slot):
            return getattr(self, index.value)
        return Triples(self.head[index], self.relation[index], self.tail[index])

    def rows(self) -> Tensor:
        """(n, 3), columns head, relation, tail."""
        return torch.stack([self.head, self.relation, self.tail], dim=1)

    def chunks(self, size: int) -> Iterator[Triples]:
        for start in range(0, len(self), size):
            yield self[slice(start, start + size)]

    def to(self, device: torch.device | str) -> Triples:
        return Triples(self.head.to(device), self.relation.to(device), self.tail.to(device))


@dataclass(frozen=True)
class Groups:
    """A CSR index: key -> the sorted distinct values seen with it."""

    keys: Tensor  # (k,) sorted, distinct
    offsets: Tensor  # (k + 1,)
    values: Tensor  # (offsets[-1],)

    @classmethod
    def build(cls, keys: Tensor, values: Tensor) -> Groups:
        """The index of pairs of numbers >= 0."""
        size = int(values.max()) + 1 if len(values) else 1
        if len(keys) and int(keys.max()) >= torch.iinfo(torch.int64).max // size:  # a pair does not fit one number
            rank, numbers = torch.unique(keys, return_inverse=True)
            return replace(found := cls.build(numbers, values), keys=rank[found.keys])
        pairs = keys * size + values
        pairs = torch.from_numpy(_sorted(pairs.numpy())) if pairs.device.type == "cpu" else pairs.sort().values
        pairs = pairs.unique_consecutive()
        keys, counts = torch.unique_consecutive(pairs // size, return_counts=True)
        return cls(keys, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), pairs.remainder_(size))

    def _spans(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Where each key's values start and how many there are (zero for an unknown key)."""
        if len(self.keys) == 0:
            return torch.zeros_like(keys), torch.zeros_like(keys)
        at = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        start = self.offsets[at]
        return start, torch.where(self.keys[at] == keys, self.offsets[at + 1] - start, 0)

    def lookup(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """All (row, value) pairs: value was seen with keys[row]."""
        start, count = self._spans(keys)
        row = torch.repeat_interleave(torch.arange(len(keys), device=keys.device), count)
        within = torch.arange(len(row), device=keys.device) - (count.cumsum(0) - count)[row]
        return row, self.values[start[row] + within]

    def contains(self, keys: Tensor, values: Tensor) -> Tensor:
        """Whether each value was seen with its key: a binary search inside each group."""
        low, count = self._spans(keys)
        end = low + count
        if len(self.values) == 0:
            return torch.zeros_like(values, dtype=torch.bool)
        high = end.clone()
        for _ in range(int(count.max()).bit_length() if len(keys) else 0):
            middle = (low + high) // 2
            smaller = (low < high) & (self.values[middle.clamp(max=len(self.values) - 1)] < values)
            low, high = torch.where(smaller, middle + 1, low), torch.where(smaller, high, middle)
        return (low < end) & (self.values[low.clamp(max=len(self.values) - 1)] == values)

    def to(self, device: torch.device | str) -> Groups:
        return Groups(self.keys.to(device), self.offsets.to(device), self.values.to(device))


@dataclass(frozen=True)
class Answers:
    """What is known for a query with one slot open: (query) -> fillers seen there."""

    slot: Slot
    groups: Groups
    n_entities: int

    def keys(self, queries: Triples) -> Tensor:
        """The two given slots of each query as one number."""
        if self.slot is Slot.RELATION:
            return queries.head * self.n_entities + queries.tail
        return queries.relation * self.n_entities + (queries.tail if self.slot is Slot.HEAD else queries.head)

    def of(self, queries: Triples) -> tuple[Tensor, Tensor]:
        """All (row, filler) pairs known for the queries; the open slot of a query is ignored."""
        return self.groups.lookup(self.keys(queries))

    def contain(self, triples: Triples) -> Tensor:
        """Whether each triple is a known fact."""
        return self.groups.contains(self.keys(triples), triples[self.slot])

    def to(self, device: torch.device | str) -> Answers:
        return replace(self, groups=self.groups.to(device))


@dataclass(frozen=True)
class Vocabulary:
    """The names of the entities or relations; position = id used by the tensors."""

    ids: Texts  # any texts given are kept as these
    labels: Texts | None = None  # human-readable names, one per id, where the source has them
    kind: str = "entity"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", Texts.of(self.ids))
        object.__setattr__(self, "labels", None if self.labels is None else Texts.of(self.labels))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> Texts:
        """What to show a person."""
        return self.ids if self.labels is None else self.labels

    def name(self, index: int) -> str:
        return self.names[index]

    def titles(self) -> Texts:
        """Names for people where they tell everything apart, identifiers otherwise."""
        return self.names if self.names.distinct else self.ids

    def __contains__(self, name: str) -> bool:
        return name in self.ids or name in self.names

    def index(self, name: str) -> int:
        """The id of a name (identifier first, then label); a near miss gets a hint."""
        matches = self.ids.find(name) or self.names.find(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            some = ", ".join(self.ids[index] for index in matches[:5])
            raise HarmoniumError(f"{len(matches)} of the {self.kind} names are '{name}'; use an identifier: {some}")
        near = self.nearest(name)
        hint = f"; did you mean {', '.join(repr(n) for n in near)}?" if near else ""
        raise HarmoniumError(f"no {self.kind} named '{name}' among {len(self):,}{hint}")

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """The known names most like this one (of the first million: looking at one takes a microsecond)."""
        from rapidfuzz import fuzz, process, utils

        found = process.extract(
            name, self.names[:HINTS], scorer=fuzz.WRatio, processor=utils.default_process, limit=count, score_cutoff=60
        )
        return [match for match, _, _ in found]


def _sorted(numbers: NDArray) -> NDArray:
    """In place: torch would make a copy and an order as well."""
    numbers.sort()
    return numbers


def mix(numbers: Tensor) -> Tensor:
    """(n,) int64 >= 0: each number as another that looks random, and depends on it alone."""
    for shift in (32, 29, 32):
        high = (numbers >> shift) & (1 << 64 - shift) - 1
        numbers = (numbers ^ high) * 0x1E3779B97F4A7C15  # wraps round
    return numbers & torch.iinfo(torch.int64).max


def member(values: Tensor, among: Tensor) -> Tensor:
    """(n,) bool: whether each value is among some that rise."""
    if not len(among):
        return torch.zeros_like(values, dtype=torch.bool)
    return among[torch.searchsorted(among, values).clamp_(max=len(among) - 1)] == values


@dataclass(frozen=True, repr=False)
class Graph:
    """Vocabularies and the three splits; everything downstream works on this."""

    entities: Vocabulary
    relations: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    name: str = "graph"
    notes: tuple[str, ...] = field(default=())  # what the reader wants the user to know, e.g. duplicates dropped

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        return len(self.relations)

    def split(self, name: str) -> Triples:
        """A split by name; an unknown or empty one is an error that says what there is."""
        if name not in SPLITS:
            raise HarmoniumError(f"no split '{name}'; there are {', '.join(SPLITS)}")
        triples: Triples = getattr(self, name)
        if not len(triples):
            have = ", ".join(f"{s} ({len(getattr(self, s)):,})" for s in SPLITS if len(getattr(self, s)))
            raise HarmoniumError(f"the {name} split of '{self.name}' has no triples; it has {have or 'none at all'}")
        return triples

    def triple(self, head: str, relation: str, tail: str) -> Triples:
        """One triple from names."""
        return Triples.from_rows(
            [[self.entities.index(head), self.relations.index(relation), self.entities.index(tail)]]
        )

    def fingerprint(self) -> str:
        """Sizes and a checksum of the facts, by number: tells whether two processes train on the same."""
        crc = 0
        for split in SPLITS:
            for slot in Slot:
                crc = zlib.crc32(getattr(self, split)[slot].contiguous().numpy(), crc)
        return f"{self!r}, {crc:08x}"

    def facts(self, splits: Sequence[str] = SPLITS) -> Triples:
        """The triples of several splits together; those of one are not copied."""
        filled = [getattr(self, split) for split in splits if len(getattr(self, split))]
        return filled[0] if len(filled) == 1 else Triples.cat(filled or [self.train[:0]])

    def answers(self, slot: Slot, splits: Sequence[str] = SPLITS, queries: Triples | None = None) -> Answers:
        """The index of known fillers of one slot; with `queries`, of theirs alone, which takes far less memory."""
        none = self.train.head[:0]
        empty = Answers(slot, Groups(none, none.new_zeros(1), none), self.n_entities)
        keys, values = [none], [none]
        asked = empty.keys(queries).unique() if queries is not None else None
        for part in (part for split in splits for part in getattr(self, split).chunks(PART)):
            found = empty.keys(part)
            kept = slice(None) if asked is None else member(found, asked)
            keys.append(found[kept])
            values.append(part[slot][kept])
        return replace(empty, groups=Groups.build(torch.cat(keys), torch.cat(values)))

    def fillers(self, slot: Slot, splits: Sequence[str] = SPLITS) -> Groups:
        """relation -> entities seen in that slot of it: the candidates of a typed protocol."""
        facts = self.facts(splits)
        return Groups.build(facts.relation, facts[slot])

    def unseen(self, triples: Triples) -> Tensor:
        """Which triples mention an entity that training never sees."""
        seen = torch.zeros(self.n_entities, dtype=torch.bool)
        seen[self.train.head] = True
        seen[self.train.tail] = True
        return ~(seen[triples.head] & seen[triples.tail])

    def categories(self) -> list[str]:
        """1-1, 1-N, N-1 or N-N for each relation, by the mean count of fillers in train (above 1.5 is N)."""
        many = {}
        for slot in (Slot.HEAD, Slot.TAIL):
            groups = self.answers(slot, ("train",)).groups
            relation, count = groups.keys // self.n_entities, groups.offsets.diff().double()
            total = torch.zeros(self.n_relations, dtype=torch.float64).index_add_(0, relation, count)
            queries = torch.bincount(relation, minlength=self.n_relations).clamp(min=1)
            many[slot] = (total / queries > 1.5).tolist()
        letter = {False: "1", True: "N"}
        return [f"{letter[h]}-{letter[t]}" for h, t in zip(many[Slot.HEAD], many[Slot.TAIL], strict=True)]

    def spell(self, triples: Triples) -> list[tuple[str, str, str]]:
        """Triples as names a person can read."""
        return [
            (self.entities.name(h), self.relations.name(r), self.entities.name(t))
            for h, r, t in triples.rows().tolist()
        ]

    def __repr__(self) -> str:
        counts = ", ".join(f"{split} {len(getattr(self, split)):,}" for split in SPLITS)
        return f"Graph '{self.name}': {self.n_entities:,} entities, {self.n_relations:,} relations; {counts}"
