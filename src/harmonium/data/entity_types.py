"""Which entities could fill a slot of a relation, inferred from the other roles that entities have.

A role is a slot of a relation (head of "capital"), or a value of a relation that states types (`rdf:type`, "instance
of"). An entity is a candidate for a slot when it fills it, or when entities that share a role with it do, by a noisy-or:

    1 - product over its other roles of (1 - share),
    share(role, slot) = entities with the role that fill the slot / (entities with the role + 1),

at least as high as that of nearly all entities that fill the slot. How likely a candidate is to fill the slot also counts
the roles that are evidence against it (capitals that are never "located in" anything), by naive Bayes:

    log-odds = log(F / (N - F)) + sum over its other roles of log(P(role | fills) / P(role | does not)),

where F of N entities fill the slot. An entity that fills the slot is left out of the counts when it is scored itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot

TYPE_RELATIONS = {
    "type",
    "rdftype",
    "instanceof",
    "isa",
    "p31",
}  # names of relations that state types, or the last parts of their IRIs; only letters and digits are compared
ROLE_PRIOR_FAILURES = 1  # entities with each role that are assumed not to fill the slot
FILLER_QUANTILE = 0.05  # a candidate needs the likelihood that all but this share of the known fillers of a slot reach
MAX_CANDIDATES_KEPT = 1 << 24  # of all slots together, in memory: 280 MB
MIN_NEEDED, MAX_NEEDED = 0.03, 0.3  # bounds of the likelihood that a candidate needs


@dataclass(frozen=True)
class SlotTypes:
    """The candidates for one slot of a relation."""

    entities: Tensor  # (m,) ascending ids
    fills: Tensor  # (m,) bool: whether each fills the slot in some fact
    log_odds: Tensor  # (m,) float64: that each fills the slot, by its other roles

    def where(self, mask: Tensor) -> SlotTypes:
        return SlotTypes(self.entities[mask], self.fills[mask], self.log_odds[mask])

    def union(self, other: SlotTypes) -> SlotTypes:
        """Candidates for either of two slots, each with the larger of its log-odds."""
        entities, row = torch.cat([self.entities, other.entities]).unique(return_inverse=True)
        fills, log_odds = torch.cat([self.fills, other.fills]), torch.cat([self.log_odds, other.log_odds])
        best = torch.full((len(entities),), -torch.inf, dtype=torch.float64).scatter_reduce_(0, row, log_odds, "amax")
        return SlotTypes(
            entities, torch.zeros(len(entities), dtype=torch.bool).index_put_((row[fills],), torch.tensor(True)), best
        )

    def limited(self, count: int) -> SlotTypes:
        """The entities that fill the slot, and the `count` most likely others (lowest ids first on ties)."""
        order = self.log_odds.masked_fill(self.fills, torch.inf).argsort(descending=True, stable=True)
        keep = torch.zeros_like(self.fills).index_fill_(0, order[: int(self.fills.sum()) + count], True)
        return self.where(keep)


@dataclass(frozen=True)
class EntityTypes:
    """The roles of all entities. Roles are numbered: head slots of all relations, tail slots, then stated types."""

    n_entities: int
    n_relations: int
    roles: CsrIndex  # entity -> its roles, except head slots of relations that state types: the stated type tells more
    members: CsrIndex  # role -> the entities that have it
    sizes: Tensor  # (roles,) int64: number of entities with each role
    has_loops: Tensor  # (n_relations,) bool: whether a fact of the relation has the same head and tail

    @classmethod
    def infer(cls, graph: Graph, splits: Sequence[str] = SPLITS) -> EntityTypes:
        """Collect the roles that entities have in the facts of these splits."""
        facts, n_slots = graph.facts(splits), 2 * graph.n_relations
        stated = torch.isin(facts.relation, torch.tensor(type_relations(graph), dtype=torch.int64))
        types, number = torch.unique(facts.tail[stated], return_inverse=True)
        entity = torch.cat([facts.head, facts.tail, facts.head[stated]])
        role = torch.cat([facts.relation, facts.relation + graph.n_relations, n_slots + number])
        members = CsrIndex.build(role, entity)
        sizes = torch.zeros(n_slots + len(types), dtype=torch.int64).index_put((members.keys,), members.offsets.diff())
        telling = torch.cat([~stated, torch.ones(len(entity) - len(stated), dtype=torch.bool)])
        roles = CsrIndex.build(entity[telling], role[telling])
        loops = facts.relation[facts.head == facts.tail]
        has_loops = torch.zeros(graph.n_relations, dtype=torch.bool).index_fill_(0, loops, True)
        return cls(graph.n_entities, graph.n_relations, roles, members, sizes, has_loops)

    def of_slot(self, slot: Slot, relation: int, typed: bool = True) -> SlotTypes:
        """The entities that could fill a slot of a relation; all entities if no fact fills it yet, or if not `typed`.

        Kept for the next call, up to MAX_CANDIDATES_KEPT.
        """
        key = slot, relation, typed
        types = self._kept.get(key)
        if types is None:
            types = self._infer_slot(slot, relation, typed)
            n_kept = sum(len(kept.entities) for kept in list(self._kept.values()))
            if n_kept + len(types.entities) <= MAX_CANDIDATES_KEPT:
                self._kept[key] = types
        return types

    @cached_property
    def _kept(self) -> dict[tuple[Slot, int, bool], SlotTypes]:
        return {}

    def _infer_slot(self, slot: Slot, relation: int, typed: bool) -> SlotTypes:
        target = relation if slot is Slot.HEAD else relation + self.n_relations
        members = self.members.lookup(torch.tensor([target]))[1]
        row, role = self.roles.lookup(members)
        both = role.bincount(minlength=len(self.sizes)).double()  # entities that have each role and fill the slot
        fills = torch.zeros(self.n_entities, dtype=torch.bool).index_fill_(0, members, True)
        log_odds = self._prior(target) + self._sum(self._evidence(target, both))
        evidence = _sum_by_row(self._evidence(target, both, without=1)[role], row, len(members))
        log_odds[members] = self._prior(target, without=1) + evidence
        everyone = SlotTypes(torch.arange(self.n_entities), fills, log_odds)
        if not typed or not len(members):
            return everyone
        shares = both / (self.sizes + ROLE_PRIOR_FAILURES)
        support = self._sum(_log_complements(shares, target))  # log of one minus the noisy-or
        shares = (both - 1) / (self.sizes - 1 + ROLE_PRIOR_FAILURES).clamp(min=1)
        support_of_members = _sum_by_row(_log_complements(shares, target)[role], row, len(members))
        ascending = (-torch.expm1(support_of_members)).sort().values
        needed = ascending[int(FILLER_QUANTILE * len(members))].clamp(MIN_NEEDED, MAX_NEEDED)
        return everyone.where(fills | (-torch.expm1(support) >= needed))

    def _prior(self, target: int, without: int = 0) -> float:
        """The log-odds that an entity fills a slot, with `without` of the entities that fill it left out."""
        n_fill = max(0, int(self.sizes[target]) - without)
        return math.log((n_fill + 0.5) / (len(self.roles.keys) - n_fill + 0.5))

    def _evidence(self, target: int, both: Tensor, without: int = 0) -> Tensor:
        """(roles,): log of P(role | fills the slot) / P(role | does not), smoothed; 0 for the slot itself.

        `both` (roles,) counts entities that have the role and fill the slot; `without` of them count as not filling it.
        """
        n_fill, n_others = self.sizes[target] - without, len(self.roles.keys) - self.sizes[target] + without
        fill = (both - without + 0.5) / (n_fill + 1)
        others = (self.sizes - both + without + 0.5) / (n_others + 1)
        evidence = torch.log(fill.clamp(min=1e-9)) - torch.log(others)
        evidence[target] = 0.0
        return evidence

    def _sum(self, values: Tensor) -> Tensor:
        """(n_entities,): the sum of values (roles,) over the roles of each entity."""
        return _sum_by_row(values[self.roles.values], self._entity, self.n_entities)

    @cached_property
    def _entity(self) -> Tensor:
        """(pairs,): the entity of each of `roles.values`."""
        return torch.repeat_interleave(self.roles.keys, self.roles.offsets.diff())

    def candidates(self, slot: Slot, relations: Tensor) -> CsrIndex:
        """Index from each of these relations to the candidates for its slot."""
        keys = relations.unique()
        entities = [self.of_slot(slot, relation).entities for relation in keys.tolist()]
        counts = torch.tensor([0, *map(len, entities)])
        return CsrIndex(keys, counts.cumsum(0), torch.cat([*entities, keys[:0]]))


def _log_complements(shares: Tensor, target: int) -> Tensor:
    """(roles,): log(1 - share); 0 for the target."""
    values = torch.log1p(-shares.double().clamp(0, 1 - 1e-6))
    values[target] = 0.0
    return values


def _sum_by_row(values: Tensor, row: Tensor, n_rows: int) -> Tensor:
    """(n_rows,): the sum of the values (pairs,) of each row."""
    return values.new_zeros(n_rows).index_add_(0, row, values)


def type_relations(graph: Graph) -> list[int]:
    """The relations whose tail states a type of the head, by their names."""

    def is_type(name: str) -> bool:
        last_part = re.split("[/#]", name.rstrip(">"))[-1]
        return not TYPE_RELATIONS.isdisjoint(re.sub(r"[\W_]", "", part).casefold() for part in (name, last_part))

    names = graph.relations
    return [relation for relation in range(len(names)) if is_type(names.ids[relation]) or is_type(names.name(relation))]
