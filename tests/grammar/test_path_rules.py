"""Path rules: walks are those of a plain enumeration, weights maximise the likelihood, and planted rules are found."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.ranking import rank
from harmonium.grammar import learn_path_rules as path_rules
from harmonium.grammar import path_rules as model_path_rules
from harmonium.grammar.learn_path_rules import WalkQuestions, find_bodies, learn_path_rules, longest_body
from harmonium.grammar.path_rules import Body, PathRules, RelationRules, Steps, steps_between
from small import make_graph

GRAPH = make_graph(9, 2, sizes=(30, 5, 5))
STEPS = Steps.build(GRAPH.train, GRAPH.n_entities, GRAPH.n_relations)
FACTS = [tuple(row) for row in GRAPH.train.to_rows().tolist()]


def take(step: int, entity: int, facts: list[tuple[int, ...]] = FACTS, n_relations: int = 2) -> list[int]:
    """Where a step leads."""
    if step < n_relations:
        return [tail for head, relation, tail in sorted(set(facts)) if (head, relation) == (entity, step)]
    return [head for head, relation, tail in sorted(set(facts)) if (tail, relation) == (entity, step - n_relations)]


def count_walks(body: Body, start: int, hidden: tuple[int, int] | None = None) -> Counter[int]:
    """Ends of all walks from a start that do not return to it, one by one."""
    walks = [[start]]
    for number, step in enumerate(body):
        walks = [
            [*walk, end]
            for walk in walks
            for end in take(step, walk[-1])
            if end != start and (number or hidden != (step, end))
        ]
    return Counter(walk[-1] for walk in walks)


BODIES: list[Body] = [(0,), (3,), (0, 1), (0, 1, 2), (1, 1, 3), (2, 0, 0, 1)]


@pytest.mark.parametrize("is_hidden", [False, True])
def test_walks_are_those_of_an_enumeration(is_hidden: bool) -> None:
    starts, truths = torch.tensor([0, 3, 3, 7]), torch.tensor([take(0, start)[:1] or [0] for start in (0, 3, 3, 7)])
    hidden = (0, truths[:, 0]) if is_hidden else None
    measured = {
        (body, int(pair) // 9, int(pair) % 9): int(count)
        for body, pairs, walks in STEPS.count_walks(BODIES, starts, hidden)
        for pair, count in zip(pairs, walks, strict=True)
    }
    expected = {
        (number, row, end): count
        for number, body in enumerate(BODIES)
        for row, start in enumerate(starts.tolist())
        for end, count in count_walks(body, start, (0, int(truths[row])) if is_hidden else None).items()
    }
    assert measured == expected
    assert max(expected.values()) > 2


def test_scores_are_weighted_logarithms_of_walks_for_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.tensor([0.5, -1.0, 2.0, 0.1, 0.3, 0.7])
    rules = PathRules(STEPS, {(slot, 1): RelationRules(BODIES, weights) for slot in (Slot.HEAD, Slot.TAIL)})
    queries = Triples(torch.tensor([0, 4, 8, 4]), torch.tensor([1, 0, 1, 1]), torch.tensor([2, 2, 5, 1]))
    for block in (1, 1 << 20):
        monkeypatch.setattr(model_path_rules, "BLOCK", block)
        for slot, known in ((Slot.TAIL, queries.head), (Slot.HEAD, queries.tail)):
            expected = torch.zeros(4, 9)
            for row, start in enumerate(known.tolist()):
                for body, weight in zip(BODIES, weights.tolist(), strict=True) if queries.relation[row] else ():
                    walked = body if slot is Slot.TAIL else STEPS.reverse(body)
                    for end, count in count_walks(walked, start).items():
                        expected[row, end] += weight * math.log2(1 + count)
            torch.testing.assert_close(rules.score_slot(slot, queries), expected)


def test_bodies_are_all_simple_paths_with_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_rules, "MIN_SUPPORT", 1)
    monkeypatch.setattr(path_rules, "EDGES", (1000, 1000, 1000))
    facts = GRAPH.train[GRAPH.train.relation == 0]
    facts = facts[facts.head != facts.tail]
    edges = steps_between(GRAPH.train, 2)
    measured = find_bodies(edges, facts, 2, 3, torch.Generator())
    support: Counter[Body] = Counter()
    for head, tail in zip(facts.head.tolist(), facts.tail.tolist(), strict=True):
        for length in (1, 2, 3):
            for body in product(range(4), repeat=length):
                walks = [[head]]
                for step in body:
                    walks = [[*walk, end] for walk in walks for end in take(step, walk[-1]) if end not in walk]
                support[body] += any(walk[-1] == tail for walk in walks)
    del support[(0,)]  # the relation itself
    assert set(measured) == {body for body, count in support.items() if count}
    assert [support[body] for body in measured] == sorted((support[body] for body in measured), reverse=True)


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_weights_maximise_the_likelihood_of_train_facts(
    slot: Slot, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the questions is that of a softmax over all entities, scored by enumerated walks with the fact hidden."""
    monkeypatch.setattr(path_rules, "BLOCK", block)
    facts = GRAPH.train[GRAPH.train.relation == 0]
    facts = replace(facts[facts.head != facts.tail], weight=None)
    facts = replace(facts, weight=torch.linspace(0.2, 1, len(facts), dtype=torch.float64))
    questions = WalkQuestions.gather(STEPS, GRAPH, slot, facts, BODIES[1:], torch.Generator().manual_seed(0))
    features = torch.zeros(len(facts), 9, len(BODIES) - 1, dtype=torch.float64)
    allowed = torch.ones(len(facts), 9, dtype=torch.bool)
    truth = facts[slot]
    for row, (head, tail) in enumerate(zip(facts.head.tolist(), facts.tail.tolist(), strict=True)):
        start, end = (head, tail) if slot is Slot.TAIL else (tail, head)
        step = 0 if slot is Slot.TAIL else 2
        allowed[row, [other for other in take(step, start) if other != end]] = False
        for number, body in enumerate(BODIES[1:]):
            walked = body if slot is Slot.TAIL else STEPS.reverse(body)
            for reached, count in count_walks(walked, start, (step, end)).items():
                features[row, reached, number] = math.log2(1 + count)

    def objective(weights: torch.Tensor) -> torch.Tensor:
        scores = (features @ weights).masked_fill(~allowed, -torch.inf)
        losses = -scores.log_softmax(1)[torch.arange(len(facts)), truth]
        importance = facts.weights() / facts.weights().mean()
        return losses @ importance + path_rules.PRIOR_PRECISION / 2 * weights.square().sum()

    weights = questions.most_likely_weights().double().requires_grad_()
    value = objective(weights)
    (slope,) = torch.autograd.grad(value, weights)
    assert slope.abs().max() < 1e-2
    assert value < objective(torch.zeros_like(weights)) - 0.1


