"""A known reverse, or the same fact in another relation, decides: other constraints do not outweigh it."""

from __future__ import annotations

import numpy as np
import pytest

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.grammar.grammar import Grammar
from harmonium.training.constraints import learn_constraints
from small import small_vectors

N, HUBS = 60, 4
RELATIONS = ["near", "close to", "lies in"]  # symmetric; its duplicate, for most pairs; one that says little of both


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Some entities are near to many, so that usual answers tempt."""
    random = np.random.default_rng(0)
    popular = np.where(random.random(150) < 0.4, random.integers(0, HUBS, 150), random.integers(HUBS, N, 150))
    pairs = {(int(a), int(b)) for a, b in zip(random.integers(HUBS, N, 150), popular, strict=True) if a != b}
    pairs = {tuple(sorted(pair)) for pair in pairs}
    rows = [[h, 0, t] for a, b in sorted(pairs) for h, t in ((a, b), (b, a))]
    rows += [[a, 1, b] for a, b in sorted(pairs) if random.random() < 0.8]
    rows += [[a, 2, int(random.integers(0, HUBS))] for a in range(HUBS, N)]
    held_out = random.random(len(rows)) < 0.15
    train, valid = ([row for row, out in zip(rows, held_out, strict=True) if out == is_out] for is_out in (False, True))
    vocabularies = Vocabulary([f"place {i}" for i in range(N)]), Vocabulary(RELATIONS)
    return Graph(*vocabularies, Triples.from_rows(train), Triples.from_rows(valid), Triples.from_rows([]))


@pytest.fixture(scope="module")
def grammar(graph: Graph) -> Grammar:
    vectors = small_vectors(graph)
    learned = learn_constraints(vectors, graph)
    assert learned is not None
    return learned.on(vectors, graph, ("train",))


@pytest.mark.parametrize("told_by", [0, 1], ids=["reverse", "duplicate"])
def test_what_follows_from_one_known_fact_is_ranked_first(graph: Graph, grammar: Grammar, told_by: int) -> None:
    known = {tuple(row) for row in graph.train.to_rows().tolist()}
    told = [
        [h, r, t]
        for h, r, t in graph.valid.to_rows().tolist()
        if r == 0 and ((t, told_by, h) in known or (told_by and (h, told_by, t) in known))
    ]
    assert len(told) > 10
    metrics = evaluate_scorer(grammar, graph, EvaluateConfig(split="valid"), Triples.from_rows(told)).metrics
    assert metrics["mrr"] > 0.9
