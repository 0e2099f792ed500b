"""Walks are those of a plain enumeration, for any size of blocks and however steps are looked up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from harmonium.data.triples import Triples
from harmonium.grammar import walks
from harmonium.grammar.walks import Body, BodyTree, Steps, example_walk
from plain_walks import count_walks, take
from small import make_graph

GRAPH = make_graph(9, 2, sizes=(30, 5, 5))
STEPS = Steps.build(GRAPH.train, GRAPH.n_entities, GRAPH.n_relations)
FACTS = [tuple(row) for row in GRAPH.train.to_rows().tolist()]
BODIES: list[Body] = [(0,), (3,), (0, 1), (0, 1, 2), (1, 1, 3), (2, 0, 0, 1)]


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize(("first_block", "cells"), [(1, 1), (2, 1 << 20)])
@pytest.mark.parametrize("largest_table", [0, 1 << 20])
def test_walks_are_those_of_an_enumeration(
    is_hidden: bool, first_block: int, cells: int, largest_table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "FIRST_BLOCK", first_block)
    monkeypatch.setattr(walks, "CELLS_AT_ONCE", cells)
    monkeypatch.setattr(walks, "LARGEST_TABLE", largest_table)
    steps = Steps.build(GRAPH.train, GRAPH.n_entities, GRAPH.n_relations)
    starts = np.array([0, 3, 3, 7])
    answers = np.array([(take(FACTS, 2, 0, int(start)) or [-1])[0] for start in starts])
    measured = {
        (int(rule), block.start + int(cell) // 9, int(cell) % 9): count
        for block, reached in steps.count_walks(BodyTree.of(BODIES), starts, (0, answers) if is_hidden else None)
        for level in reached
        for rule, cell, count in zip(level.rule, level.cell, level.walks, strict=True)
    }
    expected = {
        (number, row, end): count
        for number, body in enumerate(BODIES)
        for row, start in enumerate(starts.tolist())
        for end, count in count_walks(FACTS, 2, body, start, (0, int(answers[row])) if is_hidden else None).items()
    }
    assert measured == expected
    assert max(expected.values()) > 2


def test_no_bodies_reach_nothing() -> None:
    ((block, reached),) = STEPS.count_walks(BodyTree.of([]), np.array([4]))
    assert (block, reached) == (slice(0, 1), [])


def test_an_example_of_a_walk_consists_of_facts_from_head_to_tail() -> None:
    existing = Counter[bool]()
    for body in BODIES:
        for head in range(9):
            reached = count_walks(FACTS, 2, body, head)
            for tail in range(9):
                facts = example_walk(STEPS, body, head, tail)
                existing[bool(facts)] += 1
                assert bool(facts) == (tail in reached)
                assert all(fact in FACTS for fact in facts)
                end = head
                for step, (fact_head, relation, fact_tail) in zip(body, facts, strict=False):
                    start, end_of_step = (fact_head, fact_tail) if step < 2 else (fact_tail, fact_head)
                    assert (start, relation) == (end, step % 2)
                    end = end_of_step
                assert not facts or end == tail
    assert min(existing.values()) > 20


def test_an_example_goes_over_entities_with_few_facts() -> None:
    rows = [[0, 0, 1], [0, 0, 2], [1, 0, 3], [2, 0, 3], [1, 0, 4]]
    steps = Steps.build(Triples.from_rows(torch.tensor(rows)), 5, 1)
    assert example_walk(steps, (0, 0), 0, 3) == [(0, 0, 2), (2, 0, 3)]
