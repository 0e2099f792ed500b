"""What the facts of a relation say about further ones."""

from __future__ import annotations

import pytest

from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from small import graph_of, ladder


def traits(graph: Graph, trait: str) -> set[str]:
    inferred = getattr(RelationTraits.infer(graph), trait)
    return {name for name, has in zip(graph.relations.ids, inferred.tolist(), strict=True) if has}


def test_a_functional_relation_has_one_tail_for_nearly_every_head() -> None:
    facts = ladder("{i} continent Europe, {i} capital {j}, {i} member {j}, {i} member EU", 40)
    graph = graph_of(facts)
    assert traits(graph, "functional") == {"continent", "capital"}
    assert traits(graph, "inverse_functional") == {"capital"}  # the EU has many members
    assert traits(graph_of(facts + ", x0 capital y1, x1 capital y2"), "functional") == {"continent", "capital"}
    exceptions = ", ".join(f"x{i} capital z{i}" for i in range(3))  # above one in twenty
    assert traits(graph_of(f"{facts}, {exceptions}"), "functional") == {"continent"}


def test_a_few_heads_make_no_functional_relation() -> None:
    assert traits(graph_of(ladder("{i} capital {j}", 19)), "functional") == set()
    assert traits(graph_of(ladder("{i} capital {j}", 20)), "functional") == {"capital"}


def test_symmetric_relations() -> None:
    graph = graph_of(ladder("{i} borders {j}, {j} borders {i}, {i} part {j}, {i} like {j}") + ", x1 like x1")
    assert traits(graph, "symmetric") == {"borders"}


def test_traits_are_those_of_the_given_splits() -> None:
    both = ladder("{i} borders {j}, {j} borders {i}")
    graph = graph_of(ladder("{i} borders {j}"), valid=ladder("{j} borders {i}"))
    assert traits(graph_of(both), "symmetric") == {"borders"}
    assert not RelationTraits.infer(graph, ("train",)).symmetric.any()


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_a_symmetric_relation_that_is_functional_has_one_answer_both_ways(slot: Slot) -> None:
    graph = graph_of(ladder("{i} spouse {j}, {j} spouse {i}, {i} mother {j}", 20))
    one_answer = RelationTraits.infer(graph).has_one_answer(slot)
    assert one_answer.tolist() == [True, True]
    graph = graph_of(ladder("{i} country X", 20))
    assert RelationTraits.infer(graph).has_one_answer(slot).tolist() == [slot is Slot.TAIL]
