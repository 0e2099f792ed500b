"""What everything but a fact itself says about it: how well its head, tail and relation stand against all rivals.

Constraints hide the fact (`Family.strengths(hidden=...)`), the vectors are those of the fold that has not seen it. Of each
harmony the log-odds of the head or tail are taken, by a softmax over the entities that are no other known answer:

    margin = harmony(answer) - log sum over the others of exp(harmony(other))

Copies of a fact that stay known, such as (t, r, h) of a symmetric relation, are evidence for it, through the path rule that
they satisfy. What a copy counts is learned together with everything else, so that it is not counted twice; but a wrong
fact that is stated in both directions supports itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.answers.audit.fold_vectors import FoldVectors
from harmonium.answers.open_run import OpenRun
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.grammar import CELLS, OTHER_END

FEATURES = (
    "tail margin",  # by vectors and constraints together
    "head margin",
    "tail by constraints",  # margins of either alone
    "head by constraints",
    "tail by vectors",
    "head by vectors",
    "relation by vectors",
    "tail type",  # log-odds that an entity fills the slot, by its other roles
    "head type",
    "tail type exchanged",  # the same where head and tail are exchanged
    "head type exchanged",
    "second tail",  # where the head has other tails: log of how often heads of the relation do
    "second head",
    "other direction",  # where the fact is known exchanged: how rarely that is so
    "loop",  # where head and tail are the same: likewise
    "other relations",  # log(1 + known relations from head to tail)
)
TAIL, HEAD, RELATION = 0, 1, 6  # columns of the margins by which changes are judged
BY_CONSTRAINTS = [0, 1, 2, 3]  # columns that need constraints, and with them nearly all the time
LIMIT, TYPE_LIMIT = 15.0, 9.0  # of margins and of types, beyond which they say no more
LEAST_SHARE = 1e-3
SLOTS = (Slot.TAIL, Slot.HEAD)


@dataclass(frozen=True)
class HiddenEvidence:
    """The evidence for some facts."""

    features: Tensor  # (n, len(FEATURES)) float64
    rivals: dict[Slot, Tensor]  # (n,) each: the best other candidate for the tail, the head and the relation

    def __getitem__(self, index: Tensor) -> HiddenEvidence:
        return HiddenEvidence(self.features[index], {slot: ids[index] for slot, ids in self.rivals.items()})


@dataclass(frozen=True)
class Witness:
    """Whoever can be asked about facts hidden from themselves: an opened run and vectors that have not seen them."""

    opened: OpenRun
    vectors: FoldVectors

    def hear(
        self,
        facts: Triples,
        folds: Tensor,
        *,
        are_known: bool,
        constraints: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> HiddenEvidence:
        """Evidence for facts of the graph (`are_known`), or for facts that it does not have.

        `folds` (n,) are the folds by whose vectors they are judged. Costs two queries of constraints for each fact; without
        `constraints` little, and the columns BY_CONSTRAINTS are 0.
        """
        columns = {name: torch.zeros(len(facts), dtype=torch.float64) for name in FEATURES}
        rivals = {slot: torch.zeros(len(facts), dtype=torch.int64) for slot in Slot}
        self._set_by_relation(facts, columns)
        size = max(1, CELLS // self.opened.graph.n_entities)
        for relation in facts.relation.unique().tolist():
            of_relation = (facts.relation == relation).nonzero()[:, 0]
            for slot in SLOTS:
                name, other = slot.value, "head" if slot is Slot.TAIL else "tail"
                types = self.opened.types.of_slot(slot, relation, typed=False).log_odds.clamp(-TYPE_LIMIT, TYPE_LIMIT)
                columns[f"{name} type"][of_relation] = types[facts[slot][of_relation]]
                columns[f"{other} type exchanged"][of_relation] = types[facts[OTHER_END[slot]][of_relation]]
                for rows in of_relation.split(size):
                    block = facts[rows]
                    vectors = self.vectors.scores(slot, block, folds[rows])
                    if constraints:
                        symbolic, weight = self._constraints(slot, relation, block, are_known)
                        harmony = symbolic + weight * vectors
                        columns[f"{name} margin"][rows], rivals[slot][rows] = self._compare(slot, harmony, block)
                        columns[f"{name} by constraints"][rows] = self._compare(slot, symbolic, block)[0]
                    columns[f"{name} by vectors"][rows] = self._compare(slot, vectors, block)[0]
                    if progress:
                        progress(len(rows))
        for rows in torch.arange(len(facts)).split(size):
            scores = self.vectors.scores(Slot.RELATION, facts[rows], folds[rows])
            columns["relation by vectors"][rows], rivals[Slot.RELATION][rows] = self._compare(
                Slot.RELATION, scores, facts[rows]
            )
        return HiddenEvidence(torch.stack([columns[name] for name in FEATURES], dim=1), rivals)

    def _constraints(self, slot: Slot, relation: int, facts: Triples, are_known: bool) -> tuple[Tensor, float]:
        """(n, n_entities) float32: the harmony of constraints, each fact hidden where it is known; the vectors' weight."""
        grammar = self.opened.grammar
        if grammar is None:
            return torch.zeros(len(facts), self.opened.graph.n_entities), 1.0
        given, answer = facts[OTHER_END[slot]].numpy(), facts[slot].numpy()
        symbolic = grammar.symbolic_of(slot, relation, given, answer if are_known else None)
        return torch.from_numpy(symbolic).float(), float(grammar.weights.of(slot, relation)[0])

    def _compare(self, slot: Slot, scores: Tensor, facts: Triples) -> tuple[Tensor, Tensor]:
        """(n,) twice: the margin of each answer, and its best rival. Changes `scores`."""
        row, other = self.opened.known(slot).of(facts)
        answer = facts[slot]
        is_other = other != answer[row]
        own = scores.gather(1, answer[:, None])[:, 0]
        scores[row[is_other], other[is_other]] = -torch.inf
        scores.scatter_(1, answer[:, None], -torch.inf)
        margin = (own - scores.logsumexp(1)).double().nan_to_num(nan=LIMIT).clamp(-LIMIT, LIMIT)
        return margin, scores.argmax(1)

    def _set_by_relation(self, facts: Triples, columns: dict[str, Tensor]) -> None:
        """The features that count how facts of a relation usually look."""
        habits, known = self._habits, self.opened.known(Slot.TAIL)
        for slot in SLOTS:
            row, answer = self.opened.known(slot).of(facts)
            has_other = torch.zeros(len(facts), dtype=torch.bool)
            has_other[row[answer != facts[slot][row]]] = True
            columns[f"second {slot.value}"] += has_other * habits.several[slot][facts.relation].log()
        exchanged = known.contain(Triples(facts.tail, facts.relation, facts.head)).double()
        columns["other direction"] += exchanged * (1 - habits.symmetric[facts.relation])
        columns["loop"] += (facts.head == facts.tail).double() * (1 - habits.loops[facts.relation])
        row, relation = self.opened.known(Slot.RELATION).of(facts)
        others = row[relation != facts.relation[row]]
        columns["other relations"] += others.bincount(minlength=len(facts)).double().log1p()

    @cached_property
    def _habits(self) -> Habits:
        return Habits.count(self.opened)


@dataclass(frozen=True)
class Habits:
    """How facts of each relation look, each (n_relations,) float64."""

    several: dict[Slot, Tensor]  # share of the queries with several answers, at least LEAST_SHARE
    symmetric: Tensor  # share of the facts that are known exchanged
    loops: Tensor  # share of the facts of an entity with itself

    @classmethod
    def count(cls, opened: OpenRun) -> Habits:
        graph, facts = opened.graph, opened.graph.facts()
        n, size = graph.n_relations, graph.n_entities
        several = {}
        for slot in SLOTS:
            index = opened.known(slot).index
            relation, count = index.keys // size, index.offsets.diff()
            several[slot] = _share(relation, count > 1, n).clamp(min=LEAST_SHARE)
        exchanged = opened.known(Slot.TAIL).contain(Triples(facts.tail, facts.relation, facts.head))
        return cls(several, _share(facts.relation, exchanged, n), _share(facts.relation, facts.head == facts.tail, n))


def _share(relation: Tensor, holds: Tensor, n_relations: int) -> Tensor:
    """(n_relations,): of the rows of each relation the share for which something holds."""
    total = relation.bincount(minlength=n_relations).clamp(min=1)
    return relation[holds].bincount(minlength=n_relations).double() / total
