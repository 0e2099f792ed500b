from __future__ import annotations

import torch

from harmonium.analysis.influence import Influence
from harmonium.analysis.sufficient_facts import draw_others, find_sufficient_facts, with_entity
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.ranking import rank
from small import fitted, graph_of


def test_facts_that_convert_others_and_training_with_them_agrees() -> None:
    """Who speaks a language lives where it is spoken; the heads' other facts say nothing."""
    facts = [f"p{i} speaks {'klm'[i % 3]}, p{i} lives {'xyz'[i % 3]}, p{i} likes q{i % 5}" for i in range(45)]
    graph = graph_of(", ".join([*facts, "anna speaks k, anna likes q1"]), test="anna lives x")
    model, triple = fitted(graph, graph.train), graph.test
    influence = Influence(model, graph)
    others = draw_others(influence, triple, 5)
    assert len(others) == 5 and int(triple.head) not in others
    sufficient = find_sufficient_facts(influence, triple, others, limit=1)
    assert graph.names_of(sufficient.facts) == [("anna", "speaks", "k")]
    added = [with_entity(sufficient.facts, int(triple.head), int(c)) for c in others]
    retrained, known = fitted(graph, Triples.cat([graph.train, *added])), graph.known_answers(Slot.TAIL)
    asked = Triples.cat([with_entity(triple, int(triple.head), int(c)) for c in others])
    before, after = (rank(m.prepare(), asked, Slot.TAIL, known).values() for m in (model, retrained))
    assert (1 / after).mean() > (1 / before).mean() + 0.1


def test_a_relation_that_nobody_else_has_has_no_sufficient_facts() -> None:
    graph = graph_of("a r b, a s c, d s c", test="a r d")
    influence = Influence(fitted(graph, graph.train), graph)
    sufficient = find_sufficient_facts(influence, graph.test)
    assert (len(sufficient.facts), len(sufficient.others), sufficient.converted) == (0, 0, [])


def test_one_entity_takes_the_place_of_another() -> None:
    facts = Triples.from_rows([[1, 0, 2], [2, 1, 1], [3, 0, 4]])
    assert with_entity(facts, 1, 9).to_rows().tolist() == [[9, 0, 2], [2, 1, 9], [3, 0, 4]]
    assert torch.equal(facts.head, torch.tensor([1, 2, 3]))
