"""What new facts say about relations: those that contradict what used to hold, and relations that are used otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.graph_changes import Listed
from harmonium.answers.relation_traits import FUNCTIONAL
from harmonium.data.joint_facts import JointFacts
from harmonium.data.triples import Slot, Triples

MIN_QUESTIONS = 5  # heads (tails) without which a relation is not said to have one tail per head (head per tail)
MIN_FACTS = 20  # facts without which a relation is not said to have no loops, or one direction
FREQUENCY = 1.5  # times as large or small is a share of facts that changed
MIN_CHANGE = 10  # facts by which a frequency must have changed
NOTICEABLE = 0.1  # relative change of the number of answers
MANY = 1.5  # answers on average: the relation is N on that side
QUESTIONS = {"one tail per head": (Slot.HEAD, Slot.TAIL), "one head per tail": (Slot.TAIL, Slot.HEAD)}


@dataclass(frozen=True)
class Answers:
    """How many answers the questions (given entity, relation) have."""

    question: Tensor  # (k,) ascending: relation * n_entities + entity
    count: Tensor  # (k,)
    n_entities: int
    n_relations: int

    @classmethod
    def of(cls, triples: Triples, given: Slot, n_entities: int, n_relations: int) -> Answers:
        """Of distinct facts."""
        question, count = (triples.relation * n_entities + triples[given]).unique(return_counts=True)
        return cls(question, count, n_entities, n_relations)

    def _by_relation(self, rows: Tensor) -> Tensor:
        return (self.question[rows] // self.n_entities).bincount(minlength=self.n_relations)

    def has_one(self) -> Tensor:
        """(n_relations,) bool: nearly all questions of the relation have exactly one answer."""
        questions, single = self._by_relation(self.count > 0), self._by_relation(self.count == 1)
        return (questions >= MIN_QUESTIONS) & (single >= FUNCTIONAL * questions)

    def mean(self) -> Tensor:
        """(n_relations,) float64: answers per question."""
        relation = self.question // self.n_entities
        total = torch.zeros(self.n_relations, dtype=torch.float64).index_add_(0, relation, self.count.double())
        return total / relation.bincount(minlength=self.n_relations).clamp(min=1)

    def counts_of(self, questions: Tensor) -> Tensor:
        """(m,): the answers to these questions, 0 for those without."""
        if not len(self.question):
            return torch.zeros_like(questions)
        position = torch.searchsorted(self.question, questions).clamp_(max=len(self.question) - 1)
        return torch.where(self.question[position] == questions, self.count[position], 0)


def _sides(facts: JointFacts, given: Slot) -> list[Answers]:
    sizes = len(facts.joint.entities), len(facts.joint.relations)
    return [Answers.of(facts.triples[facts.splits[side] > 0], given, *sizes) for side in range(2)]


# Contradictions -------------------------------------------------------------------------------------------------------


def find_contradictions(facts: JointFacts, top: int) -> Listed:
    """Facts of the newer graph that break a rule which the older one kept: relation, rule, entity and its facts now.

    First those of relations that break it the fewest `times`, which are most likely mistakes.
    """
    parts = [_second_answers(facts, rule, top) for rule in QUESTIONS]
    parts += [_new_facts(facts, rule, broken, top) for rule, broken in (_loops(facts), _reversed(facts))]
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: int(row["times"]))
    return Listed(sum(part.count for part in parts), rows[:top])


def _rarest_first(relation: Tensor, top: int) -> tuple[Tensor, list[int]]:
    """Positions (at most `top`) of broken rules (n,), those of relations that break theirs least often first; how often."""
    times = relation.bincount()[relation] if len(relation) else relation
    order = times.argsort(stable=True)[:top]
    return order, times[order].tolist()


def _second_answers(facts: JointFacts, rule: str, top: int) -> Listed:
    """Questions with two answers or more, of a relation whose questions had one."""
    given, asked = QUESTIONS[rule]
    before, after = _sides(facts, given)
    relation = after.question // after.n_entities
    broken = before.has_one()[relation] & (after.count > 1) & (before.counts_of(after.question) <= 1)
    keys = facts.triples.relation * after.n_entities + facts.triples[given]
    rows, questions = [], after.question[broken]
    order, times = _rarest_first(relation[broken], top)
    for question, count in zip(questions[order].tolist(), times, strict=True):
        positions = ((facts.splits[1] > 0) & (keys == question)).nonzero()[:, 0]
        number, entity = divmod(question, after.n_entities)
        answers = [
            facts.joint.entities.name(int(facts.triples[asked][p])) + (" (new)" if facts.added[p] else "")
            for p in positions.tolist()
        ]
        rows.append(_row(facts, number, rule, facts.joint.entities.name(entity), ", ".join(answers), count))
    return Listed(len(questions), rows)


def _new_facts(facts: JointFacts, rule: str, broken: Tensor, top: int) -> Listed:
    """New facts (n,) bool that break a rule."""
    rows, triples = [], facts.triples[broken]
    order, times = _rarest_first(triples.relation, top)
    for (head, relation, tail), count in zip(triples[order].to_rows().tolist(), times, strict=True):
        names = facts.joint.entities.name(head), facts.joint.entities.name(tail)
        rows.append(_row(facts, relation, rule, names[0], f"{names[1]} (new)", count))
    return Listed(len(triples), rows)


def _loops(facts: JointFacts) -> tuple[str, Tensor]:
    """New facts of an entity with itself, of a relation that had none."""
    is_loop = facts.triples.head == facts.triples.tail
    return "no entity with itself", is_loop & facts.added & _had_none(facts, is_loop)


def _reversed(facts: JointFacts) -> tuple[str, Tensor]:
    """New facts whose reverse is a fact too, of a relation that had none such."""
    n, n_relations, triples = len(facts.joint.entities), len(facts.joint.relations), facts.triples
    pairs = torch.cat([triples.head * n + triples.tail, triples.tail * n + triples.head])
    pair = pairs.unique(return_inverse=True)[1].view(2, -1)
    key, reverse = (pair * n_relations + triples.relation).unbind(0)

    def has_reverse(side: int) -> Tensor:
        rows = facts.splits[side] > 0
        return rows & torch.isin(reverse, key[rows]) & (triples.head != triples.tail)

    return "one direction only", facts.added & has_reverse(1) & _had_none(facts, has_reverse(0))


def _had_none(facts: JointFacts, exception: Tensor) -> Tensor:
    """(n,) bool: whether the relation of each fact had many facts in the older graph, none of them such an exception."""
    relation, old, n = facts.triples.relation, facts.splits[0] > 0, len(facts.joint.relations)
    is_frequent = relation[old].bincount(minlength=n) >= MIN_FACTS
    return (is_frequent & (relation[old & exception].bincount(minlength=n) == 0))[relation]


def _row(facts: JointFacts, relation: int, rule: str, entity: str, now: str, times: int) -> dict[str, Any]:
    name = facts.joint.relations.name(relation)
    return {"relation": name, "rule": rule, "entity": entity, "now": now, "times": times}


# Relations ------------------------------------------------------------------------------------------------------------


def find_changed_relations(facts: JointFacts, top: int) -> Listed:
    """Relations of both graphs whose share of all facts, or whose number of answers to a question, changed."""
    n = len(facts.joint.relations)
    counts = [facts.triples.relation[facts.splits[side] > 0].bincount(minlength=n) for side in range(2)]
    totals = [max(1, int(count.sum())) for count in counts]
    expected = counts[0] * totals[1] / totals[0]
    ratio = counts[1] / expected.clamp(min=1e-9)
    is_frequency = ((ratio >= FREQUENCY) | (ratio <= 1 / FREQUENCY)) & ((counts[1] - expected).abs() >= MIN_CHANGE)
    traits = {
        rule: [(side.has_one().tolist(), side.mean().tolist()) for side in _sides(facts, given)]
        for rule, (given, _) in QUESTIONS.items()
    }
    rows: list[dict[str, Any]] = []
    for relation in ((counts[0] > 0) & (counts[1] > 0)).nonzero()[:, 0].tolist():
        changes = [_frequency(float(ratio[relation]))] if is_frequency[relation] else []
        for rule, ((had, old), (has, new)) in traits.items():
            is_same = had[relation] == has[relation] and (old[relation] > MANY) == (new[relation] > MANY)
            if not is_same and abs(new[relation] - old[relation]) >= NOTICEABLE * old[relation]:
                changes.append(f"{old[relation]:.1f} to {new[relation]:.1f} {_plural(rule)}")
        if changes:
            row = {"relation": facts.joint.relations.name(relation), "change": "; ".join(changes)}
            sizes = {"before": int(counts[0][relation]), "after": int(counts[1][relation])}
            rows.append(row | sizes)
    rows.sort(key=lambda row: (-abs(row["after"] - row["before"]), row["relation"]))
    return Listed.of(rows, top)


def _frequency(ratio: float) -> str:
    return f"{ratio:.1f} times as frequent" if ratio > 1 else f"1/{1 / ratio:.1f} as frequent"


def _plural(rule: str) -> str:
    """tails per head, for one tail per head."""
    return rule.removeprefix("one ").replace(" per ", "s per ")
