"""Path rules: a relation holds where paths of other facts connect two entities.

    strength(h, r, t) = sum over the rules of r: weight * log2(1 + number of walks from h to t along the body of the rule)

Rules have weights of their own for heads and for tails. `PathRules.learn` finds bodies (`path_bodies`) and fits weights
(`path_weights`); the walks of the answers are those over any facts (`PathRules.on`), for which nothing is learned again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.grammar import walks
from harmonium.grammar.path_bodies import find_bodies, longest_body
from harmonium.grammar.path_weights import PathQueries
from harmonium.grammar.walks import OTHER_END, Array, Body, BodyTree, Steps, steps_between, strength
from harmonium.model.scoring import Scorer, of_candidates
from harmonium.runtime.distributed import World

MAX_RULES = 33_000, (50, 3000)  # in all; and of one relation at least and at most
MAX_FACTS = 55_000, (200, 5000)  # whose answers are learned; likewise
NEGLIGIBLE = 1e-3  # weight
KEPT_TREES = 64  # of relations asked last
BUDGET = 3e9  # entities reached by rules from facts, unless told otherwise: minutes


@dataclass(frozen=True)
class RelationRules:
    """The rules of one relation and one open slot."""

    bodies: list[Body]  # from head to tail
    weights: Array  # (n,) float64; 0: switched off


@dataclass(frozen=True)
class PathRule:
    """A learned rule, and how well it fits the facts: counts are of distinct pairs, those of the whole graph."""

    body: Body  # from head to tail
    weight: float
    support: int  # facts of the relation whose ends it connects, without walking over the fact itself
    connected: int  # pairs that it connects

    @property
    def precision(self) -> float:
        """How often it is right: the share of connected pairs that are facts."""
        return self.support / self.connected if self.connected else 0.0


Contribution = tuple[Body, int, float, float]  # body, walks, weight, weight * strength of the walks


class PathRules(Scorer):
    """Learned path rules and the facts along which they walk."""

    def __init__(self, steps: Steps, rules: Mapping[tuple[Slot, int], RelationRules]) -> None:
        self.steps = steps
        self.by_relation = dict(rules)  # by open slot and relation
        self._tree = lru_cache(KEPT_TREES)(self._build_tree)

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
        world: World | None = None,
    ) -> PathRules:
        """Path rules of all relations, for heads and tails. The processes of a `world` share the relations.

        `budget` bounds the work of fitting weights, in entities reached by a rule from a fact (some 100 ns each):
        relations share it by their sampled facts, and use fewer of these where walks are many. It is not a time, so the
        same budget gives the same rules on every machine. `progress` receives the numbers of finished facts.
        """
        facts = _sorted(facts.positive())
        steps = Steps.build(facts, n_entities, n_relations)
        edges = steps_between(facts, n_relations)
        length = longest_body(facts, n_entities, n_relations)
        known = {slot: KnownAnswers.build(slot, facts, n_entities) for slot in OTHER_END}
        most_facts = _share(MAX_FACTS, n_relations)
        n_queries = 2 * int(facts.relation.bincount().clamp(max=most_facts).sum())
        per_query = (BUDGET if budget is None else budget) / max(1, n_queries)
        learned: dict[tuple[Slot, int], RelationRules] = {}
        for relation in _relations_of(facts, world):
            random = np.random.default_rng([seed, relation])  # what a relation draws does not depend on the others
            draws = torch.Generator().manual_seed(int(random.integers(2**62)))
            of_relation = facts[facts.relation == relation]
            proper = of_relation[of_relation.head != of_relation.tail]
            sample = proper[torch.randperm(len(proper), generator=draws)[:most_facts]]
            bodies = find_bodies(edges, sample, n_relations, length, draws)[: _share(MAX_RULES, n_relations)]
            for slot in OTHER_END if bodies else ():
                share = per_query * len(sample)
                queries = PathQueries.gather(steps, known[slot], sample, bodies, random, share)
                weights = queries.most_likely_weights()
                kept = np.flatnonzero(np.abs(weights) >= NEGLIGIBLE)
                if len(kept):
                    learned[slot, relation] = RelationRules([bodies[number] for number in kept], weights[kept])
            if progress:
                progress(len(of_relation))
        if world is not None:
            learned = {key: rules for part in world.all_gather(learned) for key, rules in part.items()}
        return cls(steps, dict(sorted(learned.items(), key=lambda item: (item[0][1], item[0][0]))))

    def _build_tree(self, slot: Slot, relation: int) -> BodyTree:
        return BodyTree.of(self.steps.from_known_end(self.by_relation[slot, relation].bodies, slot))

    def __len__(self) -> int:
        return sum(len(rules.bodies) for rules in self.by_relation.values())

    @property
    def works_by_relation(self) -> bool:
        return True

    def strengths(
        self,
        slot: Slot,
        relation: int,
        given: Tensor,
        hidden: Tensor | None = None,
        candidates: Array | None = None,
    ) -> Array:
        """(m, n_entities) float64: what the rules of a relation add up to for each entity in the open slot.

        Or for the `candidates` (c,) alone.

        `hidden` (m,) are answers whose facts are not walked as first step: each row as if its fact were not known.
        """
        n = self.steps.n_entities
        rules = self.by_relation.get((slot, relation))
        width = n if candidates is None else len(candidates)
        if rules is None:
            return np.zeros((len(given), width))
        starts, inverse = given.numpy(), None
        if hidden is None:
            starts, inverse = np.unique(starts, return_inverse=True)
        tree = self._tree(slot, relation)
        not_taken = None if hidden is None else (self.steps.step_to(slot, relation), hidden.numpy())
        sums = np.zeros((len(starts), width))
        for block, reached in self.steps.count_walks(tree, starts, not_taken):
            cell = np.concatenate([level.cell for level in reached])
            values = [rules.weights[level.rule] * strength(level.walks) for level in reached]
            size = (block.stop - block.start) * n
            of_block = np.bincount(cell, np.concatenate(values), minlength=size).reshape(-1, n)
            sums[block] = of_block if candidates is None else of_block[:, candidates]
        return sums if inverse is None else sums[inverse]

    def n_candidates(self, slot: Slot) -> int:
        return self.steps.n_entities

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, n_entities or m) float64."""
        scores = torch.zeros(len(queries), self.steps.n_entities, dtype=torch.float64)
        given = queries[OTHER_END[slot]].cpu()
        relations = queries.relation.cpu()
        for relation in relations.unique().tolist():
            rows = (relations == relation).nonzero()[:, 0]
            scores[rows] = torch.from_numpy(self.strengths(slot, relation, given[rows]))
        return of_candidates(scores, candidates).to(queries.head.device)

    def on(self, facts: Triples, n_entities: int | None = None) -> PathRules:
        """The same rules over other facts of the same relations, and the same entities or as many as are said."""
        steps = Steps.build(facts.positive(), n_entities or self.steps.n_entities, self.steps.n_relations)
        return PathRules(steps, self.by_relation)

    def contributions(
        self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None
    ) -> list[Contribution]:
        """What each rule that reaches an answer adds to its strength, the largest first.

        `hidden`: an answer whose fact is treated as absent, as in learning.
        """
        rules = self.by_relation.get((slot, relation))
        if rules is None:
            return []
        tree = self._tree(slot, relation)
        not_taken = None if hidden is None else (self.steps.step_to(slot, relation), np.array([hidden]))
        ((_, reached),) = self.steps.count_walks(tree, np.array([given]), not_taken)
        parts: list[Contribution] = []
        for level in reached:
            index = np.flatnonzero(level.cell == answer)
            counts, numbers = level.walks[index], level.rule[index]
            weights = rules.weights[numbers]
            columns = (column.tolist() for column in (numbers, counts, weights, weights * strength(counts)))
            for number, count, weight, contribution in zip(*columns, strict=True):
                parts.append((rules.bodies[number], int(count), weight, contribution))
        return sorted(parts, key=lambda part: (-abs(part[3]), part[0]))

    def example_walk(self, body: Body, head: int, tail: int) -> list[tuple[int, int, int]]:
        """The facts of one walk along a body, over entities that have few facts; empty if there is none."""
        return walks.example_walk(self.steps, body, head, tail)

    def rules(self, relation: int, slot: Slot, limit: int | None = None) -> list[PathRule]:
        """The rules of a relation, those with the largest weights first, counted over all facts (`limit`: only so many).

        Costs a walk from every entity along each rule: seconds for a thousand rules of a large graph.
        """
        rules = self.by_relation.get((slot, relation))
        if rules is None:
            return []
        order = np.argsort(-np.abs(rules.weights), kind="stable")[:limit]
        bodies = [rules.bodies[number] for number in order]
        counts = self.count_pairs(relation, slot, bodies)
        return [
            PathRule(body, weight, *pairs)
            for body, weight, pairs in zip(bodies, rules.weights[order].tolist(), counts, strict=True)
        ]

    def count_pairs(self, relation: int, slot: Slot, bodies: Sequence[Body]) -> list[tuple[int, int]]:
        """Support and connected pairs of each body, as `PathRule` has them; walked from the given end of a query."""
        steps, n = self.steps, self.steps.n_entities
        walked = steps.from_known_end(bodies, slot)
        step = steps.step_to(slot, relation)
        index = steps.index
        keys = torch.arange(step * n, (step + 1) * n)
        row, answer = (column.numpy() for column in index.lookup(keys))
        proper = row != answer
        row, answer = row[proper], answer[proper]  # facts, from given entity to answer
        connected, support = np.zeros(len(bodies), dtype=np.int64), np.zeros(len(bodies), dtype=np.int64)
        for _, reached in steps.count_walks(BodyTree.of(walked), np.arange(n)):
            for level in reached:
                connected += np.bincount(level.rule, minlength=len(bodies))
        for block, reached in steps.count_walks(BodyTree.of(walked), row, (step, answer)):
            cells = np.arange(block.stop - block.start) * n + answer[block]
            for level in reached:
                support += np.bincount(level.rule[np.isin(level.cell, cells)], minlength=len(bodies))
        return list(zip(support.tolist(), connected.tolist(), strict=True))

    def with_weight(self, relation: int, slot: Slot, body: Body, weight: float) -> PathRules:
        """With another weight for one rule; 0 switches it off."""
        rules = self.by_relation.get((slot, relation))
        if rules is None or tuple(body) not in rules.bodies:
            raise HarmoniumError(f"relation {relation} has no rule {tuple(body)} for its {slot.value}; see `rules`")
        weights = rules.weights.copy()
        weights[rules.bodies.index(tuple(body))] = weight
        changed = RelationRules(rules.bodies, weights)
        return PathRules(self.steps, {**self.by_relation, (slot, relation): changed})

    def with_relations(self, count: int) -> PathRules:
        """The same rules for a graph with another number of relations, over no facts; those of relations left out end."""
        before = self.steps.n_relations

        def renumber(body: Body) -> Body:
            return tuple(step if step < before else step - before + count for step in body)

        rules: dict[tuple[Slot, int], RelationRules] = {}
        for (slot, relation), of_relation in self.by_relation.items():
            kept = [n for n, body in enumerate(of_relation.bodies) if max(step % before for step in body) < count]
            if relation < count and kept:
                bodies = [renumber(of_relation.bodies[number]) for number in kept]
                rules[slot, relation] = RelationRules(bodies, of_relation.weights[kept])
        no_facts = Triples.from_rows([])
        return PathRules(Steps.build(no_facts, self.steps.n_entities, count), rules)

    def to_tensors(self) -> dict[str, Tensor]:
        """One row for each rule: its relation, whether it answers heads, its body (padded by -1), and its weight."""
        rows = [
            (relation, slot is Slot.HEAD, body, weight)
            for (slot, relation), rules in self.by_relation.items()
            for body, weight in zip(rules.bodies, rules.weights.tolist(), strict=True)
        ]
        length = max((len(body) for _, _, body, _ in rows), default=0)
        bodies = [[*body, *[-1] * (length - len(body))] for _, _, body, _ in rows]
        return {
            "relation": torch.tensor([relation for relation, *_ in rows], dtype=torch.int64),
            "is_head": torch.tensor([is_head for _, is_head, *_ in rows], dtype=torch.bool),
            "body": torch.tensor(bodies, dtype=torch.int64).reshape(len(rows), length),
            "weight": torch.tensor([weight for *_, weight in rows], dtype=torch.float64),
        }

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], facts: Triples, n_entities: int, n_relations: int
    ) -> PathRules:
        """What `to_tensors` wrote, over facts; a ValueError if these are no rules of a graph of this size."""
        _check_tensors(tensors, n_relations)
        rules: dict[tuple[Slot, int], tuple[list[Body], list[float]]] = {}
        columns = [tensors[name].tolist() for name in ("relation", "is_head", "body", "weight")]
        lengths = (tensors["body"] >= 0).sum(1).tolist()
        for relation, is_head, body, weight, length in zip(*columns, lengths, strict=True):
            bodies, weights = rules.setdefault((Slot.HEAD if is_head else Slot.TAIL, relation), ([], []))
            bodies.append(tuple(body[:length]))
            weights.append(weight)
        steps = Steps.build(facts.positive(), n_entities, n_relations)
        return cls(steps, {key: RelationRules(bodies, np.array(weights)) for key, (bodies, weights) in rules.items()})


