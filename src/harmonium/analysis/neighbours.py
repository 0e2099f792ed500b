"""The nearest triplets to one when one slot changes, by composed vector and by token.

A guise is an entity as it appears in one triple, among the entities that could take its place: that of Switzerland in
(Switzerland, official language, French) stands among the triplets (e, official language, French). Tokens differ by S times
what composed vectors differ by, so the same entity has other neighbours in each of its guises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.open_run import OpenRun
from harmonium.answers.tokens import FAITHFULNESS, TokenSpace
from harmonium.data.graph import Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.ranking import rank
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import EmbeddingScorer
from harmonium.runtime.displayed import Line, Part, Styled, Table, one_line
from harmonium.runtime.frames import Tabular


@dataclass(frozen=True)
class Neighbour:
    """A triplet near another: the entity in the slot that changes, and its distance."""

    id: str  # unambiguous where names repeat
    name: str
    distance: float
    true: bool  # the triplet is a known fact
    rank: float  # filtered rank of the entity among the answers for the slot


@dataclass(frozen=True)
class Neighbourhood(Tabular):
    """The nearest triplets by composed vector and, for a Gradient Graph, by token."""

    triple: tuple[str, str, str]
    slot: Slot
    composed: list[Neighbour]
    token: list[Neighbour]
    true: bool  # the triple itself is a known fact
    rank: float

    def __repr__(self) -> str:
        return one_line(self, *self.triple, f"{self.slot}s near it: {_names(self.token or self.composed)}")

    @property
    def columns(self) -> dict[str, list[Neighbour]]:
        """Titles and neighbours, to show side by side."""
        columns = {"nearest composed": self.composed, "nearest token": self.token}
        return {title: neighbours for title, neighbours in columns.items() if neighbours}

    def display(self) -> Iterator[Part]:
        rank = f"#{self.rank:,g}, {'true' if self.true else 'not a known fact'}"
        return _display(self.triple, self.slot, self.columns, f"the triplet itself: {rank}")

    def records(self) -> list[dict[str, Any]]:
        return _records(composed=self.composed, token=self.token)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _display(
    triple: tuple[str, str, str], slot: Slot, columns: dict[str, list[Neighbour]], note: str
) -> Iterator[Part]:
    """Neighbours in several spaces side by side; true facts in green with a tick."""

    def cell(near: Neighbour) -> Styled:
        text = f"{'✓' if near.true else ' '} {near.name}  {near.distance:.3f} #{near.rank:,g}"
        return Styled(text, "green" if near.true else "")

    title = f"{triple[0 if slot == 'head' else 2]} in ({', '.join(triple)})"
    if not any(columns.values()):
        yield Line(f"{title}: no other entity was seen in that slot; --no-typed compares with all entities")
        return
    rows = list(zip(*([cell(neighbour) for neighbour in near] for near in columns.values()), strict=True))
    hits = ", ".join(f"{sum(n.true for n in near)} of {len(near)} {name}" for name, near in columns.items())
    caption = f"✓ a known fact with that entity instead: {hits}\n  distance #rank as an answer; {note}"
    yield Table(title, list(columns), rows, caption)


def _names(neighbours: list[Neighbour]) -> str:
    return ", ".join(neighbour.name for neighbour in neighbours[:3])


def _records(**spaces: list[Neighbour]) -> list[dict[str, Any]]:
    """Neighbours in several spaces as rows of one table."""
    return [
        {"space": space, "position": position, **asdict(neighbour)}
        for space, neighbours in spaces.items()
        for position, neighbour in enumerate(neighbours, start=1)
    ]


@torch.no_grad()
def nearest_triples(
    model: GradientGraph, graph: Graph, triple: Triples, slot: Slot = Slot.HEAD, count: int = 5, typed: bool = True
) -> Neighbourhood:
    """The `count` nearest triplets to a triple (one row) when `slot` changes."""
    return Guise(model, graph, triple, slot, typed).neighbourhood(count)


def guise_of(opened: OpenRun, triple: Triples, slot: Slot = Slot.HEAD, typed: bool = True) -> Guise:
    """A guise in an opened run: its tokens are those of W where the model was trained with one, as in the paper."""
    space = None if isinstance(opened.model.form, Harmony) else opened.tokens
    return Guise(opened.model, opened.graph, triple, slot, typed, space)


@dataclass(frozen=True)
class Guise:
    """An entity in one slot of one triple, and the candidates for that slot."""

    model: GradientGraph
    graph: Graph
    triple: Triples  # one row
    slot: Slot = Slot.HEAD
    typed: bool = True  # candidates: only entities seen in that slot of the relation, in any split
    space: TokenSpace | None = None  # of tokens with a truth unit; None: those of the model's W, if it has one
    faithfulness: float = FAITHFULNESS  # of the space

    def __post_init__(self) -> None:
        if self.slot is Slot.RELATION:
            raise HarmoniumError("neighbourhoods are of entities: choose the slot head or tail")

    @cached_property
    def candidates(self) -> Tensor:
        """(n,): the entities that may fill the slot, the entity itself included."""
        if not self.typed:
            return torch.arange(self.graph.n_entities)
        seen = self.graph.slot_candidates(self.slot).lookup(self.triple.relation)[1]
        candidates: Tensor = torch.cat([seen, self.triple[self.slot]]).unique()
        return candidates

    @cached_property
    def is_entity(self) -> Tensor:
        """(n,) bool: which candidate is the entity itself."""
        return self.candidates == self.triple[self.slot]

    @cached_property
    def known(self) -> KnownAnswers:
        return self.graph.known_answers(self.slot)

    @cached_property
    def is_fact(self) -> Tensor:
        """(n,) bool: whether the triplet with each candidate is a known fact."""
        return self.known.contain(self.triplets(self.candidates))

    @cached_property
    def scorer(self) -> EmbeddingScorer:
        return self.model.prepare()

    @cached_property
    def composed(self) -> Tensor:
        """(n, dim): the composed vector of the triplet with each candidate."""
        return self.scorer.slot_map(self.slot, self.triple).apply(self.scorer.entities[self.candidates])

    @property
    def spaces(self) -> dict[str, Tensor]:
        """(n, dim): composed vectors and tokens, these up to a common shift; a plain model without a space has no tokens."""
        if self.space is not None:
            role = self.space.role(self.slot, self.triple, self.candidates, self.is_fact)
            return {"composed": role.composed, "token": role.tokens(self.faithfulness)}
        if isinstance(self.model.form, Harmony):
            return {"composed": self.composed, "token": self.composed @ self.model.form.token_map()}
        return {"composed": self.composed}

    @property
    def title(self) -> tuple[str, str, str]:
        return self.graph.names_of(self.triple)[0]

    def triplets(self, entities: Tensor) -> Triples:
        """(n,): the triple with each of the entities in the slot."""
        columns = {s: entities if s is self.slot else self.triple[s].repeat(len(entities)) for s in Slot}
        return Triples(columns[Slot.HEAD], columns[Slot.RELATION], columns[Slot.TAIL])

    def ranks(self, entities: Tensor) -> list[float]:
        """The filtered rank of each entity as an answer for the slot."""
        candidates = self.graph.slot_candidates(self.slot) if self.typed else None
        ranks = rank(self.scorer, self.triplets(entities), self.slot, self.known, candidates)
        return list(ranks.values().tolist())

    def nearest(self, vectors: Tensor, count: int, centre: Tensor | None = None) -> list[Neighbour]:
        """The `count` candidates whose vectors (n, any) are nearest to a centre (default: the entity's), itself excluded."""
        centre = vectors[self.is_entity] if centre is None else centre
        distance = torch.linalg.vector_norm(vectors - centre, dim=-1)
        distance[self.is_entity] = torch.inf
        nearest = distance.topk(min(count, len(self.candidates) - 1), largest=False)
        if not len(nearest.indices):
            return []
        entities, names = self.candidates[nearest.indices], self.graph.entities
        is_fact = self.is_fact[nearest.indices].tolist()
        rows = zip(entities.tolist(), nearest.values.tolist(), is_fact, self.ranks(entities), strict=True)
        return [Neighbour(names.ids[entity], names.name(entity), *rest) for entity, *rest in rows]

    @torch.no_grad()
    def neighbourhood(self, count: int = 5) -> Neighbourhood:
        """The nearest candidates in each space."""
        nearest = {space: self.nearest(vectors, count) for space, vectors in self.spaces.items()}
        is_fact, entity_rank = bool(self.is_fact[self.is_entity]), self.ranks(self.triple[self.slot])[0]
        return Neighbourhood(self.title, self.slot, nearest["composed"], nearest.get("token", []), is_fact, entity_rank)
