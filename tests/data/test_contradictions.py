"""Facts of a newer graph that break what an older one kept, on graphs whose contradictions are known."""

from __future__ import annotations

import pytest

from harmonium.data.checks.contradictions import find_contradictions
from small import graph_of, ladder


@pytest.mark.parametrize(
    ("old", "new", "rule", "entity", "now"),
    [
        (ladder("{i} r {j}", 6), "x0 r y3", "one tail per head", "x0", "y0, y3 (new)"),
        (ladder("{i} r same{i}", 6), "z r samex0", "one head per tail", "samex0", "x0, z (new)"),
        (ladder("{i} r {j}", 6), "new r y1, new r y2", "one tail per head", "new", "y1 (new), y2 (new)"),
        (ladder("{i} r {j}, {i} r z", 20), "x0 r x0", "no entity with itself", "x0", "x0 (new)"),
        (ladder("{i} r {j}, {i} r z", 20), "y0 r x0", "one direction only", "y0", "x0 (new)"),
    ],
)
def test_facts_that_break_a_rule_which_used_to_hold(old: str, new: str, rule: str, entity: str, now: str) -> None:
    rows = find_contradictions(graph_of(old), graph_of(f"{old}, {new}")).rows
    assert {"relation": "r", "rule": rule, "entity": entity, "now": now, "times": 1} in rows


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ladder("{i} r {j}", 4), "x0 r y3"),  # too few heads to be a rule
        (ladder("{i} r {j}, {i} r z{j}", 20), "x0 r y3"),  # they had two tails
        (ladder("{i} r {j}, {j} r {i}, {i} r {i}", 20), "y0 r y0"),
        (ladder("{i} r {j}", 20), "w r v"),
    ],
)
def test_facts_that_break_no_rule(old: str, new: str) -> None:
    rows = find_contradictions(graph_of(old), graph_of(f"{old}, {new}")).rows
    assert [row for row in rows if row["entity"] in ("w", "v", "x0", "y0") and "one tail" in row["rule"]] == []


def test_a_rule_broken_once_comes_before_one_broken_often_and_lists_are_short() -> None:
    old = ladder("{i} r {j}, {i} s {j}", 30)
    new = ", ".join(f"x{i} s y{i + 1}" for i in range(20)) + ", x0 r y5"
    found = find_contradictions(graph_of(old), graph_of(f"{old}, {new}"), top=3)
    assert found.count > 20 and len(found.rows) == 3 and f"{found.count} facts contradict" in found.sentence
    assert found.rows[0]["relation"] == "r" and found.rows[0]["times"] == 1
    assert [row["times"] for row in found.rows] == sorted(row["times"] for row in found.rows)
