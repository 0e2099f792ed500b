"""Necessary facts: the few training facts without which the model would not give an answer.

A triple is an answer for its tail. Facts of its head or tail are removed one after another, each time the one without
which the triple's score falls furthest below the best other answer (influence.py). These are the necessary explanations
of Rossi et al. (2022, Kelpie); that of a fact which many others support leaves its rank as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.analysis.influence import ENDS, Influence, Removal
from harmonium.data.triples import Slot, Triples

MAX_NECESSARY_FACTS = 4  # facts
SHORTLIST = 48  # facts whose removal is estimated, alone and together


@dataclass(frozen=True)
class NecessaryFacts:
    """Facts in the order of their removal, with estimates; and all candidates."""

    facts: Triples  # (k,)
    ranks: list[int]  # k: of the triple without the first, the first two, ... of them
    margins: list[float]  # k: the same of its score above the best other answer
    candidates: Triples  # (n,)
    effects: Tensor  # (n,): the change of the score without each candidate alone


@torch.no_grad()
def find_necessary_facts(influence: Influence, triple: Triples, limit: int = MAX_NECESSARY_FACTS) -> NecessaryFacts:
    """At most `limit` facts for one triple (one row)."""
    candidates = shortlist(influence, triple, facts_of_ends(influence, triple))
    removal, singles = Removal(influence, candidates, triple), torch.eye(len(candidates), dtype=torch.bool)
    removed, order = torch.zeros(len(candidates), dtype=torch.bool), list[int]()
    margins, ranks = list[float](), list[int]()
    margin = removal.margins(removed[None])[0].item()
    while len(order) < min(limit, len(candidates)):
        remaining = (~removed).nonzero()[:, 0]
        margin_without, rank_without = removal.margins(removed | singles[remaining])
        best = int(margin_without.argmin())
        if margin_without[best] >= margin:
            break
        margin = margin_without[best].item()
        order.append(int(remaining[best]))
        margins.append(margin)
        ranks.append(int(rank_without[best]))
        removed[order[-1]] = True
    facts = candidates[torch.tensor(order, dtype=torch.int64)]
    return NecessaryFacts(facts, ranks, margins, candidates, removal.effects())


def facts_of_ends(influence: Influence, triple: Triples) -> Triples:
    """Training facts of the head or the tail of a triple, without the triple itself."""
    facts = influence.facts_of(*(int(triple[slot]) for slot in ENDS))
    return facts[(facts.to_rows() != triple.to_rows()).any(1)]


def shortlist(influence: Influence, triple: Triples, facts: Triples, count: int = SHORTLIST) -> Triples:
    """The facts that hold the vectors of the head and the tail most in the direction that raises the triple's score.

    By the product of the gradients of both scores in a vector, which needs no competitors and no curvature.
    """
    if len(facts) <= count:
        return facts
    alignment = influence.scorer.entities.new_zeros(len(facts))
    for entity in {int(triple[slot]) for slot in ENDS}:
        of_triple, of_facts = (_slopes(influence, triples, entity) for triples in (triple, facts))
        alignment += of_facts @ of_triple[0] / of_triple[0].norm().clamp(min=1e-12)
    return facts[alignment.topk(count).indices]


def _slopes(influence: Influence, triples: Triples, entity: int) -> Tensor:
    """(n, dim): the gradients of the scores of triples in an entity's vector."""
    return influence.score_gradients({slot: triples[slot][:, None] for slot in Slot}, entity)[:, 0]
