from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harmonium.answers import probability
from harmonium.answers.probability import (
    Calibration,
    are_known,
    calibration_for,
    distinct_queries,
    features,
    fit_calibration,
    fit_logistic,
)
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.model.scoring import Scorer
from harmonium.run.run import Run
from small import make_graph, make_run, random_model

COUNT = 60  # entities of the world below


class Odds(Scorer):
    """A scorer that is right about a world: its scores are the log-odds with which facts were drawn."""

    def __init__(self) -> None:
        self.scores = 2 * torch.randn(COUNT, 4, COUNT, generator=torch.Generator().manual_seed(1)) - 4

    def score_slot(self, slot: Slot, queries: Triples) -> torch.Tensor:
        head, relation, tail = queries.head, queries.relation, queries.tail
        if slot is Slot.HEAD:
            return self.scores[:, relation, tail].T.clone()
        return self.scores[head, relation].clone() if slot is Slot.TAIL else self.scores[head, :, tail].clone()


def world() -> tuple[Odds, Graph]:
    """Facts drawn by their odds, in random splits."""
    scorer, generator = Odds(), torch.Generator().manual_seed(2)
    facts = (torch.rand(scorer.scores.shape, generator=generator) < scorer.scores.sigmoid()).nonzero()
    parts = facts[torch.randperm(len(facts), generator=generator)].tensor_split([len(facts) // 2, 3 * len(facts) // 4])
    entities, relations = ([f"{kind}{i}" for i in range(n)] for kind, n in (("e", COUNT), ("r", 4)))
    return scorer, Graph(Vocabulary(entities), Vocabulary(relations, kind="relation"), *map(Triples.from_rows, parts))


def test_the_margin_is_the_log_odds_of_the_softmax() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0, -1.0]], dtype=torch.float64)
    found = features(scores, scores.logsumexp(1, keepdim=True), torch.tensor([[3]]))
    p = scores.softmax(1)
    assert torch.allclose(found[..., 0], torch.log(p / (1 - p)))
    assert torch.allclose(found[..., 1], torch.log(torch.tensor(4.0, dtype=torch.float64)).expand(1, 4))
    alone = torch.tensor([[5.0]])
    assert features(alone, alone, torch.zeros(1, 1)).isfinite().all()


def test_logistic_regression_recovers_what_made_the_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(100_000, 2, dtype=torch.float64, generator=generator) * torch.tensor([1.0, 4.0]) + 50
    logits = 2 * (inputs[:, 0] - 50) - 0.7 * (inputs[:, 1] - 51)
    labels = torch.rand(100_000, dtype=torch.float64, generator=generator) < logits.sigmoid()
    slopes, intercept = fit_logistic(inputs, labels)
    assert slopes.tolist() == pytest.approx([2, -0.7], rel=0.03)
    n_true, n_false = labels.sum(), (~labels).sum()
    target = torch.where(labels, (n_true + 1) / (n_true + 2), 1 / (n_false + 2)).double()
    error = (inputs @ slopes + intercept).sigmoid() - target  # the gradient is zero
    assert error.mean().item() == pytest.approx(0, abs=1e-9)
    assert (error[:, None] * (inputs - 50)).mean(0).tolist() == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.parametrize("gap", [1e-6, 1.0, 1e6])
def test_logistic_regression_stays_finite_when_an_input_separates_or_is_constant(gap: float) -> None:
    labels = torch.tensor([False] * 5 + [True] * 20)
    slopes, intercept = fit_logistic(labels[:, None].double() * gap, labels)
    fitted = (slopes.item() * torch.tensor([0.0, gap], dtype=torch.float64) + intercept).sigmoid()
    assert fitted.tolist() == pytest.approx([1 / 7, 21 / 22], abs=1e-6)  # Platt's targets themselves
    slopes, intercept = fit_logistic(torch.full((25, 1), 3.0, dtype=torch.float64), labels)
    fitted = torch.tensor(3 * slopes.item() + intercept).sigmoid()
    assert fitted.item() == pytest.approx((5 / 7 + 20 * 21 / 22) / 25, abs=1e-4)


@pytest.mark.parametrize("slot", list(Slot))
def test_queries_are_those_that_facts_answer(graph: Graph, slot: Slot) -> None:
    found = distinct_queries(graph, slot, ("train", "valid"))
    columns = [s for s in Slot if s is not slot]
    expected = {tuple(int(graph.facts(("train", "valid"))[c][i]) for c in columns) for i in range(48)}
    assert len(found) == len(expected)
    assert {tuple(row) for row in torch.stack([found[c] for c in columns], 1).tolist()} == expected


