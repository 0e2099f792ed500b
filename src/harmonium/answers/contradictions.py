"""Facts of the graph that cannot hold together with a given fact.

A relation sets rules by how its facts look: one tail for each head (or one head for each tail), one direction only, no
fact of an entity with itself, the same value of another relation for all heads of a tail (conflicts.py). A fact that would
break a rule contradicts the known facts that keep it: one of the two is wrong, or the rule has an exception. Nothing is
said here about which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harmonium.answers.open_run import OpenRun
from harmonium.answers.reasons import Reason
from harmonium.data.triples import Slot, Triples

MIN_FACTS = 20  # of a relation, before it is said to have one direction, or no loops
EXCEPTIONS = 0.01  # share of its facts that may be otherwise
ONE_ANSWER = {Slot.TAIL: "a head of '{}' has one tail", Slot.HEAD: "a tail of '{}' has one head"}

Row = tuple[int, int, int]


@dataclass(frozen=True)
class Contradiction:
    """A rule that a fact breaks, in words, and the known facts that it cannot hold together with."""

    rule: str
    facts: tuple[Row, ...]  # ids; none where the fact is recorded as false, or breaks a rule by itself


def find_contradictions(opened: OpenRun, triples: Triples) -> list[list[Contradiction]]:
    """What speaks against each fact; a fact that is known does not contradict itself.

    Costs one look-up for each fact and rule; rules are counted once for all of them.
    """
    found: list[list[Contradiction]] = [[] for _ in range(len(triples))]
    _recorded_as_false(opened, triples, found)
    _second_answers(opened, triples, found)
    _wrong_way_round(opened, triples, found)
    _conflicts(opened, triples, found)
    return found


def with_contradictions(opened: OpenRun, triples: Triples, reasons: Sequence[Reason]) -> list[Reason]:
    """Reasons for facts that also say what speaks against these."""
    graph, told = opened.graph, []
    for reason, against in zip(reasons, find_contradictions(opened, triples), strict=True):
        known = [
            " ".join(names) for fact in against for names in graph.names_of(Triples.from_rows(list(fact.facts[:1])))
        ]
        words = [*(fact.rule for fact in against), *(f"known: {names}" for names in known)]
        told.append(replace(reason, text=f"{reason.text}. Against it: {'; '.join(words)}") if words else reason)
    return told


def _conflicts(opened: OpenRun, triples: Triples, found: list[list[Contradiction]]) -> None:
    """Facts whose entities differ in what the known facts with the same end agree on."""
    name = opened.graph.entities.name
    is_known = opened.known(Slot.TAIL).contain(triples).tolist()
    for number, (_, relation, _) in enumerate(triples.to_rows().tolist()):
        conflict = opened.conflicts.told(relation, triples[number : number + 1], is_known[number])
        if conflict is not None:
            companion = opened.graph.relations.name(conflict.relation)
            rule = f"it would give {name(conflict.entity)} '{companion}: {name(conflict.usual)}', as other facts of "
            fact = conflict.entity, conflict.relation, conflict.value
            found[number].append(Contradiction(f"{rule}{name(conflict.group)} do", (fact,)))


def _recorded_as_false(opened: OpenRun, triples: Triples, found: list[list[Contradiction]]) -> None:
    for row in opened.rejected(Slot.TAIL).contain(triples).nonzero()[:, 0].tolist():
        found[row].append(Contradiction("the graph records this fact as false", ()))


def _second_answers(opened: OpenRun, triples: Triples, found: list[list[Contradiction]]) -> None:
    """Relations with one answer that have another one; of a symmetric relation in either direction."""
    for slot, words in ONE_ANSWER.items():
        known, has_one = opened.known(slot), opened.traits.has_one_answer(slot)[triples.relation]
        row, answer = known.of(triples)
        other = (answer != triples[slot][row]) & has_one[row]
        facts: dict[int, list[Row]] = {}
        for number, entity in zip(row[other].tolist(), answer[other].tolist(), strict=True):
            head, relation, tail = triples.to_rows()[number].tolist()
            fact = (head, relation, entity) if slot is Slot.TAIL else (entity, relation, tail)
            facts.setdefault(number, []).append(fact)
        for number, others in facts.items():
            relation_name = opened.graph.relations.name(int(triples.relation[number]))
            found[number].append(Contradiction(words.format(relation_name), tuple(others)))


def _wrong_way_round(opened: OpenRun, triples: Triples, found: list[list[Contradiction]]) -> None:
    """Facts of an entity with itself, and facts known the other way round, of relations that hardly ever have such."""
    graph, known = opened.graph, opened.known(Slot.TAIL)
    facts = graph.facts()
    size, n_loops, n_both = (
        facts.relation[mask].bincount(minlength=graph.n_relations)
        for mask in (facts.head >= 0, facts.head == facts.tail, known.contain(_exchanged(facts)))
    )
    most = EXCEPTIONS * size
    has_no_loops = (size >= MIN_FACTS) & (n_loops <= most.clamp(min=1))  # the fact itself, if it is known
    has_one_direction = (size >= MIN_FACTS) & (n_both - n_loops <= most.clamp(min=2))  # the fact and its reverse
    is_known_reversed = known.contain(_exchanged(triples))
    for number, (head, relation, tail) in enumerate(triples.to_rows().tolist()):
        name = graph.relations.name(relation)
        if head == tail and has_no_loops[relation]:
            found[number].append(Contradiction(f"no entity is '{name}' of itself", ()))
        elif head != tail and is_known_reversed[number] and has_one_direction[relation]:
            found[number].append(Contradiction(f"'{name}' holds in one direction", ((tail, relation, head),)))


def _exchanged(facts: Triples) -> Triples:
    return Triples(facts.tail, facts.relation, facts.head)
