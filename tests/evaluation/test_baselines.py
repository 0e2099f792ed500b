"""Baselines against definitions written out with loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from harmonium.data.relation_rules import mine_rules
from harmonium.data.triples import Slot
from harmonium.evaluation.baselines import RULE_PRIOR_FAILURES, Frequency, RuleBaseline
from small import graph_of, make_graph


def test_the_frequency_baseline_counts_by_weights_and_not_what_weighs_nothing() -> None:
    graph = graph_of("a likes b, c likes b, d likes e, f likes g", test="a likes e")
    weight = torch.tensor([0.1, 0.1, 1.0, 0.0], dtype=torch.float64)
    scores = Frequency(replace(graph, train=replace(graph.train, weight=weight))).score_slot(Slot.TAIL, graph.test)[0]
    names = [graph.entities.name(i) for i in scores.argsort(descending=True, stable=True).tolist()]
    assert names[:2] == ["e", "b"] and scores[graph.entities.index("g")] == 0


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_rule_baseline_scores_by_noisy_or(slot: Slot) -> None:
    graph = make_graph(6, 3, (50, 1, 12), seed=1)
    baseline = RuleBaseline(graph, confidence=0.2)
    train = [tuple(row) for row in graph.train.to_rows().tolist()]
    mined = mine_rules(graph.train, 6, 3, confidence=0.2)
    columns = mined.body, mined.head, mined.reversed, mined.support / (mined.facts[mined.body] + RULE_PRIOR_FAILURES)
    rules = {tuple(rule): sure for *rule, sure in zip(*(column.tolist() for column in columns), strict=True)}
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
