"""Numbers and dates among the entities of a graph: values, which are never useful as answers or missing facts.

A table of facts often holds values beside entities: (Zinc, density, 7.14), (Ada Lovelace, born, 1815-12-10). Read from a
CSV they become entities. They are recognised by content, a relation at a time: if nearly all tails of a relation are
numbers or dates, the relation is literal-valued, and its tails are literals unless they are also entities elsewhere.
A code that happens to be a number stays an entity: a tail that is a head of other facts, or the tail of a relation
between entities, names something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from harmonium.data.graph import Graph

MIN_VALUE_SHARE = 0.9  # of the facts of a literal-valued relation: their tail is a number or a date
MIN_FACTS_OF_LITERALS = 5  # a relation with fewer is never literal-valued
MAX_VALUE_HEADS = 0.1  # share of heads that look like values; above it they are identifiers, as in WN18RR
HEADS_SAMPLED = 10_000
UNIT = r"(?!(?:st|nd|rd|th)$)(?:[^\W\d_]{1,4}|%|°[CF]?|[€$£¥])(?:[²³]|/[^\W\d_]{1,4}[²³]?)?"  # kg, %, °C, km², g/cm³
DIGITS = r"(?:\d{1,3}(?:[,\u202f ]\d{3})+|\d+)(?:[.,]\d+)?|[.,]\d+"
NUMBER = re.compile(rf"(?:[~≈<>≤≥]\s?)?(?:[€$£¥]\s?)?[-+\u2212]?(?:{DIGITS})(?:[eE][-+]?\d+)?(?:\s?{UNIT})?")
MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    rf"[-+]?\d{{4}}-\d{{1,2}}(?:-\d{{1,2}})?(?:[T ]\d{{2}}:\d{{2}}.*)?"  # 1815-12-10T08:00:00Z
    rf"|\d{{1,4}}[./]\d{{1,2}}[./]\d{{1,4}}"  # 10.12.1815, 12/10/1815
    rf"|\d{{1,2}}\.? {MONTH},? \d{{1,4}}|{MONTH} \d{{1,2}},? \d{{1,4}}|{MONTH} \d{{4}}"  # 10 December 1815
    r"|\d{1,2}:\d{2}(?::\d{2})?(?: ?[AP]M)?",  # 8:30
    re.IGNORECASE,
)


def is_value(name: str) -> bool:
    """Whether a name is a number, with a unit or not, or a date or time."""
    if not any(character.isdecimal() for character in name):
        return False
    return NUMBER.fullmatch(name) is not None or DATE.fullmatch(name) is not None


@dataclass(frozen=True)
class Literals:
    """Which relations have values as tails, and which entities are such values."""

    relations: Tensor  # (n_relations,) bool
    entities: Tensor  # (n_entities,) bool

    @classmethod
    def infer(cls, graph: Graph) -> Literals:
        """Infer them from the names in all splits. Only tails that are never heads are examined."""
        facts, name = graph.facts(), graph.entities.name
        is_literal = torch.zeros(graph.n_entities, dtype=torch.bool)
        relations = torch.zeros(graph.n_relations, dtype=torch.bool)
        heads = facts.head.unique()
        sample = heads[:: 1 + len(heads) // HEADS_SAMPLED].tolist()
        if sum(is_value(name(entity)) for entity in sample) > MAX_VALUE_HEADS * len(sample):
            return cls(relations, is_literal)
        candidates = _marked(facts.tail, graph.n_entities) & ~_marked(heads, graph.n_entities)
        for entity in candidates.nonzero()[:, 0].tolist():
            is_literal[entity] = is_value(name(entity))
        total = facts.relation.bincount(minlength=graph.n_relations)
        of_values = facts.relation[is_literal[facts.tail]].bincount(minlength=graph.n_relations)
        relations = (total >= MIN_FACTS_OF_LITERALS) & (of_values >= MIN_VALUE_SHARE * total)
        elsewhere = _marked(facts.tail[~relations[facts.relation]], graph.n_entities)  # where tails name something
        return cls(relations, is_literal & ~elsewhere)

    def __len__(self) -> int:
        return int(self.entities.sum())


def _marked(ids: Tensor, size: int) -> Tensor:
    """(size,) bool: whether each id below `size` occurs in `ids`."""
    return torch.zeros(size, dtype=torch.bool).index_fill_(0, ids, True)
