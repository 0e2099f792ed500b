"""Sufficient facts: the few facts of an entity that would give the same answer to others that had them too.

The head h of a triple (h, r, t) is replaced by other entities c in its own training facts, and facts are added to all c
one after another, each time the one with which t rises furthest above the best other answers for (c, r, ?) (influence.py).
These are the sufficient explanations of Rossi et al. (2022, Kelpie).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.analysis.influence import Influence, Refit
from harmonium.analysis.necessary_facts import LIMIT, facts_of_ends, shortlist
from harmonium.data.triples import Triples
from harmonium.evaluation.ranking import rank

OTHERS = 10  # entities to which facts are added
SHORTLIST = 24
ENOUGH = 2.0  # a margin above which more does not count


@dataclass(frozen=True)
class SufficientFacts:
    """Facts of the head in the order in which they are added, with estimates."""

    facts: Triples  # (k,)
    others: Tensor  # (m,): the entities to which they are added
    converted: list[float]  # k: the share of them that have the same answer with the first, the first two, ... facts


def with_entity(facts: Triples, old: int, new: int) -> Triples:
    """Facts with an entity in place of another one."""
    head, tail = (torch.where(ids == old, new, ids) for ids in (facts.head, facts.tail))
    return Triples(head, facts.relation, tail)


def draw_others(influence: Influence, triple: Triples, count: int = OTHERS) -> Tensor:
    """(m,): a seeded sample of heads of the relation for which the tail is neither known nor the first answer."""
    train = influence.graph.train
    heads = train.head[train.relation == triple.relation].unique()
    heads = heads[influence.sample(len(heads), 4 * count)]
    asked = Triples(heads, triple.relation.expand(len(heads)), triple.tail.expand(len(heads)))
    asked = asked[~influence.known_tails.contain(asked) & (asked.head != triple.head) & (asked.head != triple.tail)]
    if not len(asked):
        return asked.head
    ranks = rank(influence.scorer, asked, influence.known_tails.slot, influence.known_tails).values()
    return asked.head[ranks > 1][:count]


@torch.no_grad()
def find_sufficient_facts(
    influence: Influence, triple: Triples, others: Tensor | None = None, limit: int = LIMIT
) -> SufficientFacts:
    """At most `limit` facts for one triple (one row) and the other entities, a sample by default."""
    head, tail = int(triple.head), influence.scorer.entities[triple.tail]
    others = draw_others(influence, triple) if others is None else others
    facts = facts_of_ends(influence, triple)
    candidates = shortlist(influence, triple, facts[(facts.head == head) | (facts.tail == head)], SHORTLIST)
    refits = [Refit(influence, with_entity(candidates, head, int(c)), int(c), adding=True) for c in others]
    asked = [with_entity(triple, head, int(c)) for c in others]
    added, order, converted = torch.zeros(len(candidates), dtype=torch.bool), list[int](), list[float]()
    best_margin = -torch.inf
    while refits and len(order) < min(limit, len(candidates)):
        remaining = (~added).nonzero()[:, 0]
        sets = added | torch.eye(len(candidates), dtype=torch.bool)[remaining]
        margins = torch.stack(
            [
                influence.margins(each, refit.changed(sets), tail.expand(len(sets), -1))[0]
                for each, refit in zip(asked, refits, strict=True)
            ]
        )  # (m, number of sets)
        usefulness = margins.clamp(max=ENOUGH).mean(0)
        best = int(usefulness.argmax())
        if usefulness[best] <= best_margin:
            break
        best_margin = usefulness[best].item()
        order.append(int(remaining[best]))
        converted.append((margins[:, best] > 0).double().mean().item())
        added[order[-1]] = True
    return SufficientFacts(candidates[torch.tensor(order, dtype=torch.int64)], others, converted)
