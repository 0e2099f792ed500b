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
        hidden: Triples | None,
        *,
        constraints: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> HiddenEvidence:
        """Evidence for facts, each as if the fact beside it in `hidden` were not known: itself, where it is known.

        `folds` (n,) are the folds by whose vectors they are judged. Costs two queries of constraints for each fact; without
        `constraints` little, and the columns BY_CONSTRAINTS are 0.
        """
        columns = {name: torch.zeros(len(facts), dtype=torch.float64) for name in FEATURES}
        rivals = {slot: torch.zeros(len(facts), dtype=torch.int64) for slot in Slot}
        self._set_by_relation(facts, hidden, columns)
        size = max(1, CELLS // self.opened.graph.n_entities)
        for relation in facts.relation.unique().tolist():
            of_relation = (facts.relation == relation).nonzero()[:, 0]
            for slot in SLOTS:
                name, other = slot.value, "head" if slot is Slot.TAIL else "tail"
                types = self.opened.types.of_slot(slot, relation, typed=False).log_odds.clamp(-TYPE_LIMIT, TYPE_LIMIT)
                columns[f"{name} type"][of_relation] = types[facts[slot][of_relation]]
                columns[f"{other} type exchanged"][of_relation] = types[facts[OTHER_END[slot]][of_relation]]
                for rows in of_relation.split(size):
                    block, hiding = facts[rows], None if hidden is None else hidden[rows]
                    vectors = self.vectors.scores(slot, block, folds[rows])
                    if constraints:
                        symbolic, weight = self._constraints(slot, relation, block, hiding)
                        harmony = symbolic + weight * vectors
                        columns[f"{name} margin"][rows], rivals[slot][rows] = self._compare(
                            slot, harmony, block, hiding
                        )
                        columns[f"{name} by constraints"][rows] = self._compare(slot, symbolic, block, hiding)[0]
                    columns[f"{name} by vectors"][rows] = self._compare(slot, vectors, block, hiding)[0]
                    if progress:
                        progress(len(rows))
        for rows in torch.arange(len(facts)).split(size):
            scores = self.vectors.scores(Slot.RELATION, facts[rows], folds[rows])
            columns["relation by vectors"][rows], rivals[Slot.RELATION][rows] = self._compare(
                Slot.RELATION, scores, facts[rows], None if hidden is None else hidden[rows]
            )
        return HiddenEvidence(torch.stack([columns[name] for name in FEATURES], dim=1), rivals)

    def _constraints(self, slot: Slot, relation: int, facts: Triples, hidden: Triples | None) -> tuple[Tensor, float]:
        """(n, n_entities) float32: the harmony of constraints; the weight of the vectors beside them."""
        grammar = self.opened.grammar
        if grammar is None:
            return torch.zeros(len(facts), self.opened.graph.n_entities), 1.0
        given, hides = facts[OTHER_END[slot]].numpy(), _answers_hidden(slot, facts, hidden)
        harmony = torch.empty(len(facts), self.opened.graph.n_entities)
        for rows, answers in ((~hides, None), (hides, hidden)):
            if rows.any():
                number = rows.nonzero()[:, 0]
                values = None if answers is None else answers[slot][number].numpy()
                harmony[number] = torch.from_numpy(
                    grammar.symbolic_of(slot, relation, given[number.numpy()], values)
                ).float()
        return harmony, float(grammar.weights.of(slot, relation)[0])

    def _compare(self, slot: Slot, scores: Tensor, facts: Triples, hidden: Triples | None) -> tuple[Tensor, Tensor]:
        """(n,) twice: the margin of each answer, and its best rival. Changes `scores`."""
        row, other = self._other_answers(slot, facts, hidden)
        answer = facts[slot]
        own = scores.gather(1, answer[:, None])[:, 0]
        scores[row, other] = -torch.inf
        scores.scatter_(1, answer[:, None], -torch.inf)
        margin = (own - scores.logsumexp(1)).double().nan_to_num(nan=LIMIT).clamp(-LIMIT, LIMIT)
        return margin, scores.argmax(1)

    def _other_answers(self, slot: Slot, facts: Triples, hidden: Triples | None) -> tuple[Tensor, Tensor]:
        """(row, answer) pairs of the other known answers to each query, without hidden ones."""
        row, other = self.opened.known(slot).of(facts)
        kept = other != facts[slot][row]
        if hidden is not None:
            kept &= ~(_answers_hidden(slot, facts, hidden)[row] & (other == hidden[slot][row]))
        return row[kept], other[kept]

    def _set_by_relation(self, facts: Triples, hidden: Triples | None, columns: dict[str, Tensor]) -> None:
        """The features that count how facts of a relation usually look."""
        habits = self._habits
        for slot in SLOTS:
            has_other = torch.zeros(len(facts), dtype=torch.bool)
            has_other[self._other_answers(slot, facts, hidden)[0]] = True
            columns[f"second {slot.value}"] += has_other * habits.several[slot][facts.relation].log()
        exchanged = Triples(facts.tail, facts.relation, facts.head)
        is_known = self.opened.known(Slot.TAIL).contain(exchanged)
        if hidden is not None:
            is_known &= (exchanged.to_rows() != hidden.to_rows()).any(1)
        columns["other direction"] += is_known.double() * (1 - habits.symmetric[facts.relation])
        columns["loop"] += (facts.head == facts.tail).double() * (1 - habits.loops[facts.relation])
        others = self._other_answers(Slot.RELATION, facts, hidden)[0]
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


def _answers_hidden(slot: Slot, facts: Triples, hidden: Triples | None) -> Tensor:
    """(n,) bool: whether the hidden fact answers the query that each fact answers."""
    if hidden is None:
        return torch.zeros(len(facts), dtype=torch.bool)
    return torch.stack([facts[other] == hidden[other] for other in Slot if other is not slot]).all(0)


def _share(relation: Tensor, holds: Tensor, n_relations: int) -> Tensor:
    """(n_relations,): of the rows of each relation the share for which something holds."""
    total = relation.bincount(minlength=n_relations).clamp(min=1)
    return relation[holds].bincount(minlength=n_relations).double() / total
