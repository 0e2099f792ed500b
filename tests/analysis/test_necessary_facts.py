from __future__ import annotations

from dataclasses import replace

import torch

from harmonium.analysis import necessary_facts
from harmonium.analysis.influence import Influence, Removal
from harmonium.analysis.necessary_facts import facts_of_ends, find_necessary_facts, shortlist
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.ranking import rank
from harmonium.model.gradient_graph import GradientGraph
from small import fitted, graph_of, make_graph, random_model


def couples(count: int = 30) -> Graph:
    """Marriages are known both ways, but one of them only one way; everyone has one of three jobs."""
    facts = [f"a{i} married b{i}, b{i} married a{i}" for i in range(count)]
    facts += [f"{person}{i} job {'xyz'[i % 3]}" for i in range(count) for person in "ab"]
    return graph_of(", ".join([*facts, "anna married bob, anna job x, bob job y"]), test="bob married anna")


def test_the_fact_that_an_answer_depends_on_comes_first_and_training_without_it_agrees() -> None:
    graph = couples()
    model, triple = fitted(graph, graph.train), graph.test
    necessary = find_necessary_facts(Influence(model, graph), triple)
    assert graph.names_of(necessary.facts)[0] == ("anna", "married", "bob")
    assert 1 <= len(necessary.facts) <= necessary_facts.MAX_NECESSARY_FACTS
    assert necessary.margins == sorted(necessary.margins, reverse=True)
    known = graph.known_answers(Slot.TAIL)

    def rank_of(model: GradientGraph) -> float:
        return rank(model.prepare(), triple, Slot.TAIL, known).values().item()

    without = graph.train[(graph.train.to_rows() != necessary.facts[:1].to_rows()).any(1)]
    assert (rank_of(model), necessary.ranks[0] > 1, rank_of(fitted(graph, without)) > 1) == (1, True, True)


def test_each_fact_lowers_the_margin_most_after_those_before_it() -> None:
    graph = make_graph(n_entities=15, sizes=(60, 5, 5))
    influence, triple = Influence(random_model(graph, normalise=False, harmony=False), graph), graph.test[:1]
    necessary = find_necessary_facts(influence, triple, limit=2)
    candidates = facts_of_ends(influence, triple)
    removal, removed = Removal(influence, candidates, triple), torch.zeros(len(candidates), dtype=torch.bool)
    rows = candidates.to_rows().tolist()
    for fact, rank_without, margin in zip(
        necessary.facts.to_rows().tolist(), necessary.ranks, necessary.margins, strict=True
    ):
        sets = removed | torch.eye(len(candidates), dtype=torch.bool)[~removed]
        margins, ranks = removal.margins(sets)
        chosen = rows.index(fact)
        row = int((sets[:, chosen] & ~removed[chosen]).nonzero()[0])
        assert (margins[row].item(), ranks[row].item()) == (margins.min().item(), rank_without)
        assert margin == margins.min().item()
        removed[chosen] = True
    torch.testing.assert_close(necessary.effects, influence.of_removing(candidates, triple))


def test_candidates_are_facts_of_either_end_and_the_best_aligned_of_many(graph: Graph) -> None:
    influence, triple = Influence(random_model(graph), graph), graph.train[:1]
    facts = facts_of_ends(influence, triple)
    ends = {int(triple.head), int(triple.tail)}
    expected = [row for row in graph.train.to_rows().tolist() if ends & {row[0], row[2]}]
    assert facts.to_rows().tolist() == [row for row in expected if row != triple.to_rows()[0].tolist()]
    assert len(shortlist(influence, triple, facts, 99)) == len(facts)
    few = shortlist(influence, triple, facts, 2).to_rows().tolist()
    assert len(few) == 2 and all(row in facts.to_rows().tolist() for row in few)


def test_an_answer_without_facts_has_none(graph: Graph) -> None:
    triple = Triples.from_rows([[0, 0, 1]])
    apart = graph.train[~torch.isin(torch.stack([graph.train.head, graph.train.tail]), torch.tensor([0, 1])).any(0)]
    necessary = find_necessary_facts(Influence(random_model(graph), replace(graph, train=apart)), triple)
    assert (len(necessary.facts), necessary.ranks, len(necessary.effects)) == (0, [], 0)
