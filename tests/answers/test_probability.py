from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch

from harmonium.answers.calibration import probability
from harmonium.answers.calibration.calibration_fit import fit_log_odds, fit_slot, judge
from harmonium.answers.calibration.held_out import HeldOutAnswers
from harmonium.answers.calibration.probability import Calibration, fit_calibration, optional_floats
from harmonium.answers.calibration.slot_calibration import Kind
from harmonium.answers.open_run import open_run
from harmonium.answers.predict import best_answers
from harmonium.answers.score import score_triples
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import storage
from small import PlainScorer, make_graph, make_run, random_model

COUNT = 60  # entities of the world below


class Odds(PlainScorer):
    """A scorer that is right about a world: its scores are the log-odds with which facts were drawn."""

    def __init__(self) -> None:
        self.scores = 2 * torch.randn(COUNT, 4, COUNT, generator=torch.Generator().manual_seed(1)) - 4

    def all_scores(self, slot: Slot, queries: Triples) -> torch.Tensor:
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


def test_answers_are_true_as_often_as_said() -> None:
    """Judged on facts that were not used, in every bin with enough answers; and better than one number for all."""
    calibration = fit_calibration(*world())
    assert set(calibration.fits) == set(Slot)
    for fit in calibration.fits.values():
        assert Kind.ANSWERED in fit.reliability
        for judged in fit.reliability.values():
            assert judged.split == "test"
            assert judged.log_loss < 0.97 * judged.base_log_loss
            for part in judged.bins:
                if part["facts"] >= 50:
                    error = (part["probability"] * (1 - part["probability"]) / part["facts"]) ** 0.5
                    assert abs(part["probability"] - part["true"]) < 4 * error + 0.03


def test_the_best_answer_to_a_question_without_a_known_one_is_as_often_true_as_said() -> None:
    """Each person has one home; of a home that is not known the model knows a little."""
    generator, n_people, n_towns = torch.Generator().manual_seed(0), 2000, 20
    towns = torch.randint(n_towns, (n_people,), generator=generator)
    rows = torch.stack([torch.arange(n_people), torch.zeros(n_people).long(), n_people + towns], dim=1)
    parts = rows[torch.randperm(n_people, generator=generator)].tensor_split([800, 1400])
    names = [f"e{i}" for i in range(n_people + n_towns)]
    graph = Graph(Vocabulary(names), Vocabulary(["home"], kind="relation"), *map(Triples.from_rows, parts))
    scores = torch.randn(n_people, n_towns, generator=generator)
    scores[torch.arange(n_people), towns] += 2
    tails = torch.cat([torch.full((n_people, n_people), -9.0), scores], dim=1)

    class Guess(PlainScorer):
        def all_scores(self, slot: Slot, queries: Triples) -> torch.Tensor:
            return tails[queries.head].clone() if slot is Slot.TAIL else torch.zeros(len(queries), len(names))

    fit = fit_slot(Guess(), graph, Slot.TAIL)
    judged = judge(Guess(), graph, Slot.TAIL, fit)
    best = judged[Kind.UNANSWERED]
    assert best.questions == 600
    assert 0.4 < best.best_true < 0.8
    assert best.best_probability == pytest.approx(best.best_true, abs=0.05)
    assert judged[Kind.ANSWERED].true == 0
    assert judged[Kind.ANSWERED].best_probability < 0.01  # who has a home has no other


