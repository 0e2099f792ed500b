"""The reason for a fact in a run with a grammar: the constraint that speaks for it most, beside other answers.

A contribution is compared with the mean of what the same family adds to the known answers of the relation. That a value is
usual, or that its name is like those of answers, holds of most of them and says little: it is told when nothing else speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.family import Array, Ids
from harmonium.grammar.grammar import CELLS, OTHER_END, Grammar

LEAST = 0.1  # nats by which a family must add more than it does on average
CONSTRAINTS_COMPARED = 3  # constraints of a family whose counts are compared
LAST = ("usual",)  # families that are told when no other one speaks


@dataclass(frozen=True)
class Telling:
    """The family of constraints that speaks most for a fact, and its words."""

    family: str
    text: str
    gain: float  # nats more than for the average answer


def most_telling(
    grammar: Grammar, slot: Slot, triples: Triples, facts: Triples, progress: Callable[[int], None] | None = None
) -> list[Telling | None]:
    """For each fact, as an answer in `slot`; None where no constraint speaks for it.

    Of the `facts` of the graph those in `triples` are hidden when their own reason is looked for.
    """
    best: list[Telling | None] = [None] * len(triples)
    given, answer = triples[OTHER_END[slot]].numpy(), triples[slot].numpy()
    relations = triples.relation.numpy()
    is_known = KnownAnswers.build(slot, facts, grammar.n_entities).contain(triples).numpy()
    size = max(1, CELLS // grammar.n_entities)
    for relation in np.unique(relations).tolist():
        answers = facts[slot][facts.relation == relation].unique().numpy()
        for known in (False, True):
            rows = np.flatnonzero((relations == relation) & (is_known == known))
            for start in range(0, len(rows), size):
                block = rows[start : start + size]
                hidden = answer[block] if known else None
                gains = _gains(grammar, (slot, relation), given[block], answer[block], hidden, answers)
                for row, gain in zip(block.tolist(), gains.T.tolist(), strict=True):
                    query = slot, relation, int(given[row]), int(answer[row]), int(answer[row]) if known else None
                    best[row] = _tell(grammar, query, gain)
                    if progress:
                        progress(1)
    return best


def _gains(
    grammar: Grammar, query: tuple[Slot, int], given: Ids, answer: Ids, hidden: Ids | None, answers: Ids
) -> Array:
    """(families, m): how much more each family adds to an answer than to the average known one of the relation."""
    gains = np.zeros((len(grammar.families), len(given)))
    for number, (family, weights) in enumerate(grammar.weighted_families(*query)):
        if weights.any():
            strengths = family.strengths(*query, given, hidden)
            total = sum(weight * strength for weight, strength in zip(weights, strengths, strict=True))
            gains[number] = total[np.arange(len(given)), answer] - (total[:, answers].mean(1) if len(answers) else 0)
    return gains


def _tell(grammar: Grammar, query: tuple[Slot, int, int, int, int | None], gains: list[float]) -> Telling | None:
    """What adds much and is right often: the largest product of both, first among families that say most."""
    slot, relation, *_ = query
    tellings = []
    for number, (family, gain) in enumerate(zip(grammar.families, gains, strict=True)):
        if gain < LEAST:
            continue
        parts = [part for part in grammar.contributions_of(number, *query) if part.value > 0]
        for part in sorted(parts, key=lambda part: -part.value)[:CONSTRAINTS_COMPARED]:
            share_of_gain = gain * part.value / max(each.value for each in parts)
            conviction = share_of_gain * family.conviction(slot, relation, part.evidence)
            tellings.append((family.name not in LAST, conviction, family, part.evidence, gain))
    if not tellings:
        return None
    _, _, family, evidence, gain = max(tellings, key=lambda telling: telling[:2])
    return Telling(family.name, family.told(slot, relation, evidence), gain)
