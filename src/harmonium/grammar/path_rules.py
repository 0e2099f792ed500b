"""Path rules: a relation holds where paths of other facts connect two entities.

    strength(h, r, t) = sum over the rules of r: weight * log2(1 + number of walks from h to t along the body of the rule)

Rules have weights of their own for heads and for tails. `PathRules.learn` finds bodies (`path_bodies`) and fits weights
(`path_weights`); the walks of the answers are those over any facts (`PathRules.on`), for which nothing is learned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.path_bodies import find_bodies, longest_body
from harmonium.grammar.path_weights import PathQueries
from harmonium.grammar.walks import OTHER_END, Body, BodyTree, Steps, steps_between, strength
from harmonium.model.scoring import Scorer

MAX_RULES = 33_000, (50, 3000)  # in all; and of one relation at least and at most
MAX_FACTS = 55_000, (200, 5000)  # whose answers are learned; likewise
NEGLIGIBLE = 1e-3  # weight


@dataclass(frozen=True)
class RelationRules:
    """The rules of one relation and one open slot."""

    bodies: list[Body]  # from head to tail
    weights: np.ndarray  # (n,) float64


class PathRules(Scorer):
    """Learned path rules and the facts along which they walk."""

    def __init__(self, steps: Steps, rules: Mapping[tuple[Slot, int], RelationRules]) -> None:
        self.steps = steps
        self.by_relation = dict(rules)  # by open slot and relation

    @classmethod
    def learn(
        cls,
        facts: Triples,
        n_entities: int,
        n_relations: int,
        *,
        seed: int = 0,
        budget: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> PathRules:
        """Path rules of all relations, for heads and tails. `progress` receives the numbers of finished facts."""
        facts = _sorted(facts.positive())
        steps = Steps.build(facts, n_entities, n_relations)
        edges = steps_between(facts, n_relations)
        length = longest_body(facts, n_entities, n_relations)
        known = {slot: KnownAnswers.build(slot, facts, n_entities) for slot in OTHER_END}
        draws, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        learned: dict[tuple[Slot, int], RelationRules] = {}
        for relation in facts.relation.unique().tolist():
            of_relation = facts[facts.relation == relation]
            proper = of_relation[of_relation.head != of_relation.tail]
            sample = proper[torch.randperm(len(proper), generator=draws)[: _share(MAX_FACTS, n_relations)]]
            bodies = find_bodies(edges, sample, n_relations, length, draws)[: _share(MAX_RULES, n_relations)]
            for slot in OTHER_END if bodies else ():
                weights = PathQueries.gather(steps, known[slot], sample, bodies, random).most_likely_weights()
                kept = np.flatnonzero(np.abs(weights) >= NEGLIGIBLE)
                if len(kept):
                    learned[slot, relation] = RelationRules([bodies[number] for number in kept], weights[kept])
            if progress:
                progress(len(of_relation))
        return cls(steps, learned)

    def __len__(self) -> int:
        return sum(len(rules.bodies) for rules in self.by_relation.values())

    @property
    def works_by_relation(self) -> bool:
        return True

    def strengths(self, slot: Slot, relation: int, given: Tensor, hidden: Tensor | None = None) -> np.ndarray:
        """(m, n_entities) float64: what the rules of a relation add up to for each entity in the open slot.

        `hidden` (m,) are answers whose facts are not walked as first step: each row as if its fact were not known.
        """
        n = self.steps.n_entities
        rules = self.by_relation.get((slot, relation))
        total = np.zeros((len(given), n))
        if rules is None:
            return total
        starts, inverse = given.numpy(), None
        if hidden is None:
            starts, inverse = np.unique(starts, return_inverse=True)
        tree = BodyTree.of(self.steps.from_known_end(rules.bodies, slot))
        not_taken = None if hidden is None else (self.steps.step_to(slot, relation), hidden.numpy())
        sums = np.zeros((len(starts), n))
        for block, reached in self.steps.count_walks(tree, starts, not_taken):
            part = sums[block].reshape(-1)
            for level in reached:
                part += np.bincount(level.cell, rules.weights[level.rule] * strength(level.walks), minlength=len(part))
        return sums if inverse is None else sums[inverse]

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_entities) float64."""
        scores = torch.zeros(len(queries), self.steps.n_entities, dtype=torch.float64)
        given = queries[OTHER_END[slot]].cpu()
        relations = queries.relation.cpu()
        for relation in relations.unique().tolist():
            rows = (relations == relation).nonzero()[:, 0]
            scores[rows] = torch.from_numpy(self.strengths(slot, relation, given[rows]))
        return scores.to(queries.head.device)


def _sorted(facts: Triples) -> Triples:
    """In an order that does not depend on that of the given facts."""
    weights = facts.weights().numpy()
    order = np.lexsort((weights, facts.tail.numpy(), facts.head.numpy(), facts.relation.numpy()))
    return facts[torch.from_numpy(order)]


def _share(limits: tuple[int, tuple[int, int]], n_relations: int) -> int:
    total, (least, most) = limits
    return min(most, max(least, total // n_relations))
