"""One-step rules between relations, such as "next is the inverse of before", mined by counting.

Where facts have weights, a fact counts by its weight divided by the mean of all, and two facts together by the smaller of
their weights: facts that all weigh the same count like facts without weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Triples

RULE_KINDS = ("inverse", "duplicate", "implied", "symmetric")
MIN_REDUNDANCY = 0.8  # share of pairs in common from which two relations are redundant
MIN_SUPPORT = 3  # pairs that two relations must share before that counts as more than chance
ROUNDING_ERROR = 1e-9  # tolerated in sums of weights
MAX_JOINED = 1 << 22  # rows of a join held at once


@dataclass(frozen=True)
class Rules:
    """(h, body, t) implies (h, head, t) or, if reversed, (t, head, h); in ascending order of `cell`."""

    body: Tensor  # (n,) int64 relation
    head: Tensor  # (n,) int64 relation
    reversed: Tensor  # (n,) bool
    support: Tensor  # (n,): pairs of entities for which body and head hold; int64, or float64 with weights
    facts: Tensor  # (n_relations,): pairs of each relation, self-loops excluded; dtype as of support

    @property
    def confidence(self) -> Tensor:
        """(n,): the share of the body's facts for which the head holds as well."""
        return self.support.double() / self.facts[self.body]

    @property
    def coverage(self) -> Tensor:
        """(n,): the share of the head's facts that the rule implies."""
        return self.support.double() / self.facts[self.head]

    @property
    def kind(self) -> Tensor:
        """(n,): index into RULE_KINDS, for confident rules: redundant both ways, one way only, or a relation with itself."""
        mutual = torch.where(self.reversed, RULE_KINDS.index("inverse"), RULE_KINDS.index("duplicate"))
        kind = torch.where(self.coverage >= MIN_REDUNDANCY, mutual, RULE_KINDS.index("implied"))
        return torch.where(self.body == self.head, RULE_KINDS.index("symmetric"), kind)

    @property
    def cell(self) -> Tensor:
        """(n,): reversed, body and head encoded as one number."""
        return _cell(self.reversed, self.body, self.head, len(self.facts))

    def __len__(self) -> int:
        return len(self.body)

    def __getitem__(self, index: Tensor) -> Rules:
        return Rules(self.body[index], self.head[index], self.reversed[index], self.support[index], self.facts)


def _cell(reversed: Tensor | bool, body: Tensor, head: Tensor, n_relations: int) -> Tensor:
    return (reversed * n_relations + body) * n_relations + head


def relations_by_pair(facts: Triples, n_entities: int) -> CsrIndex:
    """head * n_entities + tail -> the relations between them."""
    return CsrIndex.build(facts.head * n_entities + facts.tail, facts.relation)


def join(index: CsrIndex, keys: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """`index.lookup` in parts of bounded size."""
    longest = int(index.offsets.diff().max()) if len(index.keys) else 1
    size = max(1, MAX_JOINED // max(1, longest))
    for start in range(0, len(keys), size):
        row, value = index.lookup(keys[start : start + size])
        yield row + start, value


def mine_rules(
    facts: Triples,
    n_entities: int,
    n_relations: int,
    confidence: float = MIN_REDUNDANCY,
    support: int = MIN_SUPPORT,
) -> Rules:
    """All one-step rules with enough confidence and support; self-loops, which have no direction, are ignored."""
    facts = facts[facts.head != facts.tail].positive()
    pairs = relations_by_pair(facts, n_entities)
    pair, relation = torch.repeat_interleave(pairs.keys, pairs.offsets.diff()), pairs.values
    weight = _relative_weights(facts, Triples(pair // n_entities, relation, pair % n_entities))
    swapped = pair % n_entities * n_entities + pair // n_entities
    rows = CsrIndex(pairs.keys, pairs.offsets, torch.arange(len(pair)))  # pair -> rows of `relation`
    cells, counts = [pair.new_empty(0)], [weight[:0]]
    for reversed, keys in ((False, pair), (True, swapped)):
        for row, other in join(rows, keys):
            cell = _cell(reversed, relation[row], relation[other], n_relations)
            cell, inverse = torch.unique(cell, return_inverse=True)
            shared = weight[row].minimum(weight[other])
            cells.append(cell)
            counts.append(weight.new_zeros(len(cell)).index_add_(0, inverse, shared))
    cell, inverse = torch.unique(torch.cat(cells), return_inverse=True)
    total = weight.new_zeros(len(cell)).index_add_(0, inverse, torch.cat(counts))
    body, head, is_reversed = cell // n_relations % n_relations, cell % n_relations, cell >= n_relations**2
    rules = Rules(body, head, is_reversed, total, weight.new_zeros(n_relations).index_add_(0, relation, weight))
    trivial = (body == head) & ~is_reversed
    return rules[~trivial & (rules.confidence >= confidence - ROUNDING_ERROR) & (total >= support - ROUNDING_ERROR)]


def _relative_weights(facts: Triples, triples: Triples) -> Tensor:
    """(n,): how much each triple, which must be a fact, counts: 1, or its weight divided by the mean weight."""
    if facts.weight is None or not len(facts):
        return torch.ones(len(triples), dtype=torch.int64)
    rows, inverse = torch.cat([facts.to_rows(), triples.to_rows()]).unique(dim=0, return_inverse=True)
    weight = torch.zeros(len(rows), dtype=torch.float64)
    weight.scatter_reduce_(0, inverse[: len(facts)], facts.weight, "amax")  # of a fact that is given twice, the largest
    return weight[inverse[len(facts) :]] / facts.weight.mean()


def find_implied(triples: Triples, train: Triples, rules: Rules, n_entities: int) -> tuple[Tensor, Tensor]:
    """(kinds, n): whether a rule of each kind implies each triple from train; (rules,): how many each rule implies."""
    pairs, kind, cells = relations_by_pair(train, n_entities), rules.kind, rules.cell
    implied = torch.zeros(len(RULE_KINDS), len(triples), dtype=torch.bool)
    counts = torch.zeros(len(rules), dtype=torch.int64)
    if not len(rules):
        return implied, counts
    keys = triples.head * n_entities + triples.tail
    swapped = triples.tail * n_entities + triples.head
    for reversed, pair in ((False, keys), (True, swapped)):
        for row, body in join(pairs, pair):
            cell = _cell(reversed, body, triples.relation[row], len(rules.facts))
            rule = torch.searchsorted(cells, cell).clamp_(max=len(rules) - 1)
            hit = cells[rule] == cell
            implied[kind[rule[hit]], row[hit]] = True
            counts += rule[hit].bincount(minlength=len(rules))
    return implied, counts
