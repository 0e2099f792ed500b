"""A knowledge graph: vocabularies, facts in three splits, and facts known to be false."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex, KnownAnswers, is_member
from harmonium.data.literals import Literals
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.runtime.displayed import Displayed, Line, Part, Table, more_rows, notes
from harmonium.runtime.frames import to_pandas
from harmonium.runtime.untrusted import harmless

if TYPE_CHECKING:
    import polars

SPLITS = ("train", "valid", "test")
FACTS_PER_CHUNK = 1 << 22  # indexed at a time
LARGE_GRAPH = 1_000_000  # facts from which counting relations is left out of the default display


@dataclass(frozen=True)
class Note:
    """Something a user should know about how a graph was read; `count` is the number in the text."""

    text: str
    kind: str = ""  # such as "repeated": `count` triples of `split` were dropped
    split: str = ""
    count: int = 0

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str | dict[str, Any]:
        return asdict(self) if self.kind else self.text

    @classmethod
    def from_json(cls, value: Any) -> Note:
        if not isinstance(value, dict):
            return cls(str(value))
        return cls(str(value["text"]), str(value["kind"]), str(value["split"]), int(value["count"]))


@dataclass(frozen=True, repr=False)
class Graph(Displayed):
    """A knowledge graph: the names of its entities and relations, and its facts in three splits.

    >>> graph = harmonium.load("atlas")
    >>> graph.n_entities, len(graph.train)
    """

    entities: Vocabulary
    relations: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    name: str = "graph"
    notes: tuple[Note, ...] = ()  # for the user, such as duplicates that were dropped
    rejected: Triples = field(default_factory=lambda: Triples.from_rows([]))  # known to be false: never proposed
    reading: str = ""  # of a table: which columns became head, relation and tail, with an example

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        return len(self.relations)

    @cached_property
    def n_train_queries(self) -> int:
        """The distinct queries (head, relation, ?) and (?, relation, tail) that training facts answer."""
        known, n = (self.train.head, self.train.tail), self.n_relations
        return sum(len((entity * n + self.train.relation).unique()) for entity in known)

    @cached_property
    def literals(self) -> Literals:
        """Which entities are numbers or dates, and which relations have them as tails. Computed once."""
        return Literals.infer(self)

    @property
    def splits(self) -> dict[str, Triples]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def split(self, name: str) -> Triples:
        """A split by name; an unknown or empty one is an error that lists the others."""
        if name not in SPLITS:
            raise HarmoniumError(f"no split '{name}'; there are {', '.join(SPLITS)}")
        triples = self.splits[name]
        if not len(triples):
            others = ", ".join(f"{split} ({len(facts):,})" for split, facts in self.splits.items() if len(facts))
            raise HarmoniumError(f"the {name} split of '{self.name}' has no triples; it has {others or 'none at all'}")
        return triples

    def triple(self, head: str, relation: str, tail: str) -> Triples:
        """One triple from names."""
        return Triples.from_rows(
            [[self.entities.index(head), self.relations.index(relation), self.entities.index(tail)]]
        )

    def to_frame(self) -> polars.DataFrame:
        """The facts as a polars DataFrame: head, relation, tail and split; weights and labels where there are any."""
        from harmonium.data.tables.graph_source import to_table

        return to_table(self, SPLITS, alone=True)

    def to_pandas(self) -> Any:
        """The facts as a pandas DataFrame, with the columns of `to_frame`."""
        return to_pandas(self.to_frame().to_dict(as_series=False))

    def display(self, top: int | None = None) -> Iterator[Part]:
        """Its size, notes, and most frequent relations with an example.

        By default ten relations; none of a large graph, where counting them takes seconds.
        """
        sizes = ", ".join(f"{split} {len(facts):,}" for split, facts in self.splits.items())
        counts = f"{self.n_entities:,} entities, {self.n_relations:,} relations"
        yield Line(f"{self.name}: {counts}; {sizes}", "bold")
        if len(self.rejected):
            yield Line(f"facts recorded as false, which are never proposed: {len(self.rejected):,}")
        is_counted = top is not None or sum(map(len, self.splits.values())) <= LARGE_GRAPH
        if is_counted:
            unseen = {split: int(self.unseen(self.splits[split]).sum()) for split in ("valid", "test")}
            texts = ", ".join(f"{count:,} in {split}" for split, count in unseen.items())
            yield Line(f"facts with an entity that is not in train: {texts}")
        yield from notes(self.notes)
        if is_counted:
            rows = [
                [r["name"], r["train"], r["category"], " · ".join(r["example"] or ())]
                for r in self.by_relation(10 if top is None else top)
            ]
            columns = ["relation", "train", "category", "example"]
            yield Table("Relations", columns, rows, more_rows(self.n_relations - len(rows)))

    def by_relation(self, top: int | None = None) -> list[dict[str, Any]]:
        """Relations with their number of training facts, category and an example; most frequent first."""
        relation, size = self.train.relation, len(self.train)
        counts = relation.bincount(minlength=self.n_relations)
        first = torch.full((self.n_relations,), size).scatter_reduce_(0, relation, torch.arange(size), "amin")
        categories = self.categories()
        return [
            {
                "name": self.relations.name(r),
                "train": int(counts[r]),
                "category": categories[r],
                "example": self.names_of(self.train[first[r : r + 1]])[0] if counts[r] else None,
            }
            for r in counts.argsort(descending=True, stable=True)[:top].tolist()
        ]

    def fingerprint(self) -> str:
        """Sizes and a checksum of the ids and weights of all facts: equal when two processes train on the same graph."""
        crc = 0
        for triples in self.splits.values():
            for slot in Slot:
                crc = zlib.crc32(triples[slot].contiguous().numpy().data, crc)
            if triples.weight is not None:
                crc = zlib.crc32(triples.weight.contiguous().numpy().data, crc)
        return f"{self!r}, {crc:08x}"

    def facts(self, splits: Sequence[str] = SPLITS) -> Triples:
        """The triples of several splits together; those of a single split are not copied."""
        filled = [self.splits[split] for split in splits if len(self.splits[split])]
        return filled[0] if len(filled) == 1 else Triples.cat(filled or [self.train[:0]])

    def keep_known_answers(self, slot: Slot, splits: Sequence[str] = SPLITS) -> KnownAnswers:
        """Build the index of all known answers in one slot and keep it, so that `known_answers` returns it at once.

        It takes about as much memory as the facts: worth it for a graph that answers many queries.
        """
        key = slot, tuple(splits)
        if key not in self._kept:
            self._kept[key] = self.known_answers(slot, splits)
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[tuple[Slot, tuple[str, ...]], KnownAnswers]:
        return {}

    def known_answers(self, slot: Slot, splits: Sequence[str] = SPLITS, queries: Triples | None = None) -> KnownAnswers:
        """The index of known answers in one slot; restricted to those of `queries`, it takes far less memory.

        If the index of all answers is kept (`keep_known_answers`), it is that one.
        """
        if (kept := self._kept.get((slot, tuple(splits)))) is not None:
            return kept
        no_ids = self.train.head[:0]
        known = KnownAnswers(slot, CsrIndex(no_ids, no_ids.new_zeros(1), no_ids), self.n_entities)
        query_keys = None if queries is None else known.keys(queries).unique()
        keys, values = [no_ids], [no_ids]
        for split in splits:
            for chunk in self.splits[split].chunks(FACTS_PER_CHUNK):
                if query_keys is not None:
                    chunk = chunk[is_member(known.keys(chunk), query_keys)]
                keys.append(known.keys(chunk))
                values.append(chunk[slot])
        return KnownAnswers(slot, CsrIndex.build(torch.cat(keys), torch.cat(values)), self.n_entities)

    def splits_of(self, triples: Triples) -> list[str | None]:
        """The first split in which each triple is a fact, or None."""
        splits: list[str | None] = [None] * len(triples)
        for split in reversed(SPLITS):
            known = self.known_answers(Slot.TAIL, (split,), triples).contain(triples)
            for row in known.nonzero()[:, 0].tolist():
                splits[row] = split
        return splits

    def rejected_answers(self, slot: Slot) -> KnownAnswers:
        """The index of answers that are known to be false."""
        return KnownAnswers.build(slot, self.rejected, self.n_entities)

    def slot_candidates(self, slot: Slot, splits: Sequence[str] = SPLITS) -> CsrIndex:
        """relation -> entities seen in that slot of it: the candidates of a typed protocol."""
        key = slot, tuple(splits)
        if key not in self._slot_candidates:
            facts = self.facts(splits)
            self._slot_candidates[key] = CsrIndex.build(facts.relation, facts[slot])
        return self._slot_candidates[key]

    @cached_property
    def _slot_candidates(self) -> dict[tuple[Slot, tuple[str, ...]], CsrIndex]:
        return {}

    def unseen(self, triples: Triples) -> Tensor:
        """(n,) bool: which triples mention an entity that is in no training triple."""
        seen = torch.zeros(self.n_entities, dtype=torch.bool)
        seen[self.train.head] = True
        seen[self.train.tail] = True
        return ~(seen[triples.head] & seen[triples.tail])

    def categories(self) -> list[str]:
        """1-1, 1-N, N-1 or N-N for each relation: N where the mean number of answers in train is above 1.5."""
        letters = {}
        for slot in (Slot.HEAD, Slot.TAIL):
            index = self.known_answers(slot, ("train",)).index
            relation, count = index.keys // self.n_entities, index.offsets.diff().double()
            answers = torch.zeros(self.n_relations, dtype=torch.float64).index_add_(0, relation, count)
            queries = torch.bincount(relation, minlength=self.n_relations).clamp(min=1)
            letters[slot] = ["N" if many else "1" for many in (answers / queries > 1.5).tolist()]
        return [f"{head}-{tail}" for head, tail in zip(letters[Slot.HEAD], letters[Slot.TAIL], strict=True)]

    def names_of(self, triples: Triples) -> list[tuple[str, str, str]]:
        """Triples as readable names."""
        return [
            (self.entities.name(head), self.relations.name(relation), self.entities.name(tail))
            for head, relation, tail in triples.to_rows().tolist()
        ]

    def __repr__(self) -> str:
        counts = ", ".join(f"{split} {len(triples):,}" for split, triples in self.splits.items())
        return f"Graph '{harmless(self.name)}': {self.n_entities:,} entities, {self.n_relations:,} relations; {counts}"

    __str__ = __repr__  # error messages name graphs
