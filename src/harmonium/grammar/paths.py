"""Path rules as a family of constraints: what the rules of a relation add up to, and each rule in words."""

from __future__ import annotations

import torch

from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.family import Array, Evidence, Family, Ids
from harmonium.grammar.path_rules import PathRules
from harmonium.grammar.walks import Body


class Paths(Family):
    name = "paths"
    title = "paths"
    constraints = ("paths",)

    def __init__(self, rules: PathRules, relations: Vocabulary) -> None:
        self.rules, self.relations = rules, relations

    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        answers = None if hidden is None else torch.from_numpy(hidden)
        return [self.rules.strengths(slot, relation, torch.from_numpy(given), answers)]

    def evidence(self, slot: Slot, relation: int, given: int, answer: int) -> list[Evidence]:
        head, tail = (given, answer) if slot is Slot.TAIL else (answer, given)
        parts = []
        for body, walks, _, contribution in self.rules.contributions(slot, relation, given, answer):
            words = describe(body, self.relations, self.rules.steps.n_relations)
            times = "" if walks == 1 else f" ({walks:,} ways)"
            facts = tuple(self.rules.example_walk(body, head, tail))
            parts.append(Evidence(words, f"{words}{times}", contribution, facts))
        return parts


def describe(body: Body, relations: Vocabulary, n_relations: int) -> str:
    """A body in words, from head to tail: "located in → division of", "← borders" where a fact is walked backwards."""
    steps = [(relations.name(step % n_relations), step >= n_relations) for step in body]
    return " ".join(f"{'←' if backwards else ''}{name}{'' if backwards else '→'}" for name, backwards in steps)
