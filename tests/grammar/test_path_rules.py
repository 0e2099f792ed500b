"""Path rules: scores are weighted logarithms of walks, planted rules are found, and rules can be kept, moved and changed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.ranking import rank
from harmonium.grammar.path_rules import PathRules, RelationRules
from harmonium.grammar.walks import OTHER_END, Body, Steps
from plain_walks import count_walks, take
from small import make_graph

GRAPH = make_graph(9, 2, sizes=(30, 5, 5))
STEPS = Steps.build(GRAPH.train, GRAPH.n_entities, GRAPH.n_relations)
FACTS = [tuple(row) for row in GRAPH.train.to_rows().tolist()]
BODIES: list[Body] = [(0,), (3,), (0, 1), (0, 1, 2), (1, 1, 3), (2, 0, 0, 1)]
WEIGHTS = np.array([0.5, -1.0, 2.0, 0.1, 0.3, 0.7])
RULES = PathRules(STEPS, {(slot, 1): RelationRules(BODIES, WEIGHTS) for slot in OTHER_END})


def learn(graph: Graph, **options: object) -> PathRules:
    return PathRules.learn(graph.train, graph.n_entities, graph.n_relations, **options)  # type: ignore[arg-type]


def strengths_by_enumeration(slot: Slot, given: int, hidden: int | None = None) -> list[float]:
    total = [0.0] * 9
    for body, weight in zip(BODIES, WEIGHTS.tolist(), strict=True):
        walked = body if slot is Slot.TAIL else STEPS.reverse(body)
        not_taken = None if hidden is None else (1 if slot is Slot.TAIL else 3, hidden)
        for end, count in count_walks(FACTS, 2, walked, given, not_taken).items():
            total[end] += weight * math.log2(1 + count)
    return total


@pytest.mark.parametrize("slot", list(OTHER_END))
def test_strengths_are_weighted_logarithms_of_walks(slot: Slot) -> None:
    given = torch.tensor([0, 4, 8, 4])
    expected = [strengths_by_enumeration(slot, entity) for entity in given.tolist()]
    np.testing.assert_allclose(RULES.strengths(slot, 1, given), expected, atol=1e-12)
    step = 1 if slot is Slot.TAIL else 3
    hidden = torch.tensor([(take(FACTS, 2, step, entity) or [-1])[-1] for entity in given.tolist()])
    pairs = zip(given.tolist(), hidden.tolist(), strict=True)
    without = [strengths_by_enumeration(slot, *pair) for pair in pairs]
    assert without != expected
    np.testing.assert_allclose(RULES.strengths(slot, 1, given, hidden), without, atol=1e-12)
    assert not RULES.strengths(slot, 0, given).any()


def test_scores_are_strengths_in_the_order_of_the_queries() -> None:
    queries = Triples(torch.tensor([0, 4, 8, 4]), torch.tensor([1, 0, 1, 1]), torch.tensor([2, 2, 5, 1]))
    for slot, other in OTHER_END.items():
        expected = torch.zeros(4, 9, dtype=torch.float64)
        for row in (0, 2, 3):
            expected[row] = torch.tensor(strengths_by_enumeration(slot, int(queries[other][row])))
        torch.testing.assert_close(RULES.score_slot(slot, queries), expected)


@pytest.mark.parametrize("hide", [False, True])
def test_contributions_add_up_to_the_strength(hide: bool) -> None:
    for head, relation, tail in FACTS:
        if relation == 1 and head != tail:
            for slot, given, answer in ((Slot.TAIL, head, tail), (Slot.HEAD, tail, head)):
                parts = RULES.contributions(slot, 1, given, answer, answer if hide else None)
                hidden = torch.tensor([answer]) if hide else None
                total = RULES.strengths(slot, 1, torch.tensor([given]), hidden)[0, answer]
                assert sum(part[3] for part in parts) == pytest.approx(total)
                assert all(part[3] == pytest.approx(part[2] * math.log2(1 + part[1])) for part in parts)
                sizes = [abs(part[3]) for part in parts]
                assert sizes == sorted(sizes, reverse=True)
    assert RULES.contributions(Slot.TAIL, 0, 1, 2) == []


@pytest.mark.parametrize("slot", list(OTHER_END))
def test_support_and_precision_are_those_of_an_enumeration(slot: Slot) -> None:
    step = 1 if slot is Slot.TAIL else 3
    rules = RULES.rules(1, slot)
    assert [rule.weight for rule in rules] == [2.0, -1.0, 0.7, 0.5, 0.3, 0.1]
    for rule in rules:
        walked = rule.body if slot is Slot.TAIL else STEPS.reverse(rule.body)
        connected = sum(len(count_walks(FACTS, 2, walked, start)) for start in range(9))
        support = sum(
            end in count_walks(FACTS, 2, walked, start, (step, end))
            for start in range(9)
            for end in take(FACTS, 2, step, start)
        )
        assert (rule.support, rule.connected) == (support, connected)
        assert rule.precision == support / connected
    assert RULES.rules(1, slot, limit=2) == rules[:2]
    assert RULES.rules(0, slot) == []


def test_a_rule_can_be_switched_off() -> None:
    changed = RULES.with_weight(1, Slot.TAIL, (0, 1), 0.0)
    difference = RULES.strengths(Slot.TAIL, 1, torch.arange(9)) - changed.strengths(Slot.TAIL, 1, torch.arange(9))
    for head in range(9):
        walks = count_walks(FACTS, 2, (0, 1), head)
        np.testing.assert_allclose(difference[head], [2.0 * math.log2(1 + walks[end]) for end in range(9)], atol=1e-12)
    head = torch.arange(9)
    assert (changed.strengths(Slot.HEAD, 1, head) == RULES.strengths(Slot.HEAD, 1, head)).all()
    with pytest.raises(HarmoniumError, match="no rule"):
        RULES.with_weight(1, Slot.TAIL, (1, 0), 1.0)


def test_rules_walk_over_other_facts() -> None:
    facts = GRAPH.train[:20]
    moved = RULES.on(facts)
    expected = PathRules(Steps.build(facts, 9, 2), RULES.by_relation)
    given = torch.arange(9)
    assert (moved.strengths(Slot.TAIL, 1, given) == expected.strengths(Slot.TAIL, 1, given)).all()
    assert (moved.strengths(Slot.TAIL, 1, given) != RULES.strengths(Slot.TAIL, 1, given)).any()


def test_rules_are_kept_as_tensors() -> None:
    rules = learn(GRAPH)
    kept = PathRules.from_tensors(rules.to_tensors(), GRAPH.train, 9, 2)
    assert kept.by_relation.keys() == rules.by_relation.keys() and len(kept) == len(rules) > 0
    for key in rules.by_relation:
        slot, relation = key
        given = torch.arange(9)
        assert (kept.strengths(slot, relation, given) == rules.strengths(slot, relation, given)).all()
    nothing = PathRules(STEPS, {})
    assert len(PathRules.from_tensors(nothing.to_tensors(), GRAPH.train, 9, 2)) == 0


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("relation", lambda column: column + 2, "a relation without a name"),
        ("relation", lambda column: column.int(), "no column of"),
        ("body", lambda column: column + 4, "no relation"),
        ("body", lambda column: column.flip(1), "gap"),
        ("body", lambda column: torch.zeros_like(column), "twice"),
        ("body", lambda column: column[:, :0], "no relation"),
        ("weight", lambda column: column / 0, "not finite"),
        ("weight", lambda column: column[1:], "different lengths"),
        ("is_head", lambda column: None, "without is_head"),
    ],
)
def test_tensors_that_are_no_rules_are_refused(name: str, change: object, message: str) -> None:
    tensors = RULES.to_tensors()
    column = change(tensors.pop(name))  # type: ignore[operator]
    if column is not None:
        tensors[name] = column
    with pytest.raises(ValueError, match=message):
        PathRules.from_tensors(tensors, GRAPH.train, 9, 2)


def test_ranks_are_in_the_order_of_the_queries() -> None:
    """Queries are scored by relation, whatever their order."""
    rules = learn(GRAPH)
    facts = GRAPH.train[torch.randperm(len(GRAPH.train), generator=torch.Generator().manual_seed(0))]
    assert (facts.relation.diff() < 0).any()
    for slot in (Slot.HEAD, Slot.TAIL):
        ranks = rank(rules, facts, slot)
        alone = [rank(rules, facts[row : row + 1], slot) for row in range(len(facts))]
        assert ranks.better.tolist() == [int(each.better) for each in alone]
        assert ranks.relation.equal(facts.relation)


def family_tree(generations: int = 6) -> Graph:
    """parent (0) in a binary tree, and grandparent (1), of which a part is held out."""
    n = 2**generations - 1
    parents = [(child, 0, (child - 1) // 2) for child in range(1, n)]
    grandparents = [(child, 1, ((child - 1) // 2 - 1) // 2) for child in range(3, n)]
    order = torch.randperm(len(grandparents), generator=torch.Generator().manual_seed(1)).tolist()
    held_out, known = [grandparents[i] for i in order[:10]], [grandparents[i] for i in order[10:]]
    splits = [Triples.from_rows(torch.tensor(rows)) for rows in (parents + known, held_out[:5], held_out[5:])]
    graph = make_graph(n, 2, sizes=(1, 1, 1))
    return replace(graph, train=splits[0], valid=splits[1], test=splits[2])


def test_a_planted_rule_is_learned() -> None:
    graph = family_tree()
    finished: list[int] = []
    rules = learn(graph, progress=finished.append)
    assert sum(finished) == len(graph.train)
    best = rules.rules(1, Slot.TAIL, limit=1)[0]
    assert (best.body, best.precision > 0.7) == ((0, 0), True)  # a sixth of the facts is held out
    metrics = evaluate_scorer(rules, graph, EvaluateConfig(split="test", side="tail")).metrics
    assert metrics["hits@1"] == 1


def test_a_small_budget_asks_fewer_facts() -> None:
    graph = family_tree()
    whole, small = learn(graph, budget=1e9), learn(graph, budget=100)
    assert len(small) > 0
    weights = [rules.by_relation[Slot.TAIL, 1].weights.max() for rules in (small, whole)]
    assert weights[0] < weights[1]  # fewer facts, and the same prior


def test_the_order_of_facts_does_not_matter() -> None:
    graph = family_tree()
    order = torch.randperm(len(graph.train), generator=torch.Generator().manual_seed(2))
    first, second = (learn(replace(graph, train=train)).to_tensors() for train in (graph.train, graph.train[order]))
    assert all(first[name].equal(second[name]) for name in first)


def test_facts_do_not_imply_themselves() -> None:
    """Where facts are random, walks around a train fact must not give its answer away."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randint(high, (900,), generator=generator) for high in (200, 3, 200)], dim=1).unique(
        dim=0
    )
    facts = Triples.from_rows(rows[torch.randperm(len(rows), generator=generator)])
    graph = replace(make_graph(200, 3, sizes=(1, 1, 1)), train=facts[:600], valid=facts[600:700], test=facts[700:])
    metrics = evaluate_scorer(learn(graph), graph, EvaluateConfig(split="test")).metrics
    assert metrics["mrr"] < 0.06  # chance: 0.03


def test_graphs_without_anything_to_learn_have_no_rules() -> None:
    graph = family_tree(3)
    loops = Triples(torch.arange(7), torch.zeros(7, dtype=torch.int64), torch.arange(7))
    for train in (graph.train[:0], graph.train[:1], loops):
        rules = learn(replace(graph, train=train))
        assert len(rules) == 0
        assert not rules.score_slot(Slot.TAIL, graph.valid).any()


def test_facts_without_weight_count_as_absent() -> None:
    graph = family_tree()
    grandparents = (graph.train.relation == 1).double()
    weighted = replace(graph, train=replace(graph.train, weight=1 - grandparents))
    assert (Slot.TAIL, 1) not in learn(weighted).by_relation
