from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.analysis.gain import Gain, RankChange, measure_gain
from harmonium.analysis.statistics import spearman
from harmonium.config import Config, EvaluateConfig, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate
from harmonium.graph import Graph, Slot, Triples
from harmonium.model import GradientGraph
from harmonium.run import Run
from harmonium.training import History
from small import make_graph


def random_model(graph: Graph, **settings) -> GradientGraph:
    config = ModelConfig("hole", 6, **settings)
    model = harmonium.build_model(config, graph.n_entities, graph.n_relations, seed=1).double()
    if config.harmony:
        with torch.no_grad():
            model.harmony.free.add_(torch.randn(model.harmony.free.shape, generator=torch.Generator().manual_seed(0)))
    return model


class ByDefinition:
    """Ranks by H(x, x), every triplet composed and H computed from its definition."""

    def __init__(self, model: GradientGraph, optimised: bool) -> None:
        self.model, self.optimised = model, optimised

    def score_slot(self, slot: Slot, queries: Triples) -> torch.Tensor:
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
            expected = evaluate(ByDefinition(model, optimised), graph, protocol).ranks.values()
            assert torch.equal(ranks, expected)
        assert (change.before != change.after).any()
    assert list(found.changes) == ["typed-all", "full"]
    assert not torch.equal(found.changes["full"].after, found.changes["typed-all"].after)


def test_a_reciprocal_model_gains_what_each_question_composes() -> None:
    graph = make_graph()
    model = random_model(graph, reciprocal=True)
    head, relation, tail = (graph.valid[slot] for slot in Slot)
    turned = model.composition.compose(
        model.entities(tail), model.relations(relation + graph.n_relations), model.entities(head)
    )
    composed = torch.cat([turned, model.compose(graph.valid)])
    gain = model.harmony.fold()(composed) - model.harmony(composed, composed)
    torch.testing.assert_close(measure_gain(model, graph).gain, gain.detach())


def test_correlations_by_hand() -> None:
    gain = torch.tensor([1.0, 2, 3, 4, 5])
    change = RankChange(before=torch.tensor([4.0, 2, 9, 5, 2]), after=torch.tensor([8.0, 2, 3, 2, 1]))
    assert change.raw.tolist() == [4, 0, -6, -3, -1]
    assert change.reciprocal.tolist() == pytest.approx([-1 / 8, 0, 2 / 9, 3 / 10, 1 / 2])
    found = change.correlations(gain)
    assert found["rank"] == spearman(gain, change.raw)
    assert found["rank"].rho == pytest.approx(-0.6)
    assert found["reciprocal_rank"].rho == pytest.approx(1)
    assert found["reciprocal_rank_changed"] == spearman(gain[[0, 2, 3, 4]], change.reciprocal[[0, 2, 3, 4]])
    assert found["reciprocal_rank_changed"].n == 4


def test_a_limit_takes_a_seeded_sample_of_triples() -> None:
    graph = make_graph(sizes=(40, 30, 10))
    model = random_model(graph)
    whole, some = measure_gain(model, graph), measure_gain(model, graph, limit=20)
    assert len(some.gain) == 20
    assert set(some.gain.tolist()) <= set(whole.gain.tolist())
    assert torch.equal(some.gain, measure_gain(model, graph, limit=20).gain)
    assert not torch.equal(some.gain, measure_gain(model, graph, limit=20, seed=1).gain)
    assert len(measure_gain(model, graph, "test", limit=20).gain) == 20


def test_the_command_tells_and_draws(tmp_path: Path) -> None:
    graph = make_graph(sizes=(40, 30, 10))
    run = Run(Config(), graph, random_model(graph), History(), {})
    found = harmonium.gain(run, ties="pessimistic", device="cpu", plot=tmp_path / "gain.png")
    assert (tmp_path / "gain.png").read_bytes().startswith(b"\x89PNG")
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


def test_the_figure_draws_one_panel_for_each_kind_of_candidates(tmp_path: Path) -> None:
    from harmonium.figures import gain_figure

    ranks = RankChange(torch.arange(1.0, 9.0), torch.arange(1.0, 9.0))
    found = Gain("small", EvaluateConfig(), torch.arange(8.0), {"full": ranks, "typed-all": ranks})
    drawn = gain_figure(found, tmp_path / "gain.svg").read_text(encoding="utf-8")
    assert "<!-- full candidates -->" in drawn
    assert "<!-- typed-all candidates -->" in drawn
    assert "<!-- all queries (8) -->" in drawn
    assert "<!-- those whose rank changed (0) -->" in drawn


def test_no_gain_without_optimisation() -> None:
    graph = make_graph()
    with pytest.raises(HarmoniumError, match="at lambda = infinity a token is its composed vector: no gain"):
        measure_gain(random_model(graph, faithfulness=math.inf), graph)
    with pytest.raises(HarmoniumError, match="plain hole has no harmony"):
        measure_gain(random_model(graph, harmony=False), graph)
    with pytest.raises(HarmoniumError, match="the valid split of 'random' has no triples"):
        measure_gain(random_model(graph), replace(graph, valid=graph.valid[:0]))
