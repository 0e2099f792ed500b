"""Path rules: a relation holds where paths of other facts connect two entities. Steps, walks along them, and the scorer.

    score(h, r, t) = sum over the rules of r: weight * log2(1 + number of walks from h to t along the steps of the rule)

A step r < R follows relation r from head to tail, r + R from tail to head. The steps of a rule are its body:
(born_in, located_in) for "born in a place that is located in". A walk does not return to its start, so that none uses a
fact between its two ends except where a rule has a single step. Rules have weights of their own for heads and for tails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.model.scoring import Scorer

Body = tuple[int, ...]
BLOCK = 1 << 21  # pairs of a query and an entity whose walks are counted at once
OTHER_END = {Slot.HEAD: Slot.TAIL, Slot.TAIL: Slot.HEAD}


def steps_between(facts: Triples, n_relations: int) -> CsrIndex:
    """entity -> neighbour * number of steps + the step to it."""
    n_steps = 2 * n_relations
    forwards = facts.tail * n_steps + facts.relation
    backwards = facts.head * n_steps + facts.relation + n_relations
    return CsrIndex.build(torch.cat([facts.head, facts.tail]), torch.cat([forwards, backwards]))


@dataclass(frozen=True)
class Steps:
    """Facts as steps between entities, in both directions."""

    index: CsrIndex  # step * n_entities + entity -> the entities that the step leads to
    n_entities: int
    n_relations: int

    @classmethod
    def build(cls, facts: Triples, n_entities: int, n_relations: int) -> Steps:
        forwards, backwards = facts.relation, facts.relation + n_relations
        keys = torch.cat([forwards * n_entities + facts.head, backwards * n_entities + facts.tail])
        return cls(CsrIndex.build(keys, torch.cat([facts.tail, facts.head])), n_entities, n_relations)

    def to(self, device: torch.device | str) -> Steps:
        return Steps(self.index.to(device), self.n_entities, self.n_relations)

    def reverse(self, body: Body) -> Body:
        """The same path, walked from its other end."""
        return tuple((step + self.n_relations) % (2 * self.n_relations) for step in reversed(body))

    def from_known_end(self, bodies: Sequence[Body], open_slot: Slot) -> list[Body]:
        """Bodies, which lead from head to tail, as walked from the given entity of a query to its open slot."""
        return [body if open_slot is Slot.TAIL else self.reverse(body) for body in bodies]

    def count_walks(
        self, bodies: Sequence[Body], starts: Tensor, hidden: tuple[int, Tensor] | None = None
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """For each body that leads anywhere: its number, the pairs it connects, and the number of walks between them.

        A pair is row * n_entities + entity, for a row of starts (m,). Bodies with the same first steps share their walks.
        `hidden`, a step and the entity (m,) that it leads to from each start, is not taken.
        """
        merge = _WalkCounts(len(starts) * self.n_entities, starts.device)
        rows = torch.arange(len(starts), device=starts.device)
        pairs, walks = rows * self.n_entities + starts, torch.ones(len(starts), device=starts.device)
        yield from self._walk(_Prefix.tree(bodies), pairs, walks, starts, hidden, merge)

    def _walk(
        self,
        prefix: _Prefix,
        pairs: Tensor,
        walks: Tensor,
        starts: Tensor,
        hidden: tuple[int, Tensor] | None,
        merge: _WalkCounts,
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        row, entity = pairs // self.n_entities, pairs % self.n_entities
        for step, longer in prefix.next.items():
            source, reached = self.index.lookup(step * self.n_entities + entity)
            reached_row = row[source]
            allowed = reached != starts[reached_row]
            if hidden is not None and not prefix.depth and step == hidden[0]:
                allowed &= reached != hidden[1][reached_row]
            ends, counts = (reached_row * self.n_entities + reached)[allowed], walks[source][allowed]
            if not len(ends):
                continue
            if prefix.depth:  # beyond the first step several walks may meet
                ends, counts = merge(ends, counts)
            if longer.rule is not None:
                yield longer.rule, ends, counts
            if longer.next:
                yield from self._walk(longer, ends, counts, starts, hidden, merge)


@dataclass
class _Prefix:
    """The first steps of bodies: how many, how the bodies continue, and the number of the body that ends here."""

    depth: int = 0
    next: dict[int, _Prefix] = field(default_factory=dict)
    rule: int | None = None

    @classmethod
    def tree(cls, bodies: Sequence[Body]) -> _Prefix:
        root = cls()
        for number, body in enumerate(bodies):
            prefix = root
            for step in body:
                prefix = prefix.next.setdefault(step, cls(prefix.depth + 1))
            prefix.rule = number
        return root


class _WalkCounts:
    """Adds up the walks that end at the same pair: without sorting, by two tables with a cell for every pair."""

    def __init__(self, n_pairs: int, device: torch.device) -> None:
        self.counts = torch.zeros(n_pairs, device=device)
        self.last = torch.zeros(n_pairs, dtype=torch.int32, device=device)

    def __call__(self, pairs: Tensor, walks: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct pairs, and the sum of the walks of each."""
        self.counts.index_add_(0, pairs, walks)
        position = torch.arange(len(pairs), dtype=torch.int32, device=pairs.device)
        self.last[pairs] = position
        distinct = pairs[self.last[pairs] == position]
        sums = self.counts[distinct]
        self.counts[distinct] = 0
        return distinct, sums


@dataclass(frozen=True)
class RelationRules:
    """The rules of one relation and one open slot."""

    bodies: list[Body]  # from head to tail
    weights: Tensor  # (n,)


def strength(walks: Tensor) -> Tensor:
    """What a number of walks along a rule counts, before its weight."""
    return (1 + walks).log2()


class PathRules(Scorer):
    """Scores heads and tails by learned path rules; `grammar/learn_path_rules.py` learns them."""

    def __init__(self, steps: Steps, rules: Mapping[tuple[Slot, int], RelationRules]) -> None:
        self.rules = rules  # by open slot and relation
        self._steps = {torch.device("cpu"): steps}

    @property
    def works_by_relation(self) -> bool:
        return True

    def __len__(self) -> int:
        return sum(len(rules.bodies) for rules in self.rules.values())

    def steps_on(self, device: torch.device) -> Steps:
        if device not in self._steps:
            self._steps[device] = self._steps[torch.device("cpu")].to(device)
        return self._steps[device]

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_entities)."""
        device = queries.head.device
        steps = self.steps_on(device)
        scores = torch.zeros(len(queries), steps.n_entities, device=device)
        known = queries[OTHER_END[slot]]
        for relation in queries.relation.unique().tolist():
            rules = self.rules.get((slot, relation))
            if rules is None:
                continue
            bodies, weights = steps.from_known_end(rules.bodies, slot), rules.weights.tolist()
            rows = (queries.relation == relation).nonzero()[:, 0]
            for block in rows.split(max(1, BLOCK // steps.n_entities)):
                total = torch.zeros(len(block) * steps.n_entities, device=device)
                for rule, pairs, walks in steps.count_walks(bodies, known[block]):
                    total.index_add_(0, pairs, weights[rule] * strength(walks))
                scores[block] = total.view(len(block), -1)
        return scores
