"""One-step rules against definitions written out with loops and sets."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from harmonium.data import relation_rules
from harmonium.data.relation_rules import KINDS, Rules, find_implied, mine_rules
from harmonium.data.triples import Triples
from small import graph_of, ladder, make_graph


def rules_by_definition(facts: Triples) -> dict[tuple[int, int, bool], tuple[int, float, float]]:
    """(body, head, reversed) -> support, confidence, coverage, from the definition."""
    known = {(h, r, t) for h, r, t in facts.to_rows().tolist() if h != t}
    relations = {r for _, r, _ in known}
    size = {r: sum(fact[1] == r for fact in known) for r in relations}
    rules = {}
    for body, head, reversed in itertools.product(relations, relations, (False, True)):
        support = sum(((t, head, h) if reversed else (h, head, t)) in known for h, r, t in known if r == body)
        if support and (reversed or body != head):
            rules[body, head, reversed] = (support, support / size[body], support / size[head])
    return rules


def as_dict(rules: Rules) -> dict[tuple[int, int, bool], tuple[int, float, float]]:
    keys = zip(rules.body.tolist(), rules.head.tolist(), rules.reversed.tolist(), strict=True)
    values = zip(rules.support.tolist(), rules.confidence.tolist(), rules.coverage.tolist(), strict=True)
    return dict(zip(keys, values, strict=True))


@pytest.mark.parametrize("joined", [1, 7, 1 << 22])
def test_rules_by_definition_in_chunks_of_any_size(joined: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_rules, "MAX_JOINED", joined)
    facts = make_graph(6, 4, (70, 1, 1)).train
    facts = Triples.cat([facts, facts[:9]])  # repeated facts count once
    expected = rules_by_definition(facts)
    assert as_dict(mine_rules(facts, 6, 4, confidence=0, support=1)) == expected
    assert as_dict(mine_rules(facts, 6, 4, confidence=0.5, support=4)) == {
        rule: numbers for rule, numbers in expected.items() if numbers[1] >= 0.5 and numbers[0] >= 4
    }
    cells = mine_rules(facts, 6, 4, confidence=0, support=1).cell
    assert (cells.diff() > 0).all()


def weighted_rules_by_definition(
    facts: Triples, weights: list[float]
) -> dict[tuple[int, int, bool], tuple[float, float, float]]:
    """The same with weights: a fact counts by its weight, two together by the smaller one."""
    mean = sum(weights) / len(weights)
    weight = {
        (h, r, t): w / mean for (h, r, t), w in zip(facts.to_rows().tolist(), weights, strict=True) if h != t and w
    }
    rules = {}
    for body, head, reversed in itertools.product(range(4), range(4), (False, True)):
        support = sum(
            min(w, weight.get((t, head, h) if reversed else (h, head, t), 0))
            for (h, r, t), w in weight.items()
            if r == body
        )
        sizes = [sum(w for (_, r, _), w in weight.items() if r == relation) for relation in (body, head)]
        if support and (reversed or body != head):
            rules[body, head, reversed] = (support, support / sizes[0], support / sizes[1])
    return rules


def test_facts_count_by_their_weights() -> None:
    facts = make_graph(6, 4, (70, 1, 1)).train
    facts = facts[facts.head != facts.tail]
    weights = [(0.0, 0.3, 1.0, 2.5)[i % 4] for i in range(len(facts))]
    positive = [weight for weight in weights if weight]
    got = as_dict(mine_rules(replace(facts, weight=torch.tensor(weights).double()), 6, 4, confidence=0, support=0))
    kept = facts[torch.tensor(weights) > 0]
    expected = weighted_rules_by_definition(kept, positive)
    assert got.keys() == expected.keys()
    assert all(got[rule] == pytest.approx(expected[rule]) for rule in got)


def test_equal_weights_count_like_none() -> None:
    graph = make_graph(6, 4, (70, 1, 8))
    weighted = replace(graph.train, weight=torch.full((70,), 0.3, dtype=torch.float64))
    rules, equal = (mine_rules(facts, 6, 4, confidence=0.2) for facts in (graph.train, weighted))
    assert rules.cell.equal(equal.cell) and len(rules)


def test_no_facts_give_no_rules() -> None:
    none = Triples.from_rows([])
    rules = mine_rules(none, 3, 2)
    assert len(rules) == 0
    assert find_implied(Triples.from_rows([[0, 0, 1]]), none, rules, 3)[0].tolist() == [[False]] * 4


def kinds_of(facts: str) -> dict[str, set[tuple[str, str]]]:
    graph = graph_of(facts)
    rules = mine_rules(graph.facts(), graph.n_entities, graph.n_relations)
    pairs: dict[str, set[tuple[str, str]]] = {}
    for kind, body, head in zip(rules.kind.tolist(), rules.body.tolist(), rules.head.tolist(), strict=True):
        pairs.setdefault(KINDS[kind], set()).add((graph.relations.ids[body], graph.relations.ids[head]))
    return pairs


def test_kinds_of_rules() -> None:
    inverse, duplicate = (
        ladder("{i} parent {j}, {j} child {i}"),
        ladder("{i} in {j}") + "," + ladder("{i} within {j}", 8),
    )
    assert kinds_of(inverse) == {"inverse": {("parent", "child"), ("child", "parent")}}
    assert kinds_of(duplicate) == {"duplicate": {("in", "within"), ("within", "in")}}  # 8 of 10 is just enough
    assert kinds_of(ladder("{i} in {j}") + "," + ladder("{i} at {j}", 7)) == {"implied": {("at", "in")}}
    assert kinds_of(ladder("{i} near {j}, {j} near {i}")) == {"symmetric": {("near", "near")}}
    assert kinds_of(ladder("{i} near {i}")) == {}  # self-loops have no direction
    assert kinds_of(ladder("{i} in {j}, {i} within {j}", 2)) == {}  # too few pairs


def test_implied_facts_by_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_rules, "MAX_JOINED", 5)
    graph = make_graph(6, 4, (60, 1, 40), seed=3)
    rules = mine_rules(graph.facts(), 6, 4, confidence=0.45, support=1)
    train = {tuple(row) for row in graph.train.to_rows().tolist()}
    flags, finds = torch.zeros(4, 40, dtype=torch.bool), [0] * len(rules)
    for number, (body, head, reversed) in enumerate(as_dict(rules)):
        for row, (h, r, t) in enumerate(graph.test.to_rows().tolist()):
            if r == head and ((t, body, h) if reversed else (h, body, t)) in train:
                flags[rules.kind[number], row] = True
                finds[number] += 1
    got = find_implied(graph.test, graph.train, rules, 6)
    assert got[0].equal(flags) and got[1].tolist() == finds
    assert flags.any() and not flags.all() and sum(finds) > flags.sum()
