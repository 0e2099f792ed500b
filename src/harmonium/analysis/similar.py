"""Who is like an entity: in general, or as it is in one fact, and why.

In general entities are alike by the cosine of their vectors. As it is in a fact (Bob Dylan as one whose profession is disc
jockey), the candidates are the entities seen in that place, by the distance of their tokens (answers/tokens.py): those
come first that play the role too, and among them those that are like X in what the role is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.tokens import FAITHFULNESS
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, whole_number
from harmonium.grammar.family import readable
from harmonium.run.run import Run
from harmonium.runtime.displayed import Part, Styled, Table, one_line
from harmonium.runtime.frames import Tabular

SHARED = 3  # facts in common that are listed


def similar(
    run: Run | OpenRun | str | Path,
    entity: str,
    relation: str | None = None,
    tail: str | None = None,
    *,
    head: str | None = None,
    top: int = 10,
    faithfulness: float = FAITHFULNESS,
) -> Similar:
    """The `top` entities most like an entity: in general, or as it is in one fact, with the facts that they share.

    With a relation and a tail: as the head of that fact, which need not be known. With a relation and a head: as its tail.
    `faithfulness` (lambda) says what counts: with inf likeness in the role alone, with a small one who plays it.

    >>> harmonium.similar("runs/demo", "Copper")
    >>> run.similar("Switzerland", relation="official language", tail="French")
    >>> run.similar("French", relation="official language", head="Switzerland")
    """
    opened, top = open_run(run), whole_number("top", top, least=1)
    index = opened.graph.entities.index(entity)
    if relation is None:
        if head is not None or tail is not None:
            raise HarmoniumError("a fact needs a relation too: relation=... with tail=... or head=...")
        return _in_general(opened, index, top)
    if (head is None) == (tail is None):
        raise HarmoniumError("a role is a relation with either a tail (the entity is the head) or a head")
    if tail is not None:
        return _in_role(opened, opened.graph.triple(entity, relation, tail), Slot.HEAD, top, faithfulness)
    assert head is not None
    return _in_role(opened, opened.graph.triple(head, relation, entity), Slot.TAIL, top, faithfulness)


@dataclass(frozen=True)
class Alike:
    """An entity like another one."""

    id: str
    name: str
    similarity: float  # cosine of the vectors: of the entities, or of the two facts
    truth: float | None  # how well this entity fits the role, 0 to 1; 1 where it is known to play it
    known: bool | None  # whether that is a known fact
    shared: tuple[str, ...]  # facts in common, the rarest first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Similar(Tabular):
    """The entities most like one, the most alike first."""

    entity: str
    role: tuple[str, str, str] | None  # the fact in which it is looked at; None: in general
    entities: list[Alike]

    def __len__(self) -> int:
        return len(self.entities)

    def __iter__(self) -> Iterator[Alike]:
        return iter(self.entities)

    def __getitem__(self, position: int) -> Alike:
        return self.entities[position]

    def __repr__(self) -> str:
        return one_line(self, self.title, ", ".join(alike.name for alike in self.entities[:3]))

    @property
    def title(self) -> str:
        return f"most like {self.entity}" + (f" as in ({', '.join(self.role)})" if self.role else "")

    def records(self) -> list[dict[str, Any]]:
        return [alike.to_json() for alike in self.entities]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def display(self) -> Iterator[Part]:
        if self.role is None:
            rows = [[e.name, f"{e.similarity:.2f}", "; ".join(e.shared)] for e in self.entities]
            yield Table(self.title, ["entity", "alike", "both"], rows, "alike: cosine of their vectors")
            return
        rows = [_cells(alike) for alike in self.entities]
        caption = (
            "✓ a known fact; in role: how well it fits there; alike: cosine of the two facts; nearest tokens first"
        )
        yield Table(self.title, ["entity", "in role", "alike", "both"], rows, caption)


def _cells(alike: Alike) -> list[Any]:
    """Of the table of a role."""
    name = Styled(f"{'✓' if alike.known else ' '} {alike.name}", "green" if alike.known else "")
    in_role = "known" if alike.known else f"{alike.truth:.2f}"
    return [name, in_role, f"{alike.similarity:.2f}", "; ".join(alike.shared)]


def _in_general(opened: OpenRun, index: int, top: int) -> Similar:
    vectors = F.normalize(opened.vectors.entities.detach().float(), dim=1)
    cosine = vectors @ vectors[index]
    cosine[index] = -torch.inf
    best = cosine.topk(min(top, len(cosine) - 1))
    shared, names = SharedFacts(opened), opened.graph.entities
    entities = [
        Alike(names.ids[other], names.name(other), value, None, None, shared.words(index, other))
        for other, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return Similar(names.name(index), None, entities)


@torch.no_grad()
def _in_role(opened: OpenRun, fact: Triples, slot: Slot, top: int, faithfulness: float) -> Similar:
    graph, entity, end = opened.graph, int(fact[slot]), int(fact[_opposite(slot)])
    candidates = torch.cat([graph.slot_candidates(slot).lookup(fact.relation)[1], fact[slot]]).unique()
    candidates = candidates[(candidates != end) | (candidates == entity)]
    facts = {s: candidates if s is slot else fact[s].expand(len(candidates)) for s in Slot}
    known = opened.known(slot).contain(Triples(*(facts[s] for s in Slot)))
    role, is_entity = opened.tokens.role(slot, fact, candidates, known), candidates == entity
    tokens = role.tokens(faithfulness)
    distance = torch.linalg.vector_norm(tokens - tokens[is_entity], dim=1).masked_fill_(is_entity, torch.inf)
    nearest = distance.topk(min(top, len(candidates) - 1), largest=False).indices
    cosine = role.composed[nearest] @ role.composed[is_entity][0]
    shared, names = SharedFacts(opened), graph.entities
    value = int(fact.relation), slot, end  # which all who play the role have
    columns = candidates[nearest], cosine, role.truth[nearest], known[nearest]
    entities = [
        Alike(names.ids[other], names.name(other), alike, truth, is_known, shared.words(entity, other, value))
        for other, alike, truth, is_known in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return Similar(names.name(entity), graph.names_of(fact)[0], entities)


def _opposite(slot: Slot) -> Slot:
    return Slot.TAIL if slot is Slot.HEAD else Slot.HEAD


Value = tuple[int, Slot, int]  # relation, slot of the entity, other end


@dataclass(frozen=True, eq=False)
class SharedFacts:
    """What two entities are both known for."""

    opened: OpenRun

    def words(self, one: int, other: int, skipped: Value | None = None) -> tuple[str, ...]:
        """The facts that both are in, in the same slot and with the same other end; the rarest first."""
        shared = (self.values(one) & self.values(other)) - {skipped}
        ordered = sorted(shared, key=lambda value: (self.count(value), value))
        return tuple(map(self.text, ordered[:SHARED]))

    def values(self, entity: int) -> set[Value]:
        """Those of an entity; a symmetric relation counts in one direction."""
        values: set[Value] = set()
        for slot in (Slot.HEAD, Slot.TAIL):
            facts = self.facts[(self.facts[slot] == entity).nonzero().flatten()]
            ends = zip(facts.relation.tolist(), facts[_opposite(slot)].tolist(), strict=True)
            values |= {(r, Slot.HEAD if self.symmetric[r] else slot, end) for r, end in ends}
        return values

    @cached_property
    def facts(self) -> Triples:
        return self.opened.graph.facts()

    @cached_property
    def symmetric(self) -> list[bool]:
        symmetric: list[bool] = self.opened.traits.symmetric.tolist()
        return symmetric

    def count(self, value: Value) -> int:
        """How many entities have the value."""
        relation, slot, end = value
        return len(self.opened.known(slot).of(Triples.from_rows([[end, relation, end]]))[1])

    def text(self, value: Value) -> str:
        """`borders: Austria` of a head, `capital of Austria` of a tail: the entity itself is left out."""
        relation, slot, end = value
        name, title = self.opened.graph.entities.name(end), readable(self.opened.graph.relations.name(relation))
        return f"{title}: {name}" if slot is Slot.HEAD else f"{title} of {name}"
