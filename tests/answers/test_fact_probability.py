"""The probability of missing facts: what is fitted, when, and where it is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harmonium import Run
from harmonium.answers.calibration import fact_probability
from harmonium.answers.calibration.fact_probability import (
    FactCalibration,
    fit_fact_calibration,
    uncalibrated_log_odds,
)
from harmonium.answers.calibration.judgement_correction import JudgementCorrection
from harmonium.answers.calibration.label_fit import LabelledExamples, fit_calibrated, fit_labels, missing_bound
from harmonium.answers.candidate_facts import FEATURES, CandidateFacts, CandidateSearch
from harmonium.answers.open_run import open_run
from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.run import manifest
from harmonium.run.run import History
from harmonium.runtime import schema, storage
from small import TableScorer, make_graph, untrained

GENERATOR = torch.Generator().manual_seed(0)


def untrained_run(sizes: tuple[int, int, int]) -> Run:
    graph, config = make_graph(20, 3, sizes), ModelConfig("distmult", 6)
    return Run(Config(model=config), graph, untrained(graph, config), History())


def draw(log_odds: torch.Tensor) -> torch.Tensor:
    """Whether each is true."""
    return torch.rand(len(log_odds), generator=GENERATOR) < log_odds.sigmoid()


def test_the_fit_finds_what_share_of_the_true_facts_is_labelled() -> None:
    """Of three relations with the same regression, one lacks nothing, one half and one four of five of its true facts."""
    n, w, shares = 6_000, torch.tensor([2.0, -1.0, -2.0]).double(), (1.0, 0.5, 0.2)
    inputs = torch.cat([torch.randn(3 * n, 2, generator=GENERATOR).double(), torch.ones(3 * n, 1).double()], dim=1)
    group = torch.arange(3).repeat_interleave(n)
    is_true = draw(inputs @ w)
    labelled = is_true & (torch.rand(3 * n, generator=GENERATOR) < torch.tensor(shares)[group])
    fit, _ = fit_calibrated(LabelledExamples(inputs, labelled.double(), torch.ones(3 * n).double(), group, 3))
    found = (fit.mean_label + fit.label).sigmoid()
    assert found.tolist() == pytest.approx(shares, abs=0.05)
    assert (fit.common + fit.deviation)[1].tolist() == pytest.approx(w.tolist(), abs=0.25)
    log_odds = (
        inputs @ fit.common + (inputs * fit.deviation[group]).sum(1) + torch.log1p(-found.clamp(max=1 - 1e-6))[group]
    )
    for number in range(3):
        rest = (group == number) & ~labelled
        expected = is_true[rest].double().sum().item()
        assert log_odds[rest].sigmoid().sum().item() == pytest.approx(expected, rel=0.3, abs=100)  # by the priors
    assert fit.spread[0] > 0


def test_many_inputs_that_say_nothing_do_not_hide_what_is_missing() -> None:
    """A fit to few labels separates its own examples by chance, so that no fact seems to be missing."""
    n, k, relations, generator = 1200, 15, 20, torch.Generator().manual_seed(0)
    inputs = torch.cat([torch.randn(n, k, generator=generator), torch.ones(n, 1)], dim=1).double()
    is_true = torch.rand(n, generator=generator) < (3 * inputs[:, 0] - 2).sigmoid()
    labelled = is_true & (torch.rand(n, generator=generator) < 0.3)
    groups = torch.arange(n) % relations
    examples = LabelledExamples(inputs, labelled.double(), torch.ones(n).double(), groups, relations)
    flattering, found = (float(fit.mean_label.sigmoid()) for fit in (fit_labels(examples), fit_calibrated(examples)[0]))
    assert flattering > 0.9
    assert found == pytest.approx(0.3, abs=0.15)


def test_weights_stand_for_repeated_examples() -> None:
    inputs = torch.cat([torch.randn(80, 2, generator=GENERATOR), torch.ones(80, 1)], dim=1).double()
    label, weight = (torch.arange(80) % 5 == 0).double(), torch.arange(80) % 4 + 1
    once = fit_labels(LabelledExamples(inputs, label, weight.double(), torch.zeros(80).long(), 1))
    rows = torch.arange(80).repeat_interleave(weight)
    ones, zeros = torch.ones(len(rows)).double(), torch.zeros(len(rows)).long()
    repeated = fit_labels(LabelledExamples(inputs[rows], label[rows], ones, zeros, 1))
    assert once.common.tolist() == pytest.approx(repeated.common.tolist(), abs=1e-3)
    assert once.spread.tolist() == pytest.approx(repeated.spread.tolist(), rel=1e-2)


def test_the_unlabelled_among_the_best_examples_bound_what_is_missing() -> None:
    """Of 4,000 true examples 1,000 are labelled: 3 are missing for each of them, among 40,000 false ones that look worse."""
    score = torch.cat([torch.randn(4000, generator=GENERATOR) + 4, torch.randn(40_000, generator=GENERATOR)]).double()
    label = torch.zeros(44_000).double().index_fill_(0, torch.arange(1000), 1)
    ones = torch.ones_like(label)
    examples = LabelledExamples(score[:, None], label, ones, torch.zeros(44_000, dtype=torch.int64), 1)
    assert missing_bound(examples, score) == pytest.approx(3, rel=0.3)
    assert missing_bound(replace(examples, label=ones), score) < 0.01
    assert missing_bound(replace(examples, label=label * (label.cumsum(0) <= 4)), score) is None


def facts_of(features: torch.Tensor, relation: torch.Tensor) -> CandidateFacts:
    return CandidateFacts(Triples(relation, relation, relation), relation.double(), features.double())


def test_log_odds_are_a_regression_for_each_relation_less_what_is_labelled() -> None:
    features = torch.randn(4, len(FEATURES), generator=GENERATOR).double()
    weights, own = torch.randn(2, 18, generator=GENERATOR).double()
    labels = {7: 1.5}
    calibration = FactCalibration(
        [1.0] * 17, [2.0] * 17, weights.tolist(), {7: own.tolist()}, -0.5, labels, {7: 0.2}, 0.7, {7: 3.0}, 99
    )
    margins, nothing, counts = features[:, :2], features[:, 2:4], features[:, 4:6]
    inputs = torch.cat([features, margins.amin(1)[:, None], nothing * margins, counts * margins], dim=1)
    inputs = torch.cat([(inputs - 1) / 2, torch.ones(4, 1)], dim=1)
    share = torch.tensor([-0.5, 1.5, 1.5, -0.5]).double().sigmoid()
    expected = inputs @ weights + torch.tensor([0, 1, 1, 0]) * (inputs @ own) + (1 - share).log()
    log_odds = calibration.log_odds(facts_of(features, torch.tensor([3, 7, 7, 0])))
    torch.testing.assert_close(log_odds, expected)
    assert schema.read(FactCalibration, json.loads(storage.to_json(calibration))) == calibration
    assert len(calibration.log_odds(CandidateFacts.cat([]))) == 0


def test_completeness_counts_missing_facts_by_held_out_ones() -> None:
    graph = make_graph(40, 2, (300, 40, 0))
    known, held_out = graph.facts().relation.bincount(), graph.valid.relation.bincount()
    calibration = FactCalibration([0.0], [1.0], [0.0, 0.0], {}, 0.0, {0: -1.0, 1: 50.0}, {0: 0.1, 1: 0.1}, 0.7, {}, 40)
    first, second = calibration.completeness(graph)
    expected = (int(held_out[0]) + int(known[0]) * 40 / 340) / 2 * 2.71828
    assert first.missing == pytest.approx(expected, rel=1e-3)
    assert first.missing_low < first.missing < first.missing_high
    assert first.interval[0] < first.share < first.interval[1] < 1
    assert second.share == pytest.approx(1)
    assert (first.known, first.held_out) == (int(known[0]), int(held_out[0]))
    bounded = replace(calibration, missing_bound_of={0: 50.0}).completeness(graph)[0]
    assert bounded.missing == first.missing and bounded.missing_high == pytest.approx(
        first.missing * 50 / 2.71828, rel=1e-3
    )
    judged = replace(calibration, correction=JudgementCorrection(0.5, 1.0, {0: 0.2}, 30))
    assert judged.completeness(graph)[0].missing == pytest.approx(first.missing * 2.01375, rel=1e-4)  # exp(0.7)
    expected, low, high = judged.expected_true(torch.tensor([0.5, 0.9]).double(), torch.tensor([0, 1]))
    assert expected == pytest.approx(1.4)
    assert low < expected < high


def scores_that_know(graph: Graph, noise: float) -> TableScorer:
    """Facts of all splits score above others by 3, with noise."""
    shape = (2, graph.n_relations, graph.n_entities, graph.n_entities)
    scores = noise * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    facts = graph.facts()
    scores[0, facts.relation, facts.tail, facts.head] += 3
    scores[1, facts.relation, facts.head, facts.tail] += 3
    return TableScorer(*scores)


def test_better_scores_give_better_probabilities() -> None:
    """Of candidates of which some are hidden facts, those have the higher probabilities, and the right number of them."""
    whole = make_graph(60, 3, (900, 150, 150))
    graph = replace(whole, test=whole.test[:0])
    scorer = scores_that_know(whole, 1.0)
    calibration = fit_fact_calibration(scorer, graph)
    assert calibration is not None
    assert calibration.true > 100
    search = CandidateSearch.prepare(scorer, graph)
    facts = CandidateFacts.cat([search.of_relation(relation) for relation in range(3)])
    is_hidden = whole.known_answers(Slot.TAIL, ("test",)).contain(facts.triples)
    probability = calibration.log_odds(facts).sigmoid()
    assert probability[is_hidden].mean() > 4 * probability[~is_hidden].mean()
    assert probability.sum().item() == pytest.approx(is_hidden.sum().item(), rel=0.35)
    best = probability.argsort(descending=True)[:100]
    assert is_hidden[best].double().mean() > 0.5


def test_facts_of_valid_are_true_and_those_of_test_neither_true_nor_false(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(40, 2, (400, 80, 80))
    scorer, fitted = scores_that_know(graph, 1.0), []
    monkeypatch.setattr(fact_probability, "_fit", lambda examples, n_true: fitted.append((examples, n_true)))
    fit_fact_calibration(scorer, graph)
    examples, n_true = fitted[0]
    search = CandidateSearch.prepare(scorer, graph, ("train",))
    for relation in range(2):
        facts = search.of_relation(relation)
        in_valid, in_test = (graph.known_answers(Slot.TAIL, (s,)).contain(facts.triples) for s in ("valid", "test"))
        assert in_valid.sum() > 10 < in_test.sum()
        expected = sorted(zip(facts.features[~in_test].tolist(), in_valid[~in_test].double().tolist(), strict=True))
        part = examples[relation]
        assert sorted(zip(part.features.tolist(), part.label.tolist(), strict=True)) == expected
    assert n_true == sum(part.label.sum() for part in examples.values())


def test_all_candidates_count_though_only_some_are_examples() -> None:
    facts = facts_of(torch.randn(50_000, len(FEATURES), generator=GENERATOR), torch.zeros(50_000, dtype=torch.int64))
    label = torch.rand(50_000, generator=GENERATOR) < 0.001
    examples = fact_probability._sample(facts, label)
    assert len(examples.label) < 10_000
    assert examples.label.sum() == label.sum()
    assert examples.weight.sum().item() == pytest.approx(50_000)
    promise = uncalibrated_log_odds(facts)
    assert facts.features[promise.argmax()].tolist() in examples.features[examples.weight == 1].tolist()
    few = fact_probability._sample(facts[torch.arange(300)], label[:300])
    assert (len(few.label), few.weight.unique().tolist()) == (300, [1.0])


@pytest.mark.parametrize("sizes", [(200, 0, 60), (200, 9, 60)])
def test_few_validation_facts_give_no_probabilities(sizes: tuple[int, int, int]) -> None:
    assert open_run(untrained_run(sizes)).fact_calibration() is None


def test_a_calibration_is_kept_in_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.load(untrained_run((200, 60, 60)).save(tmp_path / "run"))
    fits: list[bool] = []
    fit = fact_probability.fit_fact_calibration

    def count(scorer, graph, progress=None):
        fits.append(True)
        return fit(scorer, graph, progress)

    monkeypatch.setattr(fact_probability, "fit_fact_calibration", count)
    monkeypatch.setattr(manifest, "_computed", {})
    first = open_run(run).fact_calibration()
    assert first is not None
    monkeypatch.setattr(manifest, "_computed", {})  # another process
    again = Run.load(tmp_path / "run")
    assert open_run(again).fact_calibration() == first
    assert len(fits) == 1
    file = tmp_path / "run" / "fact_calibration.json"
    good = file.read_bytes()
    for content in (b"", b"[]", good.replace(b"0", b"1")):
        monkeypatch.setattr(manifest, "_computed", {})
        file.write_bytes(content)
        assert open_run(again).fact_calibration() == first
        assert file.read_bytes() == good
    assert len(fits) == 4


def test_that_nothing_could_be_fitted_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.load(untrained_run((200, 5, 60)).save(tmp_path / "run"))
    monkeypatch.setattr(manifest, "_computed", {})
    assert open_run(run).fact_calibration() is None
    monkeypatch.setattr(manifest, "_computed", {})
    monkeypatch.setattr(fact_probability, "fit_fact_calibration", None)  # an error if it were called
    assert open_run(tmp_path / "run").fact_calibration() is None
