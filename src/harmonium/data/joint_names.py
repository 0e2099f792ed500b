"""Two graphs in one numbering of their entities and relations, which are matched by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class JointNames:
    """The names of two vocabularies: those of the first keep their ids, those of the second alone follow."""

    first: Vocabulary
    second: Vocabulary
    joint_of_second: Tensor  # (n_second,): the joint id of each name of the second
    by_label: bool  # matched by label, as the two have no identifier in common

    @classmethod
    def of(cls, first: Vocabulary, second: Vocabulary) -> JointNames:
        """Names are matched by identifier or, where no identifier is in both, by label if labels are unique."""
        joint = _match(list(first.ids), list(second.ids))
        has_labels = first.labels is not None or second.labels is not None
        if has_labels and len(first) and len(second) and not (joint < len(first)).any():
            titles = first.titles(), second.titles()
            by_label = _match(list(titles[0]), list(titles[1]))
            if (by_label < len(first)).any():
                return cls(first, second, by_label, True)
        return cls(first, second, joint, False)

    def __len__(self) -> int:
        return len(self.first) + len(self.added)

    @cached_property
    def added(self) -> Tensor:
        """(k,): positions in the second of the names that the first does not have."""
        return (self.joint_of_second >= len(self.first)).nonzero()[:, 0]

    @cached_property
    def second_of_joint(self) -> Tensor:
        """(n,): the id in the second of each joint id, -1 for names of the first alone."""
        ids = torch.full((len(self),), -1)
        ids[self.joint_of_second] = torch.arange(len(self.second))
        return ids

    @cached_property
    def in_both(self) -> Tensor:
        """(n,) bool: whether each joint id is a name of both."""
        return (self.second_of_joint >= 0) & (torch.arange(len(self)) < len(self.first))

    def identifier(self, joint: int) -> str:
        return self.first.ids[joint] if joint < len(self.first) else self.second.ids[int(self.second_of_joint[joint])]

    def name(self, joint: int) -> str:
        """The readable name; of names that both have, that of the second."""
        position = int(self.second_of_joint[joint])
        return self.first.name(joint) if position < 0 else self.second.name(position)


def _match(first: list[str], second: list[str]) -> Tensor:
    """(n_second,): the position of each name in the first or, for the others, the next free number."""
    if first == second:
        return torch.arange(len(second))
    numbers = {name: position for position, name in enumerate(first)}
    free = len(first)
    joint = []
    for name in second:
        number = numbers.setdefault(name, free)
        free += number == free
        joint.append(number)
    return torch.tensor(joint, dtype=torch.int64)


@dataclass(frozen=True)
class JointGraphs:
    """Two graphs whose facts are given in joint ids."""

    graphs: tuple[Graph, Graph]
    entities: JointNames
    relations: JointNames

    @classmethod
    def of(cls, first: Graph, second: Graph) -> JointGraphs:
        names = (JointNames.of(getattr(first, kind), getattr(second, kind)) for kind in ("entities", "relations"))
        return cls((first, second), *names)

    def to_joint(self, side: int, triples: Triples) -> Triples:
        """Facts of the first (0) or the second (1) graph in joint ids."""
        if side == 0:
            return triples
        entity, relation = self.entities.joint_of_second, self.relations.joint_of_second
        head, tail = entity[triples.head], entity[triples.tail]
        return replace(triples, head=head, relation=relation[triples.relation], tail=tail)

    def from_joint(self, side: int, triples: Triples) -> tuple[Triples, Tensor]:
        """Facts in joint ids as facts of one graph, and which of them it can express (n,): it has all three names."""
        if side == 0:
            n_entities, n_relations = len(self.entities.first), len(self.relations.first)
            known = (triples.head < n_entities) & (triples.tail < n_entities) & (triples.relation < n_relations)
            return triples[known], known
        entity, relation = self.entities.second_of_joint, self.relations.second_of_joint
        ids = replace(
            triples, head=entity[triples.head], relation=relation[triples.relation], tail=entity[triples.tail]
        )
        known = (ids.head >= 0) & (ids.relation >= 0) & (ids.tail >= 0)
        return ids[known], known

    def row(self, head: int, relation: int, tail: int) -> dict[str, str]:
        """A fact in joint ids: its identifiers, and its names as text."""
        names = self.entities.name(head), self.relations.name(relation), self.entities.name(tail)
        return {
            "head": self.entities.identifier(head),
            "relation": self.relations.identifier(relation),
            "tail": self.entities.identifier(tail),
            "text": ", ".join(names),
        }

    def rows(self, triples: Triples) -> list[dict[str, str]]:
        return [self.row(*ids) for ids in triples.to_rows().tolist()]
