"""The learned rules of a run: listed with true counts, switched off, given other weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from plain_walks import count_walks
from small import graph_of, ladder, make_run, run_with_constraints, untrained


@pytest.fixture(scope="module")
def run() -> Run:
    return run_with_constraints()


def test_rules_are_the_heaviest_with_counts_of_an_enumeration(run: Run) -> None:
    graph, learned = run.graph, harmonium.rules(run, top=12)
    facts = [tuple(row) for row in graph.facts().to_rows().tolist()]
    everything = harmonium.rules(run, top=10**6)
    assert len(learned.rules) == 12 < learned.total == len(everything.rules)
    assert learned.rules == everything.rules[:12]
    sizes = [abs(rule.weight) for rule in everything.rules]
    assert sizes == sorted(sizes, reverse=True)
    assert sorted(rule.number for rule in everything.rules) == list(range(1, learned.total + 1))
    stored = run.grammar.rules.by_relation
    bodies = [(slot, r, body) for (slot, r), rules in stored.items() for body in rules.bodies]
    for rule in learned.rules:
        slot, relation, body = bodies[rule.number - 1]
        assert (slot, graph.relations.name(relation)) == (rule.open, rule.relation)
        connected = sum(len(count_walks(facts, graph.n_relations, body, start)) for start in range(graph.n_entities))
        assert rule.connected == connected
        assert 0 <= rule.support <= connected
        names = graph.names_of(graph.facts())
        assert all(fact in names for fact in rule.example)
        assert rule.text == f"X {rule.relation} Y if {rule.path}"


def test_rules_of_one_relation(run: Run) -> None:
    learned = harmonium.rules(run, relation="located in")
    assert {rule.relation for rule in learned.rules} == {"located in"}
    assert [(each.relation, each.open) for each in learned.weights] == [
        ("located in", Slot.TAIL), ("located in", Slot.HEAD),
    ]  # fmt: skip
    with pytest.raises(HarmoniumError, match="nonsense"):
        harmonium.rules(run, relation="nonsense")


def test_a_rule_switched_off_or_fixed_changes_answers(run: Run, tmp_path: Path) -> None:
    """By exactly what it contributed; the fingerprint changes with it, also in the folder."""
    learned = harmonium.rules(run, top=10**6)
    rule = next(rule for rule in learned.rules if rule.open is Slot.TAIL and rule.example and rule.weight)
    head, tail = (rule.example[0][0], rule.example[-1][2])
    off, half = learned.change(off=[rule.number]), learned.change(weights={rule.number: rule.weight / 2})
    relation = run.graph.relations.index(rule.relation)
    queries = torch.arange(run.graph.n_entities).numpy()
    before, after, between = (
        each.answering_scorer().symbolic_of(Slot.TAIL, relation, queries) for each in (run, off, half)
    )
    assert (before != after).any()
    assert abs((before + after) / 2 - between).max() < 1e-9
    assert abs(before - after).max() >= abs(rule.weight) * math.log2(2) - 1e-9
    assert len({run.fingerprint, off.fingerprint, half.fingerprint}) == 3
    assert harmonium.rules(off, top=10**6).rules[-1].weight == 0
    saved = learned.change(off=[rule.number], out=tmp_path / "changed")
    again = Run.load(saved.path)
    assert again.fingerprint == off.fingerprint
    (first,), (second,) = (harmonium.score(each, [(head, rule.relation, tail)]) for each in (off, again))
    assert first.score == second.score
    with pytest.raises(HarmoniumError, match="overwrite"):
        learned.change(off=[rule.number], out=tmp_path / "changed")


def test_errors_say_what_to_do(run: Run) -> None:
    learned = harmonium.rules(run, top=1)
    with pytest.raises(HarmoniumError, match="no rule 0; rules have the numbers 1 to"):
        learned.change(off=[0])
    with pytest.raises(HarmoniumError, match="finite number"):
        learned.change(weights={1: math.nan})
    graph = graph_of(ladder("{i} likes {j}"))
    with pytest.raises(HarmoniumError, match="has learned no constraints"):
        harmonium.rules(make_run(graph, untrained(graph)))
    weights = run.grammar.weights.by_slot.clone()
    weights[..., 1] = 0
    idle = replace(run, grammar=replace(run.grammar, weights=replace(run.grammar.weights, by_slot=weights)))
    assert {rule.weight for rule in harmonium.rules(idle, top=9).rules} == {0}
    with pytest.raises(HarmoniumError, match="paths as a whole have none"):
        harmonium.rules(idle, top=0).change(weights={1: 0.5})


def test_they_show_themselves(run: Run) -> None:
    learned = harmonium.rules(run, top=2)
    text = str(learned)
    for rule in learned.rules:
        assert f"right in {rule.support:,} of {rule.connected:,} cases" in text
    assert "Weights of all constraints" not in text
    assert "Weights of all constraints of language" in str(harmonium.rules(run, "language"))
    contents = json.loads(json.dumps(learned.to_json()))
    assert contents["rules"] == learned.records()
    assert set(contents["weights"][0]["weights"]) >= {"vectors", "paths", "best value", "usual value"}
