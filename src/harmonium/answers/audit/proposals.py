"""What was probably meant by a fact that is probably wrong: one change that makes a far better fact of it.

Tried are the best other tail, head and relation, head and tail exchanged, and entities whose names are one letter away. Each
candidate is judged like the fact itself, hidden from everything. It is proposed only where it stands out twice: it would
be right itself, and what was changed is more likely than all other candidates for that slot together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.answers.audit.error_model import ErrorModel
from harmonium.answers.audit.hidden_evidence import HEAD, RELATION, SLOTS, TAIL, HiddenEvidence, Witness
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary

BETTER = 4.0  # log-odds by which a proposed fact must be less likely to be wrong
RIGHT = -1.5  # log-odds of being wrong that a proposed fact may have
CERTAIN = 0.0  # margin that the changed slot of a proposed fact must have
SHORTEST = 4  # letters of a name that may have one wrong
MARGINS = {"tail": [TAIL], "head": [HEAD], "relation": [RELATION], "exchanged": [TAIL, HEAD], "name": list[int]()}
MOST_ALIKE = 3  # entities with names alike that are tried for each slot


@dataclass(frozen=True)
class Proposal:
    """A fact that was probably meant."""

    triple: tuple[int, int, int]
    change: str  # tail, head, relation, exchanged or name


def propose(
    witness: Witness,
    model: ErrorModel,
    facts: Triples,
    folds: Tensor,
    heard: HiddenEvidence,
    progress: Callable[[int], None] | None = None,
) -> list[Proposal | None]:
    """For each fact the best change of it, or None where nothing is far better than the fact."""
    tried = _changes(witness, facts, heard)
    best: list[tuple[float, Proposal | None]] = [(float("inf"), None)] * len(facts)
    if not tried:
        return [None] * len(facts)
    rows = torch.tensor([row for row, _ in tried])
    changed = Triples.from_rows([proposal.triple for _, proposal in tried])
    known = witness.opened.known(Slot.TAIL).contain(changed)
    rejected = witness.opened.rejected(Slot.TAIL).contain(changed)
    evidence = witness.hear(changed, folds[rows], facts[rows], progress=progress)
    log_odds, before = model.log_odds(evidence.features), model.log_odds(heard.features)
    for number, (row, proposal) in enumerate(tried):
        stands_out = bool((evidence.features[number, MARGINS[proposal.change]] > CERTAIN).all())
        odds = float(log_odds[number])
        is_loop = proposal.triple[0] == proposal.triple[2]
        is_new = not (bool(known[number]) or bool(rejected[number]) or is_loop)
        if is_new and stands_out and odds < min(RIGHT, float(before[row]) - BETTER) and odds < best[row][0]:
            best[row] = odds, proposal
    return [proposal for _, proposal in best]


def _changes(witness: Witness, facts: Triples, heard: HiddenEvidence) -> list[tuple[int, Proposal]]:
    """(row, proposal) for all changes that are tried."""
    alike = NamesAlike.of(witness.opened.graph.entities)
    tried: list[tuple[int, Proposal]] = []
    for row, (head, relation, tail) in enumerate(facts.to_rows().tolist()):
        rivals = {slot: int(heard.rivals[slot][row]) for slot in Slot}
        changes = [("tail", (head, relation, rivals[Slot.TAIL])), ("head", (rivals[Slot.HEAD], relation, tail))]
        changes.append(("relation", (head, rivals[Slot.RELATION], tail)))
        if head != tail:
            changes.append(("exchanged", (tail, relation, head)))
        for slot in SLOTS:
            for other in alike.to(tail if slot is Slot.TAIL else head):
                changes.append(("name", (head, relation, other) if slot is Slot.TAIL else (other, relation, tail)))
        distinct: dict[tuple[int, int, int], str] = {}
        for change, triple in changes:
            distinct.setdefault(triple, change)
        tried += [(row, Proposal(triple, change)) for triple, change in distinct.items()]
    return tried


@dataclass(frozen=True)
class NamesAlike:
    """Entities by their names with any one letter left out: two names that share such a key are one letter apart."""

    names: Sequence[str]
    by_key: dict[str, list[int]]

    @classmethod
    def of(cls, entities: Vocabulary) -> NamesAlike:
        names = [entities.name(number).casefold() for number in range(len(entities))]
        by_key = defaultdict(list)
        for number, name in enumerate(names):
            for key in _keys(name):
                by_key[key].append(number)
        return cls(names, dict(by_key))

    def to(self, entity: int) -> list[int]:
        """Other entities whose names differ from that of an entity by one letter (added, left out or another one)."""
        found = {other for key in _keys(self.names[entity]) for other in self.by_key[key]} - {entity}
        return sorted(other for other in found if _one_letter_apart(self.names[entity], self.names[other]))[:MOST_ALIKE]


def _keys(name: str) -> set[str]:
    if len(name) < SHORTEST:
        return set()
    return {name, *(name[:position] + name[position + 1 :] for position in range(len(name)))}


def _one_letter_apart(first: str, second: str) -> bool:
    """Whether two names differ in one letter, digits excluded: Osmium-185 is no other spelling of Osmium-186."""
    from rapidfuzz.distance import Levenshtein

    same_digits = [letter for letter in first if letter.isdigit()] == [letter for letter in second if letter.isdigit()]
    return same_digits and Levenshtein.distance(first, second, score_cutoff=1) == 1
