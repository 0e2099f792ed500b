from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium import calibration
from harmonium.calibration import Calibration, calibrate, calibration_of, features, holds, probabilities, questions
from harmonium.classification import logistic, platt
from harmonium.config import Config, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.figures import calibration_figure
from harmonium.graph import Graph, Groups, Slot, Triples, Vocabulary
from harmonium.run import Run
from harmonium.training import History
from small import make_graph

COUNT = 60  # entities of the world below


class Odds:
    """A scorer that is right about a world: its scores are the log-odds with which facts were drawn."""

    def __init__(self) -> None:
        self.scores = 2 * torch.randn(COUNT, 4, COUNT, generator=torch.Generator().manual_seed(1)) - 4

    def score_slot(self, slot: Slot, queries: Triples) -> torch.Tensor:
        head, relation, tail = queries.head, queries.relation, queries.tail
        if slot is Slot.HEAD:
            return self.scores[:, relation, tail].T.clone()
        return self.scores[head, relation].clone() if slot is Slot.TAIL else self.scores[head, :, tail].clone()


def world() -> tuple[Odds, Graph]:
    """Facts drawn by their odds, and dealt to the splits by chance."""
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


def test_several_slopes_are_found_as_one_is() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40_000, 2, dtype=torch.float64, generator=generator)
    labels = torch.rand(40_000, generator=generator) < (inputs @ torch.tensor([2.0, -1.0]).double() - 0.5).sigmoid()
    slopes, intercept = logistic(inputs, labels)
    assert slopes.tolist() == pytest.approx([2, -1], abs=0.1)
    assert intercept == pytest.approx(-0.5, abs=0.1)
    slope, one = logistic(inputs[:, :1], labels)
    assert (slope.item(), one) == platt(inputs[:, 0], labels)


@pytest.mark.parametrize("slot", list(Slot))
def test_questions_are_those_that_facts_answer(slot: Slot) -> None:
    graph = make_graph()
    found = questions(graph, slot, ("train", "valid"))
    columns = [place for place in Slot if place is not slot]
    expected = {tuple(int(graph.facts(("train", "valid"))[c][i]) for c in columns) for i in range(48)}
    assert len(found) == len(expected)
    assert {tuple(row) for row in torch.stack([found[c] for c in columns], 1).tolist()} == expected


def test_whether_fillers_hold() -> None:
    graph = make_graph()
    fillers = torch.arange(12).expand(3, 12)
    queries, known = graph.train[:3], graph.answers(Slot.TAIL)
    facts = {tuple(row) for row in graph.facts().rows().tolist()}
    expected = [[(int(q.head), int(q.relation), t) in facts for t in range(12)] for q in queries.chunks(1)]
    assert holds(known, Slot.TAIL, queries, fillers).tolist() == expected


def test_answers_are_true_as_often_as_said() -> None:
    """Judged on facts that were not used, in every bin with enough answers; and better than one number for all."""
    found = calibrate(*world())
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
    fits = [calibrate(scorer, g).fits[Slot.TAIL] for g in (graph, replace(graph, test=graph.test[:200]))]
    gone = replace(graph, test=graph.test[:0])
    assert calibrate(scorer, gone).fits[Slot.TAIL].split == "valid"
    inputs = [calibration._examples(scorer, g, Slot.TAIL, "valid", 600, None) for g in (graph, gone)]
    assert inputs[0][1].sum() == inputs[1][1].sum()
    assert len(inputs[0][1]) < len(inputs[1][1])
    assert fits[0].margin == pytest.approx(fits[1].margin, rel=0.2)


def test_too_few_facts_or_a_model_that_knows_nothing_give_no_probability() -> None:
    scorer, graph = world()
    few = replace(graph, valid=graph.valid[:5])
    assert calibrate(scorer, few).fits == {}
    with pytest.raises(HarmoniumError, match="too few validation facts to give tail answers a probability"):
        probabilities(scorer, few, calibrate(scorer, few), Slot.TAIL, graph.test)
    assert Calibration("g", {}).probabilities(Slot.TAIL, torch.ones(1), torch.ones(1), torch.ones(1)) is None
    scorer.scores = -scorer.scores
    assert Slot.TAIL not in calibrate(scorer, graph).fits


def test_the_probability_of_a_triple_is_that_of_its_answer() -> None:
    """And does not depend on whether that triple is itself known."""
    scorer, graph = world()
    found, triples = calibrate(scorer, graph), Triples.cat([graph.train[:3], graph.test[:3]])
    for slot in (Slot.HEAD, Slot.TAIL):
        chance = probabilities(scorer, graph, found, slot, triples)
        known: Groups = graph.answers(slot)
        for i, own in enumerate(triples.chunks(1)):
            scores, fit = scorer.score_slot(slot, own)[0].double(), found.fits[slot]
            p = scores.softmax(0)[own[slot]]
            others = len(known.of(own)[1]) - 1
            odds = (
                fit.margin * torch.log(p / (1 - p)) + fit.known * torch.log(torch.tensor(1.0 + others)) + fit.intercept
            )
            assert chance[i].item() == pytest.approx(odds.sigmoid().item(), rel=1e-4)
        bare = replace(graph, train=graph.train[1:])
        assert probabilities(scorer, bare, found, slot, triples[:1]).item() == pytest.approx(chance[0].item())


def make_run(path: Path | None = None) -> Run:
    graph = make_graph(20, 3, (200, 60, 60))
    model = harmonium.build_model(ModelConfig("distmult", 6), graph.n_entities, graph.n_relations, seed=3)
    return Run(
        Config.read(None, ["model.composition=distmult", "model.entity_dim=6"]), graph, model, History(), {}, path
    )


def test_a_run_is_calibrated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.load(make_run().save(tmp_path / "run"))
    first = calibration_of(run)
    kept = json.loads((tmp_path / "run" / "calibration.json").read_text())
    assert Calibration.from_json(kept) == first
    monkeypatch.setattr(calibration, "_made", {})
    monkeypatch.setattr(calibration, "calibrate", lambda *_, **__: pytest.fail("made again"))
    assert calibration_of(Run.load(tmp_path / "run")) == first
    assert calibration_of(replace(run, path=None)) == first


@pytest.mark.parametrize("damage", ["", "[]", '{"of": "another"}', "\ufffd"])
def test_a_calibration_of_something_else_is_made_again(tmp_path: Path, monkeypatch, damage: str) -> None:
    run = replace(make_run(), path=tmp_path)
    monkeypatch.setattr(calibration, "_made", {})
    first = calibration_of(run)
    (tmp_path / "calibration.json").write_text(damage, encoding="utf-8")
    monkeypatch.setattr(calibration, "_made", {})
    assert calibration_of(run) == first
    with torch.no_grad():
        run.model.entity.mul_(-1).add_(0.3)
    other = Calibration("other", {})
    monkeypatch.setattr(calibration, "calibrate", lambda *_, **__: other)
    assert calibration_of(run) is other


def test_it_can_be_drawn(tmp_path: Path) -> None:
    found = calibrate(*world())
    assert calibration_figure(found, tmp_path / "found.png").stat().st_size > 10_000
    assert harmonium.calibrate(make_run(), tmp_path / "run.png").graph == "random"
    assert (tmp_path / "run.png").is_file()
