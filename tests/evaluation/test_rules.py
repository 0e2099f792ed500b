"""Rules and their baseline against definitions written out with loops and sets."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from harmonium.data.triples import Slot, Triples
from harmonium.evaluation import rules as rules_module
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.rules import KINDS, PRIOR_FAILURES, RuleBaseline, Rules, find_implied, mine_rules
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
    monkeypatch.setattr(rules_module, "MAX_JOINED", joined)
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
    weighted = replace(graph, train=replace(graph.train, weight=torch.full((70,), 0.3, dtype=torch.float64)))
    rules, equal = (mine_rules(each.train, 6, 4, confidence=0.2) for each in (graph, weighted))
    assert rules.cell.equal(equal.cell) and len(rules)
    for baseline in (RuleBaseline, Frequency):
        for slot in (Slot.HEAD, Slot.TAIL):
            scores = [baseline(each).score_slot(slot, graph.test) for each in (graph, weighted)]
            factor = 1.0 if baseline is RuleBaseline else 0.3
            torch.testing.assert_close(scores[1], factor * scores[0])


def test_the_frequency_baseline_counts_by_weights_and_not_what_weighs_nothing() -> None:
    graph = graph_of("a likes b, c likes b, d likes e, f likes g", test="a likes e")
    weight = torch.tensor([0.1, 0.1, 1.0, 0.0], dtype=torch.float64)
    scores = Frequency(replace(graph, train=replace(graph.train, weight=weight))).score_slot(Slot.TAIL, graph.test)[0]
    names = [graph.entities.name(i) for i in scores.argsort(descending=True, stable=True).tolist()]
    assert names[:2] == ["e", "b"] and scores[graph.entities.index("g")] == 0


def test_rules_do_not_apply_to_facts_that_weigh_nothing() -> None:
    graph = graph_of(ladder("{i} likes {j}, {j} loved-by {i}") + ", p likes q", test="q loved-by p")
    baseline = RuleBaseline(graph)
    assert baseline.score_slot(Slot.HEAD, graph.test)[0, graph.entities.index("q")] > 0
    weight = torch.ones(len(graph.train), dtype=torch.float64)
    weight[-1] = 0
    absent = RuleBaseline(replace(graph, train=replace(graph.train, weight=weight)))
    assert absent.score_slot(Slot.HEAD, graph.test)[0, graph.entities.index("q")] == 0


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
    monkeypatch.setattr(rules_module, "MAX_JOINED", 5)
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


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_rule_baseline_scores_by_noisy_or(slot: Slot) -> None:
    graph = make_graph(6, 3, (50, 1, 12), seed=1)
    baseline = RuleBaseline(graph, confidence=0.2)
    train = [tuple(row) for row in graph.train.to_rows().tolist()]
    size = {r: sum(fact[1] == r and fact[0] != fact[2] for fact in train) for r in range(3)}
    rules = {
        rule: n[0] / (size[rule[0]] + PRIOR_FAILURES)
        for rule, n in rules_by_definition(graph.train).items()
        if n[1] >= 0.2 and n[0] >= 3
    }
    expected = torch.zeros(12, 6, dtype=torch.float64)
    for row, (h, r, t) in enumerate(graph.test.to_rows().tolist()):
        for e in range(6):
            one, other = (e, t) if slot is Slot.HEAD else (h, e)
            fails = [
                1 - sure
                for (body, head, reversed), sure in rules.items()
                if head == r and ((other, body, one) if reversed else (one, body, other)) in train
            ]
            expected[row, e] = -math.log(math.prod(fails))
    assert len(rules) > 4 and expected.unique().numel() > 6
    torch.testing.assert_close(baseline.score_slot(slot, graph.test).double(), expected, rtol=1e-5, atol=1e-6)
