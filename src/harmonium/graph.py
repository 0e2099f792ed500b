"""A knowledge graph: who is in it, what is said of them, and an index of what is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from harmonium.errors import HarmoniumError

SPLITS = ("train", "valid", "test")


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
        order = torch.argsort(values, stable=True)
        order = order[torch.argsort(keys[order], stable=True)]
        keys, values = keys[order], values[order]
        fresh = torch.ones_like(keys, dtype=torch.bool)
        fresh[1:] = (keys[1:] != keys[:-1]) | (values[1:] != values[:-1])
        keys, counts = torch.unique_consecutive(keys[fresh], return_counts=True)
        return cls(keys, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), values[fresh])

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

    ids: Sequence[str]
    labels: Sequence[str] | None = None  # human-readable names, one per id, where the source has them
    kind: str = "entity"

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, index: int) -> str:
        """What to show a person."""
        return self.labels[index] if self.labels is not None else self.ids[index]

    def titles(self) -> Sequence[str]:
        """Names for people where they tell everything apart, identifiers otherwise."""
        return self.labels if self.labels is not None and len(set(self.labels)) == len(self) else self.ids

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.ids)}

    @cached_property
    def _by_label(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, text in enumerate(self.labels or ()):
            found.setdefault(text, []).append(index)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._by_id or name in self._by_label

    def index(self, name: str) -> int:
        """The id of a name (identifier first, then label); a near miss gets a hint."""
        if name in self._by_id:
            return self._by_id[name]
        matches = self._by_label.get(name, [])
        if len(matches) == 1:
            return matches[0]
        if matches:
            some = ", ".join(self.ids[index] for index in matches[:5])
            raise HarmoniumError(f"{len(matches)} of the {self.kind} names are '{name}'; use an identifier: {some}")
        near = self.nearest(name)
        hint = f"; did you mean {', '.join(repr(n) for n in near)}?" if near else ""
        raise HarmoniumError(f"no {self.kind} named '{name}' among {len(self):,}{hint}")

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """The known names most like this one."""
        from rapidfuzz import fuzz, process, utils

        names = [self.name(index) for index in range(len(self))]
        found = process.extract(
            name, names, scorer=fuzz.WRatio, processor=utils.default_process, limit=count, score_cutoff=60
        )
        return [match for match, _, _ in found]


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

    def facts(self, splits: Sequence[str] = SPLITS) -> Triples:
        """The triples of several splits together."""
        return Triples.cat([getattr(self, split) for split in splits])

    def answers(self, slot: Slot, splits: Sequence[str] = SPLITS) -> Answers:
        """The index of known fillers of one slot."""
        facts = self.facts(splits)
        empty = Answers(slot, Groups.build(facts.head[:0], facts.head[:0]), self.n_entities)
        return replace(empty, groups=Groups.build(empty.keys(facts), facts[slot]))

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
