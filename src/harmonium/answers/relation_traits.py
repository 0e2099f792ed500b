"""What the facts of a relation say about further ones: whether it is functional or symmetric, or has values as tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.relation_rules import RULE_KINDS, mine_rules
from harmonium.data.triples import Slot, Triples

FUNCTIONAL = 0.95  # share of the heads of a functional relation that have exactly one tail
MAX_MEAN = 1.1  # tails per head: also where a few heads have many
MIN_HEADS = 20  # below that a relation is not called functional


@dataclass(frozen=True)
class RelationTraits:
    """Traits of all relations, each (n_relations,) bool."""

    functional: Tensor  # a head has one tail
    inverse_functional: Tensor  # a tail has one head
    symmetric: Tensor  # (h, r, t) implies (t, r, h)
    literal: Tensor  # tails are numbers or dates, which are asked for by the name of the relation only

    @classmethod
    def infer(cls, graph: Graph, splits: Sequence[str] = SPLITS) -> RelationTraits:
        """The traits that the facts of some splits show."""
        facts = graph.facts(splits)
        rules = mine_rules(facts, graph.n_entities, graph.n_relations)
        symmetric = rules.body[rules.kind == RULE_KINDS.index("symmetric")]
        return cls(
            _functional(graph, Slot.TAIL, splits),
            _functional(graph, Slot.HEAD, splits),
            symmetric.bincount(minlength=graph.n_relations) > 0,
            graph.literals.relations,
        )

    def has_one_answer(self, open_slot: Slot) -> Tensor:
        """(n_relations,) bool: whether a query with this slot open has at most one answer."""
        one_way = self.functional if open_slot is Slot.TAIL else self.inverse_functional
        return one_way | self.symmetric & (self.functional | self.inverse_functional)


def _functional(graph: Graph, open_slot: Slot, splits: Sequence[str]) -> Tensor:
    """(n_relations,): whether nearly all queries with this slot open have exactly one answer."""
    index = graph.known_answers(open_slot, splits).index
    relation, answers = index.keys // graph.n_entities, index.offsets.diff()
    queries = relation.bincount(minlength=graph.n_relations)
    with_one = relation[answers == 1].bincount(minlength=graph.n_relations)
    facts = torch.zeros_like(queries).index_add_(0, relation, answers)
    return (queries >= MIN_HEADS) & (with_one >= FUNCTIONAL * queries) & (facts <= MAX_MEAN * queries)


def false_answers(graph: Graph, slot: Slot, traits: RelationTraits | None = None) -> KnownAnswers:
    """The index of answers that are known to be false: in both directions where the relation is symmetric.

    The `traits` of the graph are inferred where they are not given and needed.
    """
    false = graph.rejected
    if len(false):
        symmetric = (traits or RelationTraits.infer(graph)).symmetric
        swapped = false[symmetric[false.relation]]
        swapped = Triples(swapped.tail, swapped.relation, swapped.head)
        is_fact = graph.known_answers(Slot.TAIL, queries=swapped).contain(swapped)
        false = Triples.cat([false, swapped[~is_fact]])
    return KnownAnswers.build(slot, false, graph.n_entities)


def excluded_answers(
    graph: Graph, slot: Slot, splits: Sequence[str] = SPLITS, queries: Triples | None = None
) -> KnownAnswers:
    """The index of answers that nobody asks for: those that are known, to be true or to be false."""
    known = graph.known_answers(slot, splits, queries)
    return known.join(false_answers(graph, slot)) if len(graph.rejected) else known
