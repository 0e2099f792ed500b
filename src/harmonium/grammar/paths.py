"""Path rules as a family of constraints: what the rules of a relation add up to, and each rule in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from string import ascii_uppercase

import torch

from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.family import Array, Evidence, Family, Ids, readable
from harmonium.grammar.known_facts import KnownFacts
from harmonium.grammar.path_rules import PathRules
from harmonium.grammar.walks import Body

EXAMPLES = 8  # rules of a candidate that are told by facts, those that say most; the rest are told in general
COUNTED = 4096  # rules whose counts are kept


class Paths(Family):
    name = "paths"
    column = "paths"
    title = "other paths"
    meaning = "all other path rules together"
    constraints = ("paths",)

    @classmethod
    def over(cls, known: KnownFacts) -> Paths:
        return cls(known.rules, known.graph.entities, known.graph.relations)

    def __init__(self, rules: PathRules, entities: Vocabulary, relations: Vocabulary) -> None:
        self.rules, self.entities, self.relations = rules, entities, relations
        self.count = lru_cache(COUNTED)(self._count)

    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        answers = None if hidden is None else torch.from_numpy(hidden)
        return [self.rules.strengths(slot, relation, torch.from_numpy(given), answers)]

    def strengths_among(self, slot: Slot, relation: int, given: Ids, candidates: Ids) -> list[Array]:
        return [self.rules.strengths(slot, relation, torch.from_numpy(given), candidates=candidates)]

    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        head, tail = (given, answer) if slot is Slot.TAIL else (answer, given)
        parts = []
        contributions = self.rules.contributions(slot, relation, given, answer, hidden)
        for number, (body, walks, _, contribution) in enumerate(contributions):
            ways = "" if walks == 1 else f" ({walks:,} such paths)"
            title = describe(body, self.relations, self.rules.steps.n_relations)
            facts = tuple(self.rules.example_walk(body, head, tail)) if number < EXAMPLES else ()
            text = f"known: {self._sentence(facts)}" if facts else title
            parts.append(Evidence(title, text + ways, contribution, facts, body))
        return parts

    def told(self, slot: Slot, relation: int, evidence: Evidence) -> str:
        return f"{evidence.text}; {self.how_often_right(slot, relation, evidence.body)}"

    def how_often_right(self, slot: Slot, relation: int, body: Body) -> str:
        """In words, by counts over all facts of the graph."""
        support, connected = self.count(slot, relation, body)
        return f"right in {support:,} of {connected:,} such cases"

    def conviction(self, slot: Slot, relation: int, evidence: Evidence) -> float:
        """The share of the pairs that the rule connects which are facts."""
        support, connected = self.count(slot, relation, evidence.body)
        return support / max(1, connected)

    def _count(self, slot: Slot, relation: int, body: Body) -> tuple[int, int]:
        """Of the pairs that a rule connects, how many are facts, and how many there are."""
        ((support, connected),) = self.rules.count_pairs(relation, slot, [body])
        return support, connected

    def _sentence(self, facts: Sequence[tuple[int, int, int]]) -> str:
        texts = [
            f"{self.entities.name(head)} {readable(self.relations.name(relation))} {self.entities.name(tail)}"
            for head, relation, tail in facts
        ]
        return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def describe(body: Body, relations: Vocabulary, n_relations: int) -> str:
    """A body in words, from the head X to the tail Y: "X born in A, A located in Y"."""
    ends = ["X", *ascii_uppercase[: len(body) - 1], "Y"]
    texts = []
    for step, start, end in zip(body, ends[:-1], ends[1:], strict=True):
        first, second = (start, end) if step < n_relations else (end, start)
        texts.append(f"{first} {readable(relations.name(step % n_relations))} {second}")
    return ", ".join(texts)