def test_a_relation_with_many_facts_has_its_own_probabilities_and_one_with_few_the_common_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    n_relations, shares, sizes = 4, torch.tensor([0.8, 0.2, 0.5, 0.8]), [400, 400, 400, 6]
    rows = [[i, r, 1000] for r, size in enumerate(sizes) for i in range(size)]
    graph = Graph(
        Vocabulary([f"e{i}" for i in range(1001)]),
        Vocabulary([f"r{i}" for i in range(n_relations)], kind="relation"),
        train=Triples.from_rows([[1000, 0, 0]]), valid=Triples.from_rows(rows), test=Triples.from_rows([]),
    )  # fmt: skip
    true = torch.cat([torch.rand(size, generator=generator) < shares[r] for r, size in enumerate(sizes)])
    examples = HeldOutAnswers(
        question=torch.arange(len(rows)),
        relation=graph.valid.relation,
        margin=torch.randn(len(rows), dtype=torch.float64, generator=generator),
        known=torch.zeros(len(rows), dtype=torch.int64),
        true=true,
        weight=torch.ones(len(rows), dtype=torch.float64),
        label=true.double(),
    )
    log_odds = fit_log_odds(examples, Kind.UNANSWERED, 1.0, n_relations)
    zero = torch.zeros(n_relations)
    fitted = log_odds.of(torch.arange(n_relations), zero.double(), zero.long()).sigmoid()
    assert fitted[:3].tolist() == pytest.approx(shares[:3].tolist(), abs=0.06)
    assert 0.4 < fitted[3] < 0.75


def test_test_facts_are_not_used_to_fit() -> None:
    """Neither as true nor as false: the fit is the same when test facts become other facts."""
    scorer, graph = world()
    fits = [fit_slot(scorer, g, Slot.TAIL) for g in (graph, replace(graph, test=graph.test[:200]))]
    slopes = [torch.tensor(fit.log_odds[Kind.ANSWERED].slopes).mean().item() for fit in fits]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.2)
    gone = replace(graph, test=graph.test[:0])
    assert fit_calibration(scorer, gone).fits[Slot.TAIL].reliability[Kind.ANSWERED].split == "valid"


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_test_splits_of_any_size_judge_the_same(share: float) -> None:
    """The probability of a question with known answers is that of a graph that lacks as many facts as valid has."""
    scorer, graph = world()
    held_out = Triples.cat([graph.valid, graph.test])
    n_valid = int(len(held_out) * (0.3 if share == 1 else 0.7))
    graph = replace(graph, valid=held_out[:n_valid], test=held_out[n_valid:])
    judged = judge(scorer, graph, Slot.TAIL, fit_slot(scorer, graph, Slot.TAIL))[Kind.ANSWERED]
    assert judged.true == pytest.approx(min(n_valid, len(graph.test)), rel=0.2)
    expected = sum(part["facts"] * part["probability"] for part in judged.bins if part["facts"])
    assert expected == pytest.approx(judged.true, rel=0.1)


def test_too_few_facts_or_a_model_that_knows_nothing_give_no_probability() -> None:
    scorer, graph = world()
    few = replace(graph, valid=graph.valid[:5])
    calibration = fit_calibration(scorer, few)
    assert calibration.fits == {}
    assert calibration.of_facts(scorer, few, graph.test) is None
    scorer.scores = -scorer.scores
    assert Slot.TAIL not in fit_calibration(scorer, graph).fits


def test_a_kind_of_question_that_validation_lacks_has_no_probability() -> None:
    scorer, graph = world()
    asked = graph.known_answers(Slot.TAIL, ("train",))
    answered = asked.of(graph.valid)[0].unique()
    fit = fit_slot(scorer, replace(graph, valid=graph.valid[answered]), Slot.TAIL)
    assert set(fit.log_odds) == {Kind.ANSWERED}
    ones = torch.ones(2)
    probabilities = fit.probabilities(torch.zeros(2).long(), ones, 2 * ones, torch.tensor([0, 1]))
    assert probabilities.isnan().tolist() == [True, False]
    assert optional_floats(probabilities, 2) == [None, probabilities[1].item()]
    assert optional_floats(None, 2) == [None, None]


