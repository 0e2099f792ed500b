"""One-step rules against definitions written out with loops and sets."""

from __future__ import annotations

import itertools

import pytest

from harmonium.data import relation_rules
from harmonium.data.relation_rules import RULE_KINDS, Rules, mine_rules
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


def kinds_of(facts: str) -> dict[str, set[tuple[str, str]]]:
    graph = graph_of(facts)
    rules = mine_rules(graph.facts(), graph.n_entities, graph.n_relations)
    pairs: dict[str, set[tuple[str, str]]] = {}
    for kind, body, head in zip(rules.kind.tolist(), rules.body.tolist(), rules.head.tolist(), strict=True):
        pairs.setdefault(RULE_KINDS[kind], set()).add((graph.relations.ids[body], graph.relations.ids[head]))
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
