"""Two graphs in one numbering: facts are matched by name, whatever their ids."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.joint_facts import JointFacts, split_names, with_splits_of
from harmonium.data.joint_names import JointNames
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from small import graph_of, make_graph

facts_of_splits = st.dictionaries(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from("rst"), st.sampled_from("abcdef")),
    st.sets(st.sampled_from(SPLITS), min_size=1),
    min_size=1,
)
Facts = dict[tuple[str, str, str], set[str]]


def build(facts: Facts, reverse: bool = False) -> Graph:
    """A graph whose names are numbered in order or in reverse."""
    texts = {
        split: ", ".join(" ".join(fact) for fact, splits in sorted(facts.items(), reverse=reverse) if split in splits)
        for split in SPLITS
    }
    return graph_of(**texts)


@given(facts_of_splits, facts_of_splits)
def test_every_fact_is_found_in_the_splits_that_have_it(first: Facts, second: Facts) -> None:
    facts = JointFacts.of(build(first), build(second, reverse=True))
    rows = facts.joint.rows(facts.triples)
    names = [(row["head"], row["relation"], row["tail"]) for row in rows]
    assert sorted(names) == sorted({*first, *second})
    for side, given_facts in enumerate((first, second)):
        for name, mask in zip(names, facts.splits[side].tolist(), strict=True):
            assert split_names(mask) == "+".join(split for split in SPLITS if split in given_facts.get(name, ()))
    for split in ("valid", "test"):
        expected = {name for name in first if all(split in f.get(name, ()) for f in (first, second))}
        expected -= {name for f in (first, second) for name in f if "train" in f[name]}
        assert {names[p] for p in facts.held_out_in_both(split).nonzero()[:, 0].tolist()} == expected


@given(facts_of_splits, facts_of_splits)
def test_facts_come_back_from_joint_ids_where_a_graph_has_their_names(first: Facts, second: Facts) -> None:
    graphs = build(first), build(second, reverse=True)
    facts = JointFacts.of(*graphs)
    for side, graph in enumerate(graphs):
        own, known = facts.joint.from_joint(side, facts.triples)
        rows = [row for row, kept in zip(facts.joint.rows(facts.triples), known.tolist(), strict=True) if kept]
        assert [", ".join(names) for names in graph.names_of(own)] == [row["text"] for row in rows]
        assert set(graph.names_of(graph.facts())) <= set(graph.names_of(own))


def test_weights_that_changed() -> None:
    graph = graph_of("a r b, b r c, c r a")
    weighted = replace(graph, train=replace(graph.train, weight=torch.tensor([1.0, 0.3, 1.0]).double()))
    facts = JointFacts.of(graph, weighted)
    assert facts.reweighted.tolist() == [False, True, False]
    assert not JointFacts.of(weighted, weighted).reweighted.any()


def test_names_without_a_common_identifier_are_matched_by_label() -> None:
    first = Vocabulary(["Q1", "Q2"], ["Paris", "Rome"])
    second = Vocabulary(["Rome", "Oslo"])
    joint = JointNames.of(first, second)
    assert joint.by_label and joint.joint_of_second.tolist() == [1, 2]
    assert not JointNames.of(first, Vocabulary(["Q2", "Rome"])).by_label
    same_labels = Vocabulary(["Q1", "Q2"], ["Paris", "Paris"])
    assert not JointNames.of(same_labels, Vocabulary(["Paris"])).by_label


def test_an_older_graph_takes_over_the_splits_of_the_newer_one() -> None:
    newer = make_graph(20, 3, (60, 20, 20))
    everything = newer.facts()
    older = replace(newer, train=everything[10:], valid=everything[:0], test=everything[:0])
    split = with_splits_of(older, newer)
    for name in ("valid", "test"):
        assert set(split.names_of(split.splits[name])) == set(newer.names_of(newer.splits[name]))
    assert set(split.names_of(split.train)) == set(newer.names_of(newer.train[10:]))
    gone = replace(newer, valid=newer.valid[:0], test=Triples.cat([newer.test, newer.valid]))
    assert len(with_splits_of(older, gone).test) == 40