def test_known_candidates_are_known_facts(graph: Graph) -> None:
    candidates, queries = torch.arange(12).expand(3, 12), graph.train[:3]
    facts = {tuple(row) for row in graph.facts().to_rows().tolist()}
    expected = [[(int(q.head), int(q.relation), t) in facts for t in range(12)] for q in queries.chunks(1)]
    assert are_known(graph.known_answers(Slot.TAIL), Slot.TAIL, queries, candidates).tolist() == expected


def test_answers_are_true_as_often_as_said() -> None:
    """Judged on facts that were not used, in every bin with enough answers; and better than one number for all."""
    found = fit_calibration(*world())
    assert set(found.fits) == set(Slot)
    for fit in found.fits.values():
        assert fit.split == "test"
        assert fit.log_loss < 0.95 * fit.base_log_loss
        for part in fit.reliability:
            if part["facts"] >= 50:
                error = (part["probability"] * (1 - part["probability"]) / part["facts"]) ** 0.5
                assert abs(part["probability"] - part["true"]) < 5 * error + 0.03


def test_test_facts_are_not_used_to_fit() -> None:
    """Neither as true nor as false: the fit is the same when test facts become other facts."""
    scorer, graph = world()
    fits = [fit_calibration(scorer, g).fits[Slot.TAIL] for g in (graph, replace(graph, test=graph.test[:200]))]
    gone = replace(graph, test=graph.test[:0])
    assert fit_calibration(scorer, gone).fits[Slot.TAIL].split == "valid"
    inputs = [probability._examples(scorer, g, Slot.TAIL, "valid", 600, None) for g in (graph, gone)]
    assert inputs[0][1].sum() == inputs[1][1].sum()
    assert len(inputs[0][1]) < len(inputs[1][1])
    assert fits[0].margin == pytest.approx(fits[1].margin, rel=0.2)


def test_too_few_facts_or_a_model_that_knows_nothing_give_no_probability() -> None:
    scorer, graph = world()
    few = replace(graph, valid=graph.valid[:5])
    calibration = fit_calibration(scorer, few)
    assert calibration.fits == {}
    assert calibration.of_facts(scorer, few, graph.test) is None
    scorer.scores = -scorer.scores
    assert Slot.TAIL not in fit_calibration(scorer, graph).fits


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_probability_of_a_fact_by_the_formula(slot: Slot) -> None:
    """It does not depend on whether the fact is itself known."""
    scorer, graph = world()
    calibration, triples = fit_calibration(scorer, graph), Triples.cat([graph.train[:3], graph.test[:3]])
    fit, known = calibration.fits[slot], graph.known_answers(slot)
    probabilities = calibration.of_facts(scorer, graph, triples, slot)
    for i, fact in enumerate(triples.chunks(1)):
        p = scorer.score_slot(slot, fact)[0].double().softmax(0)[fact[slot]]
        others = len(known.of(fact)[1]) - 1
        odds = fit.margin * torch.log(p / (1 - p)) + fit.known * math.log(1 + others) + fit.intercept
        assert probabilities[i].item() == pytest.approx(odds.sigmoid().item(), rel=1e-4)
    without = replace(graph, train=graph.train[1:])
    unknown = calibration.of_facts(scorer, without, triples[:1], slot)
    assert unknown.item() == pytest.approx(probabilities[0].item())


@pytest.fixture
def run() -> Run:
    graph = make_graph(20, 3, (200, 60, 60))
    return make_run(graph, random_model(graph, "distmult", 6).float())


def test_a_run_is_calibrated_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probability, "_fitted", {})
    run = replace(run, path=tmp_path)
    first = calibration_for(run)
    assert Calibration.from_json(json.loads((tmp_path / "calibration.json").read_text())) == first
    monkeypatch.setattr(probability, "fit_calibration", lambda *_, **__: pytest.fail("fitted again"))
    assert calibration_for(replace(run, path=None)) == first
    monkeypatch.setattr(probability, "_fitted", {})
    assert calibration_for(replace(run)) == first


@pytest.mark.parametrize("damage", ["", "[]", '{"of": "another"}', "\ufffd"])
def test_a_calibration_of_something_else_is_fitted_again(run: Run, tmp_path: Path, monkeypatch, damage: str) -> None:
    run = replace(run, path=tmp_path)
    monkeypatch.setattr(probability, "_fitted", {})
    first = calibration_for(run)
    (tmp_path / "calibration.json").write_text(damage, encoding="utf-8")
    monkeypatch.setattr(probability, "_fitted", {})
    assert calibration_for(run) == first
    with torch.no_grad():
        run.model.entity.mul_(-1).add_(0.3)
    other = Calibration("other", {})
    monkeypatch.setattr(probability, "fit_calibration", lambda *_, **__: other)
    assert calibration_for(replace(run)) is other
