"""Bodies are all simple paths between the ends of facts, those that connect the most facts first."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch

from harmonium.data.index import CsrIndex
from harmonium.data.triples import Triples
from harmonium.grammar import path_bodies
from harmonium.grammar.path_bodies import find_bodies, longest_body
from harmonium.grammar.walks import Body, steps_between
from plain_walks import take
from small import make_graph

GRAPH = make_graph(9, 2, sizes=(30, 5, 5))
FACTS = [tuple(row) for row in GRAPH.train.to_rows().tolist()]


def test_bodies_are_all_simple_paths_with_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_bodies, "MIN_SUPPORT", 1)
    monkeypatch.setattr(path_bodies, "EDGES", (1000, 1000, 1000))
    facts = GRAPH.train[GRAPH.train.relation == 0]
    facts = facts[facts.head != facts.tail]
    measured = find_bodies(steps_between(GRAPH.train, 2), facts, 2, 3, torch.Generator())
    support: Counter[Body] = Counter()
    for head, tail in zip(facts.head.tolist(), facts.tail.tolist(), strict=True):
        for length in (1, 2, 3):
            for body in product(range(4), repeat=length):
                walks = [[head]]
                for step in body:
                    walks = [
                        [*walk, end] for walk in walks for end in take(FACTS, 2, step, walk[-1]) if end not in walk
                    ]
                support[body] += any(walk[-1] == tail for walk in walks)
    del support[(0,)]  # the relation itself
    assert set(measured) == {body for body, count in support.items() if count}
    assert [support[body] for body in measured] == sorted((support[body] for body in measured), reverse=True)


def test_walks_of_different_facts_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last fact has no walk of two steps from its tail: numbers of facts must not be mistaken for each other."""
    monkeypatch.setattr(path_bodies, "MIN_SUPPORT", 1)
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
