from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.gradient_graph import GradientGraph
from harmonium.paper.gain import Gain
from harmonium.paper.gain import gain as gain_of
from small import PlainScorer, make_graph, make_run, random_model


def measure_gain(model: GradientGraph, graph: Graph, split: str = "valid", **options) -> Gain:
    return gain_of(make_run(graph, model), split, device="cpu", **options)


class ByDefinition(PlainScorer):
    """Every fact composed, and its H computed from the definition."""

    def __init__(self, model: GradientGraph, optimised: bool) -> None:
        self.model, self.optimised = model, optimised

    def all_scores(self, slot: Slot, queries: Triples) -> torch.Tensor:
        rows = []
        for i in range(len(queries)):
            n = self.model.n_entities
            columns = {s: torch.arange(n) if s is slot else queries[s][i].repeat(n) for s in Slot}
            composed = self.model.compose(Triples(*columns.values()))
            hidden = self.model.harmony.optimise(composed) if self.optimised else composed
            rows.append(self.model.harmony(hidden, composed))
        return torch.stack(rows)


@pytest.mark.parametrize("settings", [{}, {"rank": 2}], ids=str)
def test_gain_and_ranks_by_definition(settings: dict) -> None:
    graph = make_graph(n_entities=25, sizes=(60, 30, 10))
    model = random_model(graph, **settings)
    found = measure_gain(model, graph)
    composed = model.compose(graph.valid)
    gain = model.harmony(model.harmony.optimise(composed), composed) - model.harmony(composed, composed)
    torch.testing.assert_close(found.gain, gain.detach().repeat(2))
    assert (found.gain >= 0).all()
    for candidates, change in found.changes.items():
        protocol = EvaluateConfig(split="valid", candidates=candidates)
        for ranks, optimised in ((change.before, False), (change.after, True)):
            expected = evaluate_scorer(ByDefinition(model, optimised), graph, protocol).ranks.values()
            assert torch.equal(ranks, expected)
        assert (change.before != change.after).any()
    assert list(found.changes) == ["typed-all", "full"]
    assert not torch.equal(found.changes["full"].after, found.changes["typed-all"].after)


def test_a_reciprocal_model_gains_what_each_query_composes(graph: Graph) -> None:
    model = random_model(graph, reciprocal=True)
    head, relation, tail = (graph.valid[slot] for slot in Slot)
    inverse = model.relations(relation + graph.n_relations)
    reversed_facts = model.composition.compose(model.entities(tail), inverse, model.entities(head))
    composed = torch.cat([reversed_facts, model.compose(graph.valid)])
    gain = model.harmony.fold()(composed) - model.harmony(composed, composed)
    torch.testing.assert_close(measure_gain(model, graph).gain, gain.detach())


def test_a_run_is_summarised() -> None:
    graph = make_graph(sizes=(40, 30, 10))
    run = make_run(graph, random_model(graph))
    found = gain_of(run, ties="pessimistic", device="cpu")
    printed = found.to_json()
    part, change = printed["candidates"]["full"], found.changes["full"]
    assert printed["protocol"]["ties"] == "pessimistic"
    assert printed["queries"] == 60
    assert part["mrr_after"] == pytest.approx((1 / change.after).mean().item())
    assert part["mrr_before"] == pytest.approx((1 / change.before).mean().item())
    assert part["unchanged"] == pytest.approx((change.after == change.before).double().mean().item())
    assert part["spearman"]["rank"] == change.correlations(found.gain)["rank"]._asdict()
    assert printed["gain"]["5%"] < printed["gain"]["50%"] < printed["gain"]["95%"]
    assert found.protocol == EvaluateConfig(split="valid", ties="pessimistic")


def test_no_gain_without_optimisation(graph: Graph) -> None:
    infinite, plain = random_model(graph, faithfulness=math.inf), random_model(graph, harmony=False)
    empty = replace(graph, valid=graph.valid[:0])
    for model, on, message in (
        (infinite, graph, "at lambda = infinity a token is its composed vector: no gain"),
        (plain, graph, "plain hole has no harmony"),
        (random_model(graph), empty, "the valid split of 'random' has no triples"),
    ):
        with pytest.raises(HarmoniumError, match=message):
            measure_gain(model, on)
