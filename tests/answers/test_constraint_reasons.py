"""Reasons of runs with a grammar: the constraint that adds most and is right often."""

from __future__ import annotations

import re

import pytest

from harmonium.answers.open_run import open_run
from harmonium.answers.reasons import NO_REASON, Reason, find_reasons
from harmonium.data.triples import Triples
from harmonium.run.run import Run
from small import run_with_constraints


@pytest.fixture(scope="module")
def run() -> Run:
    return run_with_constraints()


def reason_of(run: Run, *fact: str) -> Reason:
    (reason,) = find_reasons(open_run(run).evidence, run.graph.triple(*fact))
    return reason


def test_names_speak_for_what_only_names_say(run: Run) -> None:
    held_out = [f for f in run.graph.names_of(run.graph.facts()) if f[1] == "currency"]
    assert {reason_of(run, *fact).kind for fact in held_out} == {"name"}


def test_counts_are_those_of_the_graph_without_the_fact_itself(run: Run) -> None:
    """Counts of "n of m entities with 'relation: value'" and of paths, recounted from the list of facts."""
    facts = run.graph.names_of(run.graph.facts())
    checked = set()
    for head, relation, tail in facts[::3]:
        reason = reason_of(run, head, relation, tail)
        others = [fact for fact in facts if fact != (head, relation, tail)]
        if match := re.match(r"(\d+) of (\d+) entities with '(.*): (.*)' have this value", reason.text):
            have, total, step, value = match.groups()
            with_value = {h for h, r, t in others if (r, t) == (step, value)}
            answered = {h for h, r, _ in others if r == relation}
            assert int(total) == len(with_value & answered)
            assert int(have) == len({h for h, r, t in others if (r, t) == (relation, tail)} & with_value)
            checked.add("value")
        if match := re.match(r"known: (.*); right in (\d+) of (\d+) such cases", reason.text):
            assert int(match[2]) <= int(match[3])
            assert f"{head} {relation} {tail}" not in re.split(", | and ", match[1])
            checked.add("path")
    assert checked


def test_a_usual_value_is_told_only_where_nothing_else_speaks(run: Run) -> None:
    graph = run.graph
    reasons = find_reasons(open_run(run).evidence, graph.facts())
    assert {reason.kind for reason in reasons} <= {"path", "value", "similar", "name"}
    assert all(reason.text and 0 < reason.strength <= 1 for reason in reasons)
    assert find_reasons(open_run(run).evidence, Triples.from_rows([])) == []


def test_without_any_constraint_there_is_only_the_score(run: Run) -> None:
    assert reason_of(run, "Language 1", "currency", "City 3") == Reason("none", 0.0, NO_REASON)
