"""What the rest of a graph says about given facts: supported, unsupported, or contradicted by known facts.

A known fact is judged as if it were not known, so that it does not support itself. Nothing here is a probability: `score`
gives that of a missing fact. A fact that is merely rare is unsupported, which does not make it wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from harmonium.answers.contradictions import Contradiction, find_contradictions
from harmonium.answers.open_run import OpenRun
from harmonium.answers.reasons import Reason, find_reasons
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.grammar import CELLS, OTHER_END, Contribution, Grammar

Status = Literal["supported", "unsupported", "contradicted"]

BEST = 0.05  # share of the candidates for a slot among which a supported fact is, by what other facts say
STRONG = 0.3  # strength of a reason that supports a fact in a run without constraints
SAYS_LITTLE = ("none", "frequent")  # kinds of reasons that hold for most candidates


@dataclass(frozen=True)
class FactCheck:
    """One fact."""

    known: bool
    reason: Reason  # the strongest evidence for it
    is_supported: bool
    contradictions: list[Contradiction]

    @property
    def status(self) -> Status:
        """What to think of it; a contradicted fact may be supported too."""
        if self.contradictions:
            return "contradicted"
        return "supported" if self.is_supported else "unsupported"


def check_facts(opened: OpenRun, triples: Triples) -> list[FactCheck]:
    """Support and contradictions of each fact, known or not; costs as much as their reasons."""
    reasons, conflicts = find_reasons(opened.evidence, triples), find_contradictions(opened, triples)
    known = opened.known(Slot.TAIL).contain(triples).tolist()
    if opened.grammar is None:
        strong = [reason.strength >= STRONG for reason in reasons]
    else:
        strong = (_share_above(opened, opened.grammar, triples) <= BEST).tolist()
    return [
        FactCheck(is_known, reason, is_strong and reason.kind not in SAYS_LITTLE, against)
        for is_known, reason, is_strong, against in zip(known, reasons, strong, conflicts, strict=True)
    ]


def supporting(opened: OpenRun, triple: Triples, count: int) -> list[Contribution]:
    """The constraints that speak for a fact (one row) as an answer for its tail, strongest first; none without a grammar."""
    grammar = opened.grammar
    if grammar is None:
        return []
    head, relation, tail = triple.to_rows()[0].tolist()
    hidden = tail if bool(opened.known(Slot.TAIL).contain(triple)) else None
    parts = [part for part in grammar.contributions(Slot.TAIL, relation, head, tail, hidden) if part.value > 0]
    return sorted((part for part in parts if part.family != "usual"), key=lambda part: -part.value)[:count]


def _share_above(opened: OpenRun, grammar: Grammar, triples: Triples) -> torch.Tensor:
    """(n,): share of the other candidates for a slot for which constraints speak as much; that of the better slot."""
    share = torch.ones(len(triples), dtype=torch.float64)
    size = max(1, CELLS // grammar.n_entities)
    for slot in (Slot.HEAD, Slot.TAIL):
        known, given = opened.known(slot), triples[OTHER_END[slot]]
        is_known = known.contain(triples)
        for relation in triples.relation.unique().tolist():
            candidates = opened.types.of_slot(slot, relation).entities
            for hide in (False, True):
                rows = ((triples.relation == relation) & (is_known == hide)).nonzero()[:, 0]
                for block in rows.split(size) if len(rows) else ():
                    answer = triples[slot][block]
                    hidden = answer.numpy() if hide else None
                    harmony = torch.from_numpy(_specific(grammar, slot, relation, given[block].numpy(), hidden))
                    own = harmony.gather(1, answer[:, None])
                    other_row, other = known.of(triples[block])
                    harmony[other_row, other] = -torch.inf
                    harmony.scatter_(1, answer[:, None], -torch.inf)
                    above = (harmony[:, candidates] >= own).double().mean(1)
                    share[block] = share[block].minimum(above)
    return share


def _specific(grammar: Grammar, slot: Slot, relation: int, given: np.ndarray, hidden: np.ndarray | None) -> np.ndarray:
    """(m, n_entities): the harmony of constraints without how usual an answer is, which says nothing of one fact."""
    total = np.zeros((len(given), grammar.n_entities))
    for family, weights in grammar.weighted_families(slot, relation):
        if weights.any() and family.name != "usual":
            strengths = family.strengths(slot, relation, given, hidden)
            total += sum(weight * strength for weight, strength in zip(weights, strengths, strict=True))
    return total