def test_a_sample_of_wrong_answers_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = GRAPH.train[GRAPH.train.relation == 0]
    facts = facts[facts.head != facts.tail]
    whole = WalkQuestions.gather(STEPS, GRAPH, Slot.TAIL, facts, BODIES[1:], torch.Generator().manual_seed(0))
    monkeypatch.setattr(path_rules, "WRONG_ANSWERS", 2)
    part = WalkQuestions.gather(STEPS, GRAPH, Slot.TAIL, facts, BODIES[1:], torch.Generator().manual_seed(0))
    assert len(part.question) < len(whole.question)
    for questions in (whole, part):  # so many wrong answers in all, whatever their number
        count = torch.zeros(len(facts)).index_add_(0, questions.question, questions.log_share.exp())
        known = torch.tensor([len(take(0, head)) for head in facts.head.tolist()])
        torch.testing.assert_close((count + questions.unreached - 1).long(), 9 - known)


def test_ranks_are_in_the_order_of_the_queries() -> None:
    """Queries are scored by relation, whatever their order."""
    rules = learn_path_rules(GRAPH)
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
    rules = learn_path_rules(graph, progress=finished.append)
    assert sum(finished) == len(graph.train)
    best = rules.rules[Slot.TAIL, 1]
    assert best.bodies[int(best.weights.argmax())] == (0, 0)
    metrics = evaluate_scorer(rules, graph, EvaluateConfig(split="test", side="tail")).metrics
    assert metrics["hits@1"] == 1


def test_facts_do_not_imply_themselves() -> None:
    """Where facts are random, walks around a train fact must not give its answer away."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randint(high, (900,), generator=generator) for high in (200, 3, 200)], dim=1).unique(
        dim=0
    )
    facts = Triples.from_rows(rows[torch.randperm(len(rows), generator=generator)])
    graph = replace(make_graph(200, 3, sizes=(1, 1, 1)), train=facts[:600], valid=facts[600:700], test=facts[700:])
    rules = learn_path_rules(graph)
    metrics = evaluate_scorer(rules, graph, EvaluateConfig(split="test")).metrics
    assert metrics["mrr"] < 0.06  # chance: 0.03


def test_graphs_without_anything_to_learn_have_no_rules() -> None:
    graph = family_tree(3)
    loops = Triples(torch.arange(7), torch.zeros(7, dtype=torch.int64), torch.arange(7))
    for train in (graph.train[:0], graph.train[:1], loops):
        rules = learn_path_rules(replace(graph, train=train))
        assert len(rules) == 0
        assert not rules.score_slot(Slot.TAIL, graph.valid).any()


def test_facts_without_weight_count_as_absent() -> None:
    graph = family_tree()
    grandparents = (graph.train.relation == 1).double()
    weighted = replace(graph, train=replace(graph.train, weight=1 - grandparents))
    assert (Slot.TAIL, 1) not in learn_path_rules(weighted).rules


def test_walks_of_different_facts_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last fact has no walk of two steps from its tail: numbers of facts must not be mistaken for each other."""
    monkeypatch.setattr(path_rules, "MIN_SUPPORT", 1)
    rows = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 1, 3], [3, 1, 0], [4, 0, 5]])
    facts = Triples.from_rows(rows)
    bodies = find_bodies(steps_between(facts, 2), facts[facts.relation == 0], 2, 4, torch.Generator())
    assert bodies == [(3, 3, 3)]  # 0 <- 3 <- 2 <- 1, all backwards


def test_bodies_are_longer_where_walks_are_few() -> None:
    chain = Triples(torch.arange(99), torch.zeros(99, dtype=torch.int64), torch.arange(1, 100))
    assert longest_body(chain, 100, 1) == 5
    pairs = torch.cartesian_prod(torch.arange(60), torch.arange(60))
    dense = Triples(pairs[:, 0], torch.zeros(3600, dtype=torch.int64), pairs[:, 1])
    assert longest_body(dense, 60, 1) == 3
    assert longest_body(chain, 100, 10**6) < 3  # the code of a body fits 64 bits


def test_a_sample_of_an_index_is_part_of_it_and_all_of_what_is_small() -> None:
    index = CsrIndex.build(torch.tensor([1, 1, 1, 1, 4, 4]), torch.tensor([0, 3, 5, 9, 2, 8]))
    row, value = index.sample(torch.tensor([4, 0, 1, 4]), 3, torch.Generator().manual_seed(0))
    assert row.tolist() == [0, 0, 2, 2, 2, 3, 3]
    assert value[:2].tolist() == [2, 8] and value[5:].tolist() == [2, 8]
    assert set(value[2:5].tolist()) <= {0, 3, 5, 9}
