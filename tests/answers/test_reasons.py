"""Reasons for predicted facts: the strongest evidence, with true counts."""

from __future__ import annotations

import re

import pytest
import torch

from harmonium.answers.open_run import open_run
from harmonium.answers.reasons import NO_REASON, Reason, find_reasons
from harmonium.answers.two_step_paths import Path, PathIndex
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.run.run import Run
from small import graph_of, ladder, make_graph, make_run, untrained


def run_with_vectors(graph: Graph, vectors: dict[str, list[float]]) -> Run:
    """Entities have the vectors given, others random ones far from them."""
    model = untrained(graph)
    with torch.no_grad():
        model.entity.copy_(torch.randn(model.entity.shape, generator=torch.Generator().manual_seed(0)))
        model.entity[:, 0] = -5
        for name, vector in vectors.items():
            model.entity[graph.entities.index(name)] = torch.tensor(vector + [0.0] * (6 - len(vector)))
    return make_run(graph, model)


def reason_of(graph: Graph, *fact: str, vectors: dict[str, list[float]] | None = None) -> Reason:
    (reason,) = find_reasons(open_run(run_with_vectors(graph, vectors or {})).evidence, graph.triple(*fact))
    return reason


def test_a_symmetric_relation_is_known_the_other_way_round() -> None:
    graph = graph_of(f"{ladder('{i} borders {j}')}, {ladder('{j} borders {i}', 9)}, a borders b")
    reason = reason_of(graph, "b", "borders", "a")
    assert reason.kind == "rule"
    assert reason.text == "known the other way round: a borders b; 18 of 20 such facts hold both ways"


def test_a_relation_that_comes_with_another() -> None:
    facts = f"{ladder('{i} capital {j}')}, {ladder('{i} in {j}', 8)}, {ladder('{j} has {i}', 7)}"
    graph = graph_of(f"{facts}, a capital b, c has d")
    assert reason_of(graph, "a", "in", "b").text == "known: a capital b; 8 of 11 such facts come with this one"
    assert reason_of(graph, "d", "in", "c").text == "known: c has d; 7 of 8 such facts come with this one"


def test_a_path_of_two_facts() -> None:
    """Everyone lives where their house is, but for one; the second step is read backwards."""
    people = [f"p{i} owns h{i}, c{i % 3} contains h{i}" for i in range(9)]
    lives = [f"p{i} lives c{i % 3}" for i in range(8)]
    graph = graph_of(", ".join([*people, *lives]))
    reason = reason_of(graph, "p8", "lives", "c2")
    assert reason.kind == "path"
    assert reason.text == "known: p8 owns h8 and c2 contains h8; 8 of 9 such pairs have this relation"


def test_similar_entities_have_the_value() -> None:
    near = {f"s{i}": [5.0, i / 10] for i in range(10)} | {"a": [5.0, 0.0]}
    facts = [f"s{i} likes jazz" for i in range(7)] + [f"s{i} likes folk" for i in range(7, 10)]
    facts += [f"o{i} likes rock" for i in range(30)] + ["a owns dog"]
    graph = graph_of(", ".join(facts))
    reason = reason_of(graph, "a", "likes", "jazz", vectors=near)
    assert reason.kind == "similar"
    assert reason.text == (
        "7 of the 10 most similar entities with this relation have this value, such as s0, s1 and s2 (18 % of all)"
    )
    assert reason_of(graph, "a", "likes", "rock", vectors=near).kind == "frequent"


def test_the_same_is_known_of_similar_values() -> None:
    near = {name: [5.0, i / 10] for i, name in enumerate(["french", "german", "italian", "romansh"])}
    facts = [f"o{i} speaks l{i}" for i in range(30)] + ["ch speaks german", "ch speaks italian", "ch speaks romansh"]
    graph = graph_of(", ".join([*facts, "fr speaks french"]))
    reason = reason_of(graph, "ch", "speaks", "french", vectors=near)
    assert reason.kind == "similar"
    assert reason.text.startswith(
        "the same is known of 3 of the 10 values most similar to french, such as german, italian"
    )


def test_a_frequent_value_is_called_no_more_than_that() -> None:
    graph = graph_of(f"{ladder('{i} in europe', 9)}, {ladder('{j} in asia', 3)}, a likes b")
    assert reason_of(graph, "a", "in", "europe").text == "a frequent value: 9 of 12 entities with this relation have it"
    assert (
        reason_of(graph, "a", "in", "asia").text == "only a frequent value: 3 of 12 entities with this relation have it"
    )


def test_without_evidence_there_is_only_the_score() -> None:
    graph = graph_of(f"{ladder('{i} likes {j}', 40)}, a owns b")
    assert reason_of(graph, "a", "likes", "b") == Reason("none", 0.0, NO_REASON)


def test_paths_of_relations_are_shown_by_their_last_part() -> None:
    people = [f"p{i} /person/birth_place h{i}, h{i} /place/in c{i % 3}" for i in range(9)]
    lives = [f"p{i} /person/lives c{i % 3}" for i in range(8)]
    reason = reason_of(graph_of(", ".join([*people, *lives])), "p8", "/person/lives", "c2")
    assert reason.text.startswith("known: p8 birth place h8 and h8 in c2; ")


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_paths_are_those_of_the_graph(seed: int) -> None:
    """Compared with sets of pairs, for paths in all four directions."""
    graph = make_graph(seed=seed)
    rows = graph.facts().to_rows().tolist()
    index = PathIndex(graph.facts(), graph.n_entities, graph.n_relations)
    steps = {s: [(h, t) if s < 3 else (t, h) for h, r, t in rows if r == s % 3] for s in range(6)}
    relation, facts = 1, {(h, t) for h, r, t in rows if r == 1}
    for first, second in ((0, 1), (3, 2), (1, 4), (5, 5)):
        pairs = {(a, d) for a, b in steps[first] for c, d in steps[second] if b == c and len({a, b, d}) == 3}
        assert index.confidence(Path(first, 0, second), relation) == (len(pairs & facts), len(pairs))
    head, tail = 0, 1
    expected = {
        (first, b, second)
        for first in steps for second in steps
        for a, b in steps[first] for c, d in steps[second]
        if a == head and d == tail and b == c and b not in (head, tail)
    }  # fmt: skip
    assert {(path.first, path.middle, path.second) for path in index.between(head, tail)} == expected


def test_many_facts_at_once() -> None:
    graph = make_graph(30, 4, (200, 20, 20))
    heads, relations = torch.arange(100) % 30, torch.arange(100) % 4
    triples = Triples(heads, relations, (heads * 7 + 3) % 30)
    counted: list[int] = []
    evidence = open_run(make_run(graph, untrained(graph))).evidence
    sentences = [reason.text for reason in find_reasons(evidence, triples, counted.append)]
    assert len(sentences) == sum(counted) == 100
    assert all(sentence and not re.search(r"\n|%s|None", sentence) for sentence in sentences)
    assert find_reasons(evidence, triples[:0]) == []