def _check_tensors(tensors: Mapping[str, Tensor], n_relations: int) -> None:
    dtypes = {"relation": torch.int64, "is_head": torch.bool, "body": torch.int64, "weight": torch.float64}
    missing = dtypes.keys() - tensors.keys()
    if missing:
        raise ValueError(f"path rules without {', '.join(sorted(missing))}")
    relation, body, weight = (tensors[name] for name in ("relation", "body", "weight"))
    for name, dtype in dtypes.items():
        if tensors[name].dtype != dtype or tensors[name].dim() != (2 if name == "body" else 1):
            raise ValueError(f"path rules whose {name} is no column of {dtype}")
        if len(tensors[name]) != len(relation):
            raise ValueError("path rules with columns of different lengths")
    if not len(relation):
        return
    if not 0 <= int(relation.min()) <= int(relation.max()) < n_relations:
        raise ValueError("path rules of a relation without a name")
    if not body.shape[1] or not -1 <= int(body.min()) <= int(body.max()) < 2 * n_relations:
        raise ValueError("path rules with a step that is no relation")
    if bool((body[:, 0] < 0).any()) or bool(((body[:, :-1] < 0) & (body[:, 1:] >= 0)).any()):
        raise ValueError("path rules with a gap in their body")
    if not bool(weight.isfinite().all()):
        raise ValueError("path rules with a weight that is not finite")
    if len(torch.cat([tensors["is_head"][:, None].long(), relation[:, None], body], dim=1).unique(dim=0)) < len(body):
        raise ValueError("path rules that occur twice")


def _relations_of(facts: Triples, world: World | None) -> list[int]:
    """The relations of these facts; of several processes each has its share, dealt from the largest to the smallest."""
    relations, counts = facts.relation.unique(return_counts=True)
    if world is None:
        found: list[int] = relations.tolist()
        return found
    dealt = relations[counts.argsort(descending=True, stable=True)][world.rank :: world.size]
    return sorted(dealt.tolist())


def _sorted(facts: Triples) -> Triples:
    """In an order that does not depend on that of the given facts."""
    weights = facts.weights().numpy()
    order = np.lexsort((weights, facts.tail.numpy(), facts.head.numpy(), facts.relation.numpy()))
    return facts[torch.from_numpy(order)]


def _share(limits: tuple[int, tuple[int, int]], n_relations: int) -> int:
    total, (least, most) = limits
    return min(most, max(least, total // n_relations))
