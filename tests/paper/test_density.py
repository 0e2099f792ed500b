from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harmonium.analysis.neighbours import nearest_triples
from harmonium.analysis.statistics import bootstrap, t_test
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.paper.density import density as density_of
from harmonium.paper.density import measure_density, true_neighbours
from small import make_graph, make_run, random_model


def random_triples(graph: Graph, n: int = 20) -> Triples:
    """Facts and others, some with entities that their slot never has."""
    generator = torch.Generator().manual_seed(3)
    sizes = (graph.n_entities, graph.n_relations, graph.n_entities)
    return Triples.cat([graph.test, Triples(*(torch.randint(size, (n,), generator=generator) for size in sizes))])


def by_neighbours(model: GradientGraph, graph: Graph, triples: Triples, slot: Slot, count: int, typed: bool) -> list:
    """One triple at a time, from its neighbourhood."""
    found = (nearest_triples(model, graph, triples[i : i + 1], slot, count, typed) for i in range(len(triples)))
    return [[sum(n.true for n in f.composed), sum(n.true for n in f.token), len(f.token)] for f in found]


@pytest.mark.parametrize("settings", [{}, {"reciprocal": True, "composition": "distmult"}, {"rank": 2}], ids=str)
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_counts_are_those_of_each_neighbourhood(slot: Slot, typed: bool, settings: dict) -> None:
    graph = make_graph(n_entities=15, sizes=(70, 10, 10))
    model, triples = random_model(graph, **settings), random_triples(graph)
    expected = by_neighbours(model, graph, triples, slot, 4, typed)
    found = true_neighbours(model, graph, triples, slot, 4, typed).tolist()
    assert found == expected
    assert any(composed != token for composed, token, _ in found)


def test_the_change_is_token_minus_composed_for_each_label() -> None:
    graph = make_graph(n_entities=20, sizes=(150, 10, 10))
    model, triples = random_model(graph), random_triples(graph)
    labels = graph.known_answers(Slot.TAIL).contain(triples)
    found = measure_density(model, graph, triples, labels, count=3)
    counts = torch.stack([true_neighbours(model, graph, triples, slot, 3) for slot in (Slot.HEAD, Slot.TAIL)]).double()
    for part, mask in ((found.positives, labels), (found.negatives, ~labels)):
        composed, token, there = counts[:, mask].unbind(-1)
        change = (token - composed).flatten()
        assert part.queries == 2 * mask.sum()
        assert (part.composed, part.token) == (composed.mean().item(), token.mean().item())
        assert part.change == t_test(change)
        assert part.share == pytest.approx(((token - composed) / there).mean().item())
        assert part.by_side["tail"] == pytest.approx((token[1] - composed[1]).mean().item())
        fact = torch.arange(int(mask.sum())).repeat(2)
        assert part.by_fact == bootstrap(change, fact)
        assert part.by_relation == bootstrap(change, triples.relation[mask].repeat(2))
        assert part.by_fact[0] <= part.change.mean <= part.by_fact[1]
    assert found.to_json()["positives"]["change"]["t"] == found.positives.change.t
    assert found.to_json()["candidates"] == "typed-all"


def test_the_command_reads_labels_or_makes_them(graph: Graph, tmp_path: Path) -> None:
    run = make_run(graph, random_model(graph).float())
    file = tmp_path / "labelled.txt"
    file.write_text("e0\tr0\te1\t1\ne0\tr1\te2\t-1\ne3\tr1\te2\t-1\n", encoding="utf-8")
    found = density_of(run, file, top=2, typed=False, device="cpu")
    triples = Triples.from_rows([[0, 0, 1], [0, 1, 2], [3, 1, 2]])
    assert found == measure_density(run.model, graph, triples, torch.tensor([True, False, False]), 2, typed=False)
    assert (found.positives.queries, found.negatives.queries) == (2, 4)
    made = density_of(run, device="cpu")
    assert made.positives.queries == made.negatives.queries == 2 * len(graph.test)
    assert made == density_of(run, device="cpu", seed=0)


def test_what_cannot_be_compared_is_an_error(graph: Graph) -> None:
    with pytest.raises(HarmoniumError, match="plain hole has no harmony, so no tokens"):
        measure_density(random_model(graph, harmony=False), graph, graph.test, torch.arange(10) < 5)
    with pytest.raises(HarmoniumError, match="all 10 labelled triples are true; density compares both kinds"):
        measure_density(random_model(graph), graph, graph.test, torch.ones(10, dtype=torch.bool))