@pytest.mark.parametrize("slot", list(Slot))
def test_a_higher_score_never_has_a_lower_probability(slot: Slot) -> None:
    scorer, graph = world()
    fit = fit_calibration(scorer, graph).fits[slot]
    scores = torch.linspace(-30, 30, 200).expand(12, 200)
    relations, known = torch.arange(12) % 4, torch.arange(12)[:, None] // 4
    probabilities = fit.probabilities(relations, scores, scores.logsumexp(1), known)
    rated = probabilities[~probabilities.isnan().any(1)]
    assert len(rated)
    assert (rated.diff(dim=1) >= 0).all()
    assert ((rated >= 0) & (rated <= 1)).all()


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_probability_of_a_fact_by_the_formula(slot: Slot) -> None:
    """It does not depend on whether the fact is itself known."""
    scorer, graph = world()
    calibration, triples = fit_calibration(scorer, graph), Triples.cat([graph.train[:3], graph.test[:3]])
    fit, known = calibration.fits[slot], graph.known_answers(slot)
    probabilities = calibration.of_facts(scorer, graph, triples, slot)
    for i, fact in enumerate(triples.chunks(1)):
        p = (fit.temperature * scorer.score_slot(slot, fact)[0].double()).softmax(0)[fact[slot]]
        others, relation = len(known.of(fact)[1]) - 1, int(fact.relation)
        log_odds = fit.log_odds[Kind.ANSWERED if others else Kind.UNANSWERED]
        line = log_odds.slopes[relation] * torch.log(p / (1 - p)) + log_odds.intercepts[relation]
        line += log_odds.known * math.log(max(1, others * len(graph.train) / len(graph.facts())))
        curve = log_odds.curve
        positions = [curve.knots[0] - 50, *curve.knots, curve.knots[-1] + 50]
        values = [curve.value - 50 * curve.slopes[0], curve.value]
        for slope, low, high in zip(curve.slopes[1:], positions[1:], positions[2:], strict=False):
            values.append(values[-1] + slope * (high - low))
        odds = torch.tensor(numpy.interp(line.item(), positions, values))
        assert probabilities[i].item() == pytest.approx(odds.sigmoid().item(), rel=1e-4)
    without = replace(graph, train=graph.train[1:])
    unknown = calibration.of_facts(scorer, without, triples[:1], slot)
    assert unknown.item() == pytest.approx(probabilities[0].item())


@pytest.fixture
def run() -> Run:
    graph = make_graph(20, 3, (200, 60, 60))
    return make_run(graph, random_model(graph, "distmult", 6).float())


def test_a_run_is_calibrated_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_computed", {})
    run = replace(run, path=run.save(tmp_path / "run"))
    first = open_run(run).calibration
    assert "calibration.json" in manifest.read(tmp_path / "run").files
    monkeypatch.setattr(probability, "fit_calibration", lambda *_, **__: pytest.fail("fitted again"))
    assert open_run(replace(run, path=None)).calibration == first
    monkeypatch.setattr(manifest, "_computed", {})
    assert open_run(replace(run)).calibration == first


def damage(text: str) -> list[str]:
    """Files that no fit writes: of another format, or with numbers that cannot be."""
    kept = json.loads(text)
    fit = next(iter(kept["calibration"]["fits"].values()))
    log_odds = next(iter(fit["log_odds"].values()))
    damaged = ["", "[]", "{}", "\ufffd", json.dumps(kept | {"more": 1}), json.dumps(kept | {"format": 1})]
    damaged.append(json.dumps(kept | {"calibration": kept["calibration"] | {"symmetric": [99]}}))
    for name, values in (("slopes", [-1.0]), ("slopes", []), ("intercepts", [math.nan]), ("known", math.inf)):
        before, log_odds[name] = log_odds[name], values
        damaged.append(json.dumps(kept))
        log_odds[name] = before
    return damaged


@pytest.mark.parametrize("number", range(11))
def test_a_calibration_of_something_else_is_fitted_again(run: Run, tmp_path: Path, monkeypatch, number: int) -> None:
    """Also where its checksum is right, as that of another version would be."""
    folder = run.save(tmp_path / "run")
    run, file = replace(run, path=folder), folder / "calibration.json"
    monkeypatch.setattr(manifest, "_computed", {})
    first, good = open_run(run).calibration, file.read_bytes()
    for sealed in (False, True):
        record = storage.write(file, damage(good.decode())[number].encode())
        if sealed:
            stored = manifest.read(folder)
            manifest.write(folder, replace(stored, files=stored.files | {file.name: record}))
        monkeypatch.setattr(manifest, "_computed", {})
        assert open_run(run).calibration == first
        assert file.read_bytes() == good
    with torch.no_grad():
        run.model.entity.mul_(-1).add_(0.3)
    other = Calibration("other", {})
    monkeypatch.setattr(probability, "fit_calibration", lambda *_, **__: other)
    assert open_run(replace(run)).calibration is other


