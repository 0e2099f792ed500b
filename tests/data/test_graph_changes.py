from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.data.graph_changes import GraphChange, GraphSizes, change_graph, restore_graph, to_tensors
from harmonium.data.spellings import unite_spellings
from harmonium.data.triples import Slot, Triples
from small import graph_of, make_graph

Fact = tuple[str, str, str]


def facts_of(*facts: Fact) -> Graph:
    return graph_of(", ".join(" ".join(fact) for fact in facts))


def names(graph: Graph, triples: Triples) -> set[Fact]:
    return set(graph.names_of(triples))


def undo(change: GraphChange) -> Graph:
    return restore_graph(change.graph, GraphSizes.of(change.before), to_tensors(change))


def contents(graph: Graph) -> bytes:
    return b"".join(bytes(part) for part in graph_file.parts(graph))


def random_change(graph: Graph, rng: random.Random, number: int) -> tuple[Graph | None, Graph | None]:
    """Facts to add, some with new names, and facts to remove, some of which the graph does not have."""
    people, kinds = list(graph.entities.ids), list(graph.relations.ids)
    pool = [*people, f"new{number}"]
    added = {
        (rng.choice(pool), rng.choice([*kinds, f"kind{number}"]), rng.choice(pool)) for _ in range(rng.randint(1, 6))
    }
    known = list(names(graph, graph.facts()))
    removed = set(rng.sample(known, min(len(known), rng.randint(0, 3))))
    removed |= {(rng.choice(people), rng.choice(kinds), rng.choice(people)) for _ in range(rng.randint(0, 3))}
    added, removed = added - removed, removed - added
    return (facts_of(*sorted(added)) if added else None), (facts_of(*sorted(removed)) if removed else None)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weighted", [False, True])
def test_ten_random_changes_are_those_of_sets_and_can_be_undone(seed: int, weighted: bool) -> None:
    rng, graph = random.Random(seed), make_graph(seed=seed)
    if weighted:
        graph = replace(graph, train=replace(graph.train, weight=torch.rand(len(graph.train)).double()))
    history: list[tuple[Graph, GraphChange]] = []
    true = {split: names(graph, facts) for split, facts in graph.splits.items()}
    false: set[Fact] = set()
    for number in range(10):
        add, remove = random_change(graph, rng, number)
        if add is None and remove is None:
            continue
        change = change_graph(graph, add, remove)
        history.append((graph, change))
        removed = names(remove, remove.train) if remove else set()
        known = set.union(*true.values())
        added = (names(add, add.train) if add else set()) - known
        true = {split: facts - removed | (added if split == "train" else set()) for split, facts in true.items()}
        false = (false | removed) - added
        graph = change.graph
        assert {split: names(graph, facts) for split, facts in graph.splits.items()} == true
        assert sum(map(len, graph.splits.values())) == sum(map(len, true.values()))  # no fact twice
        assert names(graph, graph.rejected) == false and len(graph.rejected) == len(false)
        assert names(graph, change.added) == added
        assert list(graph.entities.ids)[: change.before.n_entities] == list(change.before.entities.ids)
    for before, change in reversed(history):
        restored = undo(change)
        assert contents(restored) == contents(before)


def test_a_false_fact_that_is_added_is_true_and_says_so() -> None:
    graph = graph_of("a likes b, b likes c")
    rejected = change_graph(graph, None, facts_of(("a", "likes", "c"))).graph
    assert names(rejected, rejected.rejected) == {("a", "likes", "c")}
    again = change_graph(rejected, None, facts_of(("a", "likes", "c")))
    assert len(again.graph.rejected) == 1 and "recorded as false already" in again.notes[0]
    added = change_graph(rejected, facts_of(("a", "likes", "c"), ("a", "likes", "b")), None)
    assert len(added.graph.rejected) == 0 and names(added.graph, added.accepted) == {("a", "likes", "c")}
    assert added.notes == (
        "1 facts were known already",
        "1 added facts were recorded as false before; now they are not",
    )


def test_false_facts_are_kept_in_a_graph_file_and_when_names_are_united(tmp_path: Path) -> None:
    graph = graph_of("ann likes ben, ben likes eve, Ben likes ann, ann likes Ben, ben likes ann")
    graph = change_graph(graph, None, facts_of(("Ben", "likes", "eve"), ("ann", "likes", "ann"))).graph
    path = tmp_path / "a.graph"
    path.write_bytes(contents(graph))
    loaded = graph_file.load(path)
    assert names(loaded, loaded.rejected) == {("Ben", "likes", "eve"), ("ann", "likes", "ann")}
    assert loaded.rejected_answers(Slot.TAIL).contain(loaded.rejected).all()
    united = unite_spellings(graph)
    assert names(united, united.rejected) == {("ben", "likes", "eve"), ("ann", "likes", "ann")}
