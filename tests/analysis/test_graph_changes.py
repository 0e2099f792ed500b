"""What changed between two versions of a graph whose changes are known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from harmonium.analysis.changed_facts import find_changed_relations, find_contradictions
from harmonium.analysis.graph_changes import GraphChanges, compare_graphs
from harmonium.data.graph import Graph
from harmonium.data.joint_facts import JointFacts
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from small import family, graph_of, ladder, make_graph


def changes(first: Graph, second: Graph, top: int = 100) -> GraphChanges:
    return compare_graphs(JointFacts.of(first, second), top=top)


def renumbered(graph: Graph, seed: int) -> Graph:
    """The same graph with other ids and another order of facts."""
    generator = random.Random(seed)
    names = {kind: list(getattr(graph, kind).ids) for kind in ("entities", "relations")}
    order = {kind: generator.sample(ids, len(ids)) for kind, ids in names.items()}
    splits = {}
    for split, facts in graph.splits.items():
        rows = [
            [order["entities"].index(h), order["relations"].index(r), order["entities"].index(t)]
            for h, r, t in graph.names_of(facts)
        ]
        splits[split] = Triples.from_rows(generator.sample(rows, len(rows)))
    vocabularies = Vocabulary(order["entities"]), Vocabulary(order["relations"], kind="relation")
    return Graph(*vocabularies, **splits, name="renumbered")


@pytest.mark.parametrize("seed", range(3))
def test_numbering_and_order_are_no_change(seed: int) -> None:
    graph = make_graph(seed=seed)
    assert changes(graph, renumbered(graph, seed)).is_empty
    assert changes(graph, graph).sentence == "the graph is the same"


def test_what_was_added_removed_and_moved_is_counted_and_named() -> None:
    before = graph_of("a r b, b r c, c s a", "a s c", "b s a")
    after = graph_of("a r b, c s a, a s c, d r a", "", "b s a, b r c, a t d")
    found = changes(before, after)
    assert {change: part.count for change, part in found.facts.items()} == {
        "added": 2, "removed": 0, "moved": 2, "reweighted": 0, "recorded as false": 0, "no longer recorded as false": 0,
    }  # fmt: skip
    assert [row["text"] for row in found.facts["added"].rows] == ["d, r, a", "a, t, d"]
    assert [(row["text"], row["before"], row["after"]) for row in found.facts["moved"].rows] == [
        ("b, r, c", "train", "test"), ("a, s, c", "valid", "train"),
    ]  # fmt: skip
    assert found.moves == {"train to test": 1, "valid to train": 1}
    assert [row["name"] for row in found.entities["added"].rows] == ["d"]
    assert [row["name"] for row in found.relations["added"].rows] == ["t"]
    assert found.sizes["facts"] == (5, 7)
    assert found.by_relation.rows[0] == {"relation": "r", "added": 1, "removed": 0, "moved": 1}
    reverse = changes(after, before)
    assert reverse.facts["removed"].count == 2 and reverse.entities["removed"].count == 1


def test_facts_that_became_false_are_a_change_of_their_own() -> None:
    before = graph_of("a r b, b r c, c s a")
    false, other = before.triple("a", "s", "b"), before.triple("c", "r", "c")
    after = graph_of("b r c, c s a, a r b")  # in another order, so with other ids
    after = replace(after, rejected=Triples.cat([after.triple("a", "s", "b"), after.triple("c", "r", "c")]))
    made = changes(replace(before, rejected=false), after)
    assert [row["text"] for row in made.facts["recorded as false"].rows] == ["c, r, c"]
    assert not made.is_empty and made.sentence == "facts: 1 recorded as false"
    undone = changes(after, replace(before, rejected=other))
    assert [row["text"] for row in undone.facts["no longer recorded as false"].rows] == ["a, s, b"]


def test_lists_are_short_and_say_how_long_they_are() -> None:
    before, after = make_graph(), make_graph(seed=5)
    found, short = changes(before, after, 1000), changes(before, after, 2)
    for change, part in short.facts.items():
        assert part.count == found.facts[change].count == len(found.facts[change].rows)
        assert list(part.rows) == list(found.facts[change].rows[:2])
        assert part.more == part.count - len(part.rows)


def test_without_splits_nothing_moves() -> None:
    graph = make_graph()
    moved = replace(graph, train=graph.facts(), valid=graph.valid[:0], test=graph.test[:0])
    found = compare_graphs(JointFacts.of(graph, moved), has_splits=False)
    assert found.is_empty and "train" not in found.sizes


def test_renamed_entities_and_relations_are_guessed_by_their_facts() -> None:
    graph = family()
    entities = ["someone" if name == "person 7" else name for name in graph.entities.ids]
    relations = ["follows" if name == "next" else name for name in graph.relations.ids]
    found = changes(graph, replace(graph, entities=Vocabulary(entities)))
    assert list(found.entities["renamed"].rows) == [{"before": "person 7", "after": "someone"}]
    found = changes(graph, replace(graph, relations=Vocabulary(relations, kind="relation")))
    assert list(found.relations["renamed"].rows) == [{"before": "next", "after": "follows"}]
    two = graph_of("a r x, a r y, b r x, b r y"), graph_of("c r x, c r y, d r x, d r y")
    assert changes(*two).entities["renamed"].count == 0  # which is which?


def test_labels_that_changed() -> None:
    graphs = [graph_of("a r b, b r a", labels={"a": label}) for label in ("Anna", "Ana")]
    rows = changes(*graphs).entities["relabelled"].rows
    assert list(rows) == [{"id": "a", "before": "Anna", "after": "Ana"}]


# Contradictions ---------------------------------------------------------------------------------------------------------


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
    rows = find_contradictions(JointFacts.of(graph_of(old), graph_of(f"{old}, {new}")), 10).rows
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
    rows = find_contradictions(JointFacts.of(graph_of(old), graph_of(f"{old}, {new}")), 10).rows
    assert [row for row in rows if row["entity"] in ("w", "v", "x0", "y0") and "one tail" in row["rule"]] == []


def test_an_old_exception_is_not_new() -> None:
    old = ladder("{i} r {j}", 30) + ", x0 r y9"
    facts = JointFacts.of(graph_of(old), graph_of(f"{old}, x0 r y8, x1 r y8"))
    assert [row["entity"] for row in find_contradictions(facts, 10).rows if row["rule"] == "one tail per head"] == [
        "x1"
    ]


def test_relations_that_are_used_otherwise() -> None:
    old = ladder("{i} r {j}", 30) + ", " + ladder("{i} s {j}", 30)
    more = ", ".join(f"x{i} r z{k}" for i in range(30) for k in range(2))
    rows = find_changed_relations(JointFacts.of(graph_of(old), graph_of(f"{old}, {more}")), 10).rows
    assert [(row["relation"], row["before"], row["after"]) for row in rows] == [("r", 30, 90), ("s", 30, 30)]
    assert "1.5 times as frequent" in rows[0]["change"] and "1.0 to 3.0 tails per head" in rows[0]["change"]
    assert rows[1]["change"] == "1/2.0 as frequent"
    assert find_changed_relations(JointFacts.of(graph_of(old), graph_of(old)), 10).count == 0