def symmetric_world(n_entities: int = 24) -> tuple[Odds, Graph]:
    """`near` holds both ways, a few pairs in one direction only; `likes` is random; the scores know something of both."""
    pairs = [(i, (i + step) % n_entities) for i in range(n_entities) for step in (1, 3, 7)]
    near = [row for i, j in pairs for row in ([i, 0, j], [j, 0, i])][:-4]
    likes = make_graph(n_entities, 1, (60, 30, 30)).facts().to_rows() + torch.tensor([0, 1, 0])
    rows = torch.cat([torch.tensor(near), likes])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    names = Vocabulary([f"e{i}" for i in range(n_entities)]), Vocabulary(["near", "likes"], kind="relation")
    scorer = Odds()
    scorer.scores = torch.randn(n_entities, 2, n_entities, generator=torch.Generator().manual_seed(1))
    scorer.scores[tuple(rows.T)] += 2
    return scorer, Graph(*names, *map(Triples.from_rows, rows.tensor_split([len(rows) // 2, 3 * len(rows) // 4])))


def test_a_symmetric_fact_has_one_probability_whichever_way_it_is_asked() -> None:
    """Both directions, as head and as tail, known or not; by facts, by `score` and by the answers to its questions."""
    model, graph = symmetric_world()
    run = open_run(make_run(graph, model))
    vars(run.run)["fingerprint"] = "a table of log-odds"
    calibration = run.calibration
    assert calibration.symmetric == [0]
    assert {Slot.HEAD, Slot.TAIL} <= set(calibration.fits)
    one_way = Triples.from_rows([[i, 0, j] for i, j in ((0, 1), (2, 9), (4, 20), (5, 6))])
    other_way = Triples(one_way.tail, one_way.relation, one_way.head)
    readings = [calibration.of_facts(model, graph, t, s) for t in (one_way, other_way) for s in (Slot.HEAD, Slot.TAIL)]
    for reading in readings[1:]:
        assert reading.tolist() == pytest.approx(readings[0].tolist(), rel=1e-4)
    for triples in (one_way, other_way):
        for slot in (Slot.HEAD, Slot.TAIL):
            rated = [fact.probability for fact in score_triples(run, triples, slot)]
            assert rated == pytest.approx(readings[0].tolist(), rel=1e-4)
            for row, answers in enumerate(best_answers(run, slot, triples, top=99)):
                (answer,) = [a for a in answers if a.id == graph.entities.ids[int(triples[slot][row])]]
                assert answer.probability == pytest.approx(readings[0][row].item(), rel=1e-4)


def test_the_log_odds_of_a_symmetric_fact_are_the_mean_over_its_questions() -> None:
    model, graph = symmetric_world()
    united = fit_calibration(model, graph)
    alone = replace(united, symmetric=[])
    triples = Triples.from_rows([[0, 0, 1], [2, 0, 9], [3, 1, 8]])
    reverse = Triples(triples.tail, triples.relation, triples.head)
    separate = [alone.of_facts(model, graph, t, s).logit() for t in (triples, reverse) for s in (Slot.HEAD, Slot.TAIL)]
    expected = torch.stack(separate).mean(0).sigmoid()[:2].tolist()
    assert united.of_facts(model, graph, triples)[:2].tolist() == pytest.approx(expected, rel=1e-4)
    assert united.of_facts(model, graph, triples)[2] == alone.of_facts(model, graph, triples)[2]
    assert len({round(float(reading[1]), 3) for reading in separate}) > 1
