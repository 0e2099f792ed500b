"""The facts of two graphs side by side: in which splits of which graph each of them is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.joint_names import JointGraphs
from harmonium.data.triples import Triples

SAME_WEIGHT = 1e-9  # weights that differ by less are equal


def split_names(mask: int) -> str:
    """The splits of a mask, such as train+test; empty for none."""
    return "+".join(split for bit, split in enumerate(SPLITS) if mask >> bit & 1)


@dataclass(frozen=True)
class JointFacts:
    """All distinct facts of two graphs, in the order in which they first occur."""

    joint: JointGraphs
    triples: Triples  # (n) in joint ids, without weights
    splits: Tensor  # (2, n): a bit for each split of the first and of the second graph that has the fact
    weights: Tensor  # (2, n) float64: 1 where a graph has no weights; 0 where it lacks the fact

    @classmethod
    def of(cls, first: Graph, second: Graph) -> JointFacts:
        joint = JointGraphs.of(first, second)
        parts, bits = [], []
        for side, graph in enumerate(joint.graphs):
            for number_of_split, triples in enumerate(graph.splits.values()):
                parts.append(joint.to_joint(side, triples))
                bits.append(torch.full((len(triples),), 3 * side + number_of_split))
        facts, bit = Triples.cat(parts), torch.cat(bits)
        number, first_row = _number(facts, len(joint.entities), len(joint.relations))
        splits = torch.zeros(2, len(first_row), dtype=torch.int64)
        pairs = (number * 6 + bit).unique()  # a fact may be repeated within a split
        splits.view(-1).index_add_(0, pairs % 6 // 3 * len(first_row) + pairs // 6, 1 << pairs % 3)
        weights = torch.zeros(2, len(first_row), dtype=torch.float64)
        weights.view(-1).scatter_reduce_(0, bit // 3 * len(first_row) + number, facts.weights(), "amax")
        return cls(joint, replace(facts[first_row], weight=None), splits, weights)

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def added(self) -> Tensor:
        """(n,) bool: facts of the second graph alone."""
        return self.splits[0] == 0

    @property
    def removed(self) -> Tensor:
        """(n,) bool: facts of the first graph alone."""
        return self.splits[1] == 0

    @property
    def kept(self) -> Tensor:
        """(n,) bool: facts of both graphs."""
        return ~self.added & ~self.removed

    @property
    def reweighted(self) -> Tensor:
        """(n,) bool: facts of both graphs with another weight."""
        return self.kept & ((self.weights[0] - self.weights[1]).abs() > SAME_WEIGHT)

    def held_out_in_both(self, split: str) -> Tensor:
        """(n,) bool: facts in this split of both graphs that neither trains on."""
        bit = 1 << SPLITS.index(split)
        return ((self.splits & bit) > 0).all(0) & ((self.splits & 1) == 0).all(0)


def _number(facts: Triples, n_entities: int, n_relations: int) -> tuple[Tensor, Tensor]:
    """(n,): a number for each fact, equal for equal ones, and (m,): the first row of each number, ascending."""
    pair = (facts.head * n_entities + facts.tail).unique(return_inverse=True)[1]
    number = (pair * n_relations + facts.relation).unique(return_inverse=True)[1]
    count = int(number.max()) + 1 if len(number) else 0
    first = torch.full((count,), len(number)).scatter_reduce_(0, number, torch.arange(len(number)), "amin")
    order = first.argsort()
    return order.argsort()[number], first[order]


def with_splits_of(graph: Graph, other: Graph) -> Graph:
    """A graph whose facts are in the split that they have in another graph, the others in train.

    For two versions of a graph of which this one has no splits: what changes is then due to the facts alone.
    """
    facts = JointFacts.of(graph, other)
    triples, _ = facts.joint.from_joint(0, facts.triples[facts.splits[0] > 0])
    mask = facts.splits[1][facts.splits[0] > 0]
    in_train = (mask == 0) | ((mask & 1) > 0)
    in_valid = ~in_train & ((mask & 2) > 0)
    parts = (triples[rows] for rows in (in_train, in_valid, ~in_train & ~in_valid))
    train, valid, test = parts
    return replace(graph, train=train, valid=valid, test=test)
