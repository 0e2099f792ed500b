"""Weights of path rules maximise the likelihood of train facts, by walks that a plain enumeration counts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from harmonium.data.triples import Slot, Triples
from harmonium.grammar import path_weights, walks
from harmonium.grammar.path_weights import PathQueries
from harmonium.grammar.walks import OTHER_END, Body, Steps
from plain_walks import count_walks, take
from small import make_graph

GRAPH = make_graph(9, 2, sizes=(30, 5, 5))
STEPS = Steps.build(GRAPH.train, GRAPH.n_entities, GRAPH.n_relations)
FACTS = [tuple(row) for row in GRAPH.train.to_rows().tolist()]
BODIES: list[Body] = [(3,), (0, 1), (0, 1, 2), (0, 2, 0), (1, 1, 3), (2, 0, 0, 1)]


def facts_of_relation() -> Triples:
    facts = GRAPH.train[GRAPH.train.relation == 0]
    facts = facts[facts.head != facts.tail]
    return replace(facts, weight=torch.linspace(0.2, 1, len(facts), dtype=torch.float64))


def gather(slot: Slot, facts: Triples) -> PathQueries:
    known = GRAPH.known_answers(slot, ("train",), facts)
    return PathQueries.gather(STEPS, known, facts, BODIES, np.random.default_rng(0))


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_weights_maximise_the_likelihood_of_train_facts(
    slot: Slot, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is that of a softmax over all entities but other known answers, the fact hidden from its walks."""
    monkeypatch.setattr(walks, "FIRST_BLOCK", block)
    monkeypatch.setattr(walks, "CELLS_AT_ONCE", block)
    facts = facts_of_relation()
    assert len(facts[OTHER_END[slot]].unique()) < len(facts)  # some queries have several answers
    features = torch.zeros(len(facts), 9, len(BODIES), dtype=torch.float64)
    allowed = torch.ones(len(facts), 9, dtype=torch.bool)
    for row, (head, tail) in enumerate(zip(facts.head.tolist(), facts.tail.tolist(), strict=True)):
        start, end = (head, tail) if slot is Slot.TAIL else (tail, head)
        step = 0 if slot is Slot.TAIL else 2
        allowed[row, [other for other in take(FACTS, 2, step, start) if other != end]] = False
        for number, body in enumerate(BODIES):
            walked = body if slot is Slot.TAIL else STEPS.reverse(body)
            for reached, count in count_walks(FACTS, 2, walked, start, (step, end)).items():
                features[row, reached, number] = math.log2(1 + count)

    def objective(weights: torch.Tensor) -> torch.Tensor:
        scores = (features @ weights).masked_fill(~allowed, -torch.inf)
        losses = -scores.log_softmax(1)[torch.arange(len(facts)), facts[slot]]
        importance = facts.weights() / facts.weights().mean()
        return losses @ importance + path_weights.PRIOR_PRECISION / 2 * weights.square().sum()

    weights = torch.from_numpy(gather(slot, facts).most_likely_weights()).requires_grad_()
    value = objective(weights)
    (slope,) = torch.autograd.grad(value, weights)
    assert slope.abs().max() < 1e-2
    assert value < objective(torch.zeros_like(weights)) - 0.1


def test_a_sample_of_wrong_answers_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of_relation()
    whole = gather(Slot.TAIL, facts)
    monkeypatch.setattr(path_weights, "WRONG_ANSWERS", 2)
    part = gather(Slot.TAIL, facts)
    assert part.wrong.shape[0] < whole.wrong.shape[0]
    known = [len(take(FACTS, 2, 0, head)) for head in facts.head.tolist()]
    for queries in (whole, part):  # they stand for as many wrong answers, however many are drawn
        stands_for = np.diff(queries.first_wrong) * queries.share + queries.unreached
        np.testing.assert_allclose(stands_for, 9 - np.array(known))


def test_a_budget_bounds_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "FIRST_BLOCK", 1)
    monkeypatch.setattr(walks, "CELLS_AT_ONCE", 1)
    facts = facts_of_relation()
    known, random = GRAPH.known_answers(Slot.TAIL, ("train",), facts), np.random.default_rng(0)
    some = PathQueries.gather(STEPS, known, facts, BODIES, random, budget=20)
    assert 1 <= some.true.shape[0] < len(facts)
    whole = gather(Slot.TAIL, facts)
    assert (some.true.toarray() == whole.true.toarray()[: some.true.shape[0]]).all()
    least = PathQueries.gather(STEPS, known, facts, BODIES, random, budget=0)
    assert least.true.shape[0] >= 1 and np.isfinite(least.most_likely_weights()).all()


def test_of_each_group_some_members_are_drawn() -> None:
    sizes = np.array([3, 0, 50, 4])
    drawn = path_weights._draw_of_each(sizes, 4, np.random.default_rng(0))
    assert drawn[:3].tolist() == [0, 1, 2] and drawn[-4:].tolist() == [53, 54, 55, 56]
    assert 0 < len(drawn[3:-4]) <= 4 and set(drawn[3:-4]) < set(range(3, 53))
    assert (np.diff(drawn) > 0).all()
