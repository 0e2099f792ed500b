"""Facts of a newer graph that contradict what an older version of it led to expect.

An older graph in which every country has one capital makes a second capital suspicious, whoever is right. Four such
expectations are checked: one tail per head, one head per tail, no fact of an entity with itself, and one direction only.
Entities and relations of the two graphs are matched by identifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary

MIN_QUERIES = 5  # heads (tails) that a relation needs before "one tail per head" ("one head per tail") is checked
MIN_SINGLE_SHARE = 0.95  # of these heads (tails) that have exactly one tail (head)
MIN_FACTS = 20  # facts that a relation needs before self-loops and reversed facts count as exceptions


@dataclass(frozen=True)
class Contradictions:
    """New facts that contradict an older graph, in ascending order of how often their relation breaks the rule.

    The first ones are the most likely mistakes: a rule that many new facts break has probably changed.
    """

    COLUMNS: ClassVar = ("relation", "rule", "entity", "now", "times")

    older: str
    count: int
    rows: Sequence[dict[str, Any]]  # the first `top` contradictions, with the keys COLUMNS

    @property
    def sentence(self) -> str:
        return f"{self.count:,} facts contradict what held in {self.older}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_contradictions(older: Graph, newer: Graph, top: int = 10) -> Contradictions:
    """New facts that break a rule which held in the older graph: their number, and the first `top` as rows."""
    return _Comparison.of(older, newer).contradictions(older.name, top)


@dataclass(frozen=True)
class _Comparison:
    """The distinct facts of both graphs, in the ids of the newer one."""

    graph: Graph  # the newer
    old: Triples
    new: Triples
    added: Tensor  # (new,) bool: not among the old facts
    n_entities: int  # of both graphs together
    n_relations: int

    @classmethod
    def of(cls, older: Graph, newer: Graph) -> _Comparison:
        entity, n_entities = _match(newer.entities, older.entities)
        relation, n_relations = _match(newer.relations, older.relations)
        facts = older.facts()
        old = _distinct(Triples(entity[facts.head], relation[facts.relation], entity[facts.tail]))
        new = _distinct(newer.facts())
        added = ~KnownAnswers.build(Slot.TAIL, old, n_entities).contain(new)
        return cls(newer, old, new, added, n_entities, n_relations)

    def contradictions(self, older: str, top: int) -> Contradictions:
        checks = [self._second_answers(Slot.HEAD), self._second_answers(Slot.TAIL), *self._new_exceptions()]
        count, rows = 0, list[dict[str, Any]]()
        for rule, given, queries in checks:
            count += len(queries)
            times = queries.relation.bincount(minlength=1)[queries.relation]
            for row in times.argsort(stable=True)[:top].tolist():
                rows.append(self._row(rule, given, queries[row : row + 1], int(times[row])))
        return Contradictions(older, count, sorted(rows, key=lambda row: row["times"])[:top])

    def _second_answers(self, given: Slot) -> tuple[str, Slot, Triples]:
        """Entities with several answers now, of a relation that used to have one for each; one triple per entity."""
        keys, first, count = _queries(self.new, given, self.n_entities)
        old_keys, old_first, old_count = _queries(self.old, given, self.n_entities)
        relation = self.old.relation[old_first]
        total, single = (
            relation[mask].bincount(minlength=self.n_relations) for mask in (old_count > 0, old_count == 1)
        )
        has_one = (total >= MIN_QUERIES) & (single >= MIN_SINGLE_SHARE * total)
        had_several = torch.isin(keys, old_keys[old_count > 1])
        broken = has_one[self.new.relation[first]] & (count > 1) & ~had_several
        rule = "one tail per head" if given is Slot.HEAD else "one head per tail"
        return rule, given, self.new[first[broken]]

    def _new_exceptions(self) -> list[tuple[str, Slot, Triples]]:
        """New self-loops and new facts whose reverse is a fact too, of relations that had none in the older graph."""
        is_loop, was_loop = (facts.head == facts.tail for facts in (self.new, self.old))
        is_reversed, was_reversed = (_has_reverse(facts, self.n_entities) for facts in (self.new, self.old))
        size = self.old.relation.bincount(minlength=self.n_relations)
        exceptions = []
        for rule, now, before in (
            ("no entity with itself", is_loop, was_loop),
            ("one direction only", is_reversed, was_reversed),
        ):
            keeps = (size >= MIN_FACTS) & (self.old.relation[before].bincount(minlength=self.n_relations) == 0)
            exceptions.append((rule, Slot.HEAD, self.new[now & self.added & keeps[self.new.relation]]))
        return exceptions

    def _row(self, rule: str, given: Slot, query: Triples, times: int) -> dict[str, Any]:
        """One contradiction as a row; `now` has all answers of the query; of a self-loop or reversed fact only its own."""
        open_slot = Slot.TAIL if given is Slot.HEAD else Slot.HEAD
        same = (self.new.relation == query.relation) & (self.new[given] == query[given])
        if not rule.endswith(f"per {given.value}"):
            same &= self.new[open_slot] == query[open_slot]
        answers = [
            self.graph.entities.name(int(self.new[open_slot][row])) + " (new)" * bool(self.added[row])
            for row in same.nonzero()[:, 0].tolist()
        ]
        names = self.graph.relations.name(int(query.relation)), self.graph.entities.name(int(query[given]))
        return dict(zip(Contradictions.COLUMNS, (names[0], rule, names[1], ", ".join(answers), times), strict=True))


def _match(names: Vocabulary, others: Vocabulary) -> tuple[Tensor, int]:
    """(others,): the id in `names` of each other name, a new id where it has none; and the number of ids."""
    ids = {name: position for position, name in enumerate(names.ids)}
    matched = [ids.setdefault(name, len(ids)) for name in others.ids]
    return torch.tensor(matched, dtype=torch.int64), len(ids)


def _distinct(facts: Triples) -> Triples:
    return Triples.from_rows(facts.to_rows().unique(dim=0)) if len(facts) else facts


def _queries(facts: Triples, given: Slot, n_entities: int) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct queries, encoded as one number each; the row of the first fact and the number of facts of each."""
    keys, inverse, count = (facts.relation * n_entities + facts[given]).unique(return_inverse=True, return_counts=True)
    first = torch.full((len(keys),), len(facts)).scatter_reduce_(0, inverse, torch.arange(len(facts)), "amin")
    return keys, first, count


def _has_reverse(facts: Triples, n_entities: int) -> Tensor:
    """(n,) bool: whether the fact with head and tail exchanged is a fact too; False for self-loops."""
    reverse = Triples(facts.tail, facts.relation, facts.head)
    return KnownAnswers.build(Slot.TAIL, facts, n_entities).contain(reverse) & (facts.head != facts.tail)
