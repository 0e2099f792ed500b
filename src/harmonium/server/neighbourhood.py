"""The neighbourhood of an entity: its facts by relation, and what two entities have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.server.name_search import GraphNames
from harmonium.server.results import Fact, RelationGroup, Role, Roles

MAX_ROLES = 200  # listed in each part of a comparison
RoleKey = tuple[int, Slot, int]  # relation, slot of the entity, other entity


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """The facts of each entity."""

    graph: Graph
    names: GraphNames
    traits: RelationTraits

    @cached_property
    def by_entity(self) -> CsrIndex:
        """entity -> positions in `graph.facts()`."""
        facts = self.graph.facts()
        return CsrIndex.build(torch.cat([facts.head, facts.tail]), torch.arange(len(facts)).repeat(2))

    @cached_property
    def by_relation(self) -> CsrIndex:
        """relation -> positions in `graph.facts()`."""
        facts = self.graph.facts()
        return CsrIndex.build(facts.relation, torch.arange(len(facts)))

    def positions(self, entity: int | None, relation: int | None) -> Tensor:
        """The facts of an entity, of a relation, or of both: positions in `graph.facts()`."""
        if entity is None:
            assert relation is not None, "an entity or a relation is given"
            return self.by_relation.lookup(torch.tensor([relation]))[1]
        positions = self.by_entity.lookup(torch.tensor([entity]))[1]
        return positions if relation is None else positions[self.graph.facts().relation[positions] == relation]

    def groups(self, entity: int, limit: int) -> list[RelationGroup]:
        """The facts of an entity by relation and slot, largest group last; each with its `limit` most connected entities."""
        by_group: dict[tuple[int, Slot], list[int]] = {}
        for relation, slot, other in self.roles(entity):
            by_group.setdefault((relation, slot), []).append(other)
        groups = []
        for (relation, slot), others in sorted(by_group.items(), key=lambda item: len(item[1])):
            shown = sorted(others, key=lambda other: -self.names.entities.counts[other])[:limit]
            pairs = [(entity, other) if slot is Slot.HEAD else (other, entity) for other in shown]
            facts = self.facts(Triples.from_rows([[head, relation, tail] for head, tail in pairs]))
            groups.append(RelationGroup(self.names.relations.named(relation), slot, len(others), facts))
        return groups

    def roles(self, entity: int) -> dict[RoleKey, None]:
        """Roles of an entity (relation, slot, other entity) in the order of its facts; symmetric relations have one slot."""
        keys: dict[RoleKey, None] = {}
        for head, relation, tail in self.graph.facts()[self.positions(entity, None)].to_rows().tolist():
            if head == entity or self.traits.symmetric[relation]:
                keys[relation, Slot.HEAD, tail if head == entity else head] = None
            else:
                keys[relation, Slot.TAIL, head] = None
        return keys

    def facts(self, triples: Triples) -> list[Fact]:
        """Triples by name, with their splits; a fact of a symmetric relation may be stored in either direction."""
        reversed = self.graph.splits_of(Triples(triples.tail, triples.relation, triples.head))
        rows = zip(triples.to_rows().tolist(), self.graph.splits_of(triples), reversed, strict=True)
        return [
            Fact(*self.names.of(row), split or (other if self.traits.symmetric[row[1]] else None))
            for row, split, other in rows
        ]

    def compare(self, first: int, second: int) -> tuple[Roles, Roles, Roles]:
        """The roles that both entities have, those of the first only, and those of the second only."""
        of_first, of_second = self.roles(first), self.roles(second)
        return (
            self._named(key for key in of_first if key in of_second),
            self._named(key for key in of_first if key not in of_second),
            self._named(key for key in of_second if key not in of_first),
        )

    def _named(self, keys: Iterator[RoleKey]) -> Roles:
        listed = list(keys)
        relations, entities = self.names.relations, self.names.entities
        roles = [Role(relations.named(r), slot, entities.named(other)) for r, slot, other in listed[:MAX_ROLES]]
        return Roles(len(listed), roles)


def similarity(vectors: Tensor, first: int, second: int) -> tuple[float, int]:
    """The cosine of two rows of the vectors (n, dim), and the rank of the second among the others by it."""
    cosine = F.normalize(vectors.float(), dim=1) @ F.normalize(vectors[first].float(), dim=0)
    nearer = cosine > cosine[second]
    nearer[first] = False
    return float(cosine[second].clamp(-1, 1)), int(nearer.sum()) + 1
