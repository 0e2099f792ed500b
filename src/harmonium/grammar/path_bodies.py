"""Bodies of path rules: which paths connect the ends of many facts of a relation.

Paths are walked from both ends of a sample of the facts and joined where they meet in the middle; the bodies that connect
the most facts come first. Only so many edges of an entity are followed, drawn at random, so that hubs cost no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Triples
from harmonium.grammar.walks import Body

LENGTHS = 3, 5  # the longest body: at least and at most
MANY_WALKS = 100_000  # bodies are no longer than the length at which the median entity of a fact starts so many walks
EDGES = 100, 30, 10  # followed at most from each entity, at the first, second and third step from an end of a fact
MIN_SUPPORT = 3  # sampled facts that a body must connect
MAX_FACTS = 5000  # of a relation, whose ends are connected
LARGEST_CODE = 2**62 // MAX_FACTS  # of a body as one number, so that it fits 64 bits with the number of a fact


def longest_body(facts: Triples, n_entities: int, n_relations: int) -> int:
    """How many steps bodies may have: more where entities have few facts, so that long walks are few."""
    least, most = LENGTHS
    most = min(most, int(math.log(LARGEST_CODE) / math.log(2 * n_relations + 1)))
    walks = torch.ones(n_entities, dtype=torch.float64)
    for length in range(1, most + 1):
        ahead, back = walks[facts.tail], walks[facts.head]
        walks = torch.zeros_like(walks).index_add_(0, facts.head, ahead).index_add_(0, facts.tail, back)
        if length > least and walks[torch.cat([facts.head, facts.tail])].median() > MANY_WALKS:
            return length - 1
    return most


@dataclass(frozen=True)
class _Walks:
    """Walks from one end of facts."""

    fact: Tensor  # (m,) number of the fact
    entities: list[Tensor]  # (m,) each, from the start on
    steps: list[Tensor]  # (m,) each

    def extend(self, edges: CsrIndex, count: int, n_steps: int, generator: torch.Generator) -> _Walks:
        """One step further, along at most `count` edges of each entity, to entities that a walk has not visited."""
        source, edge = edges.sample(self.entities[-1], count, generator)
        entity, step = edge // n_steps, edge % n_steps
        visited = torch.stack([before[source] == entity for before in self.entities]).any(0)
        source, entity, step = source[~visited], entity[~visited], step[~visited]
        before = [each[source] for each in self.entities]
        return _Walks(self.fact[source], [*before, entity], [*(each[source] for each in self.steps), step])


def find_bodies(
    edges: CsrIndex, facts: Triples, n_relations: int, length: int, generator: torch.Generator
) -> list[Body]:
    """Bodies that connect the heads of facts of one relation with their tails, those that connect the most facts first."""
    n_steps, numbers = 2 * n_relations, torch.arange(len(facts))
    forwards, backwards = ([_Walks(numbers, [end], [])] for end in (facts.head, facts.tail))
    for count in EDGES[: (length + 1) // 2]:
        forwards.append(forwards[-1].extend(edges, count, n_steps, generator))
    for count in EDGES[: length // 2]:
        backwards.append(backwards[-1].extend(edges, count, n_steps, generator))
    halves = ((forwards[(n + 1) // 2], backwards[n // 2]) for n in range(1, length + 1))
    connected = torch.cat([_connect(*half, len(facts), n_relations) for half in halves]).unique()
    codes, support = (connected // max(1, len(facts))).unique_consecutive(return_counts=True)
    codes, support = codes[support >= MIN_SUPPORT], support[support >= MIN_SUPPORT]
    ranked = codes[support.argsort(descending=True, stable=True)].tolist()
    bodies = [_decode(code, n_steps) for code in ranked]
    return [body for body in bodies if body != (int(facts.relation[0]),)]


def _decode(code: int, n_steps: int) -> Body:
    """The steps of a body from one number, whose digits they are in base n_steps + 1; no digit is zero."""
    steps = []
    while code:
        code, digit = divmod(code, n_steps + 1)
        steps.append(digit - 1)
    return tuple(reversed(steps))


def _connect(forwards: _Walks, backwards: _Walks, n_facts: int, n_relations: int) -> Tensor:
    """(m,): walks from heads joined with walks from tails where they meet: the code of the body * n_facts + the fact."""
    n_steps = 2 * n_relations
    meeting = CsrIndex.build(backwards.entities[-1] * n_facts + backwards.fact, torch.arange(len(backwards.fact)))
    first, second = meeting.lookup(forwards.entities[-1] * n_facts + forwards.fact)
    disjoint = torch.ones(len(first), dtype=torch.bool)
    for before in forwards.entities[:-1]:
        for after in backwards.entities[:-1]:
            disjoint &= before[first] != after[second]
    first, second = first[disjoint], second[disjoint]
    steps = [step[first] for step in forwards.steps]
    steps += [(step[second] + n_relations) % n_steps for step in reversed(backwards.steps)]
    code = torch.zeros_like(first)
    for step in steps:
        code = code * (n_steps + 1) + step + 1
    return code * n_facts + forwards.fact[first]
