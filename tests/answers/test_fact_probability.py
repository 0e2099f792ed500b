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
    fit_log_odds,
    uncalibrated_log_odds,
)
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


def flat(count: int, centre: float = 0.0, precision: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """A prior of w."""
    return torch.full((count,), centre).double(), torch.full((count,), precision).double()


def draw(log_odds: torch.Tensor) -> torch.Tensor:
    """Whether each is true."""
    return torch.rand(len(log_odds), generator=GENERATOR) < log_odds.sigmoid()


def test_the_fit_allows_for_as_many_missing_facts_as_validation_holds() -> None:
    """True facts are in valid or missing, each as often: the missing ones are labelled false, and predicted."""
    n, w = 200_000, torch.tensor([2.0, -1.0, -3.0]).double()
    inputs = torch.cat([torch.randn(n, 2, generator=GENERATOR).double(), torch.ones(n, 1).double()], dim=1)
    is_true = draw(inputs @ w)  # among the candidates once valid is known
    also_in_valid = torch.cat([torch.zeros(n).bool(), torch.ones(int(is_true.sum())).bool()])
    every = torch.cat([inputs, inputs[is_true]])  # and before: each missing fact stands for one of valid as well
    ones = torch.ones(len(every)).double()
    fitted = fit_log_odds(every, also_in_valid.double(), ones, torch.zeros_like(ones), *flat(3))
    assert fitted.tolist() == pytest.approx(w.tolist(), abs=0.06)
    assert (inputs @ fitted).sigmoid().sum().item() == pytest.approx(is_true.sum().item(), rel=0.02)


def test_weights_stand_for_repeated_examples_and_the_prior_for_missing_ones() -> None:
    inputs, label = torch.randn(50, 2, generator=GENERATOR).double(), (torch.arange(50) % 5 == 0).double()
    weight, zero = torch.arange(50) % 4 + 1, torch.zeros(50).double()
    once = fit_log_odds(inputs, label, weight.double(), zero, *flat(2, precision=0.1))
    rows = torch.arange(50).repeat_interleave(weight)
    ones = torch.ones(len(rows)).double()
    repeated = fit_log_odds(inputs[rows], label[rows], ones, zero[rows], *flat(2, precision=0.1))
    assert once.tolist() == pytest.approx(repeated.tolist(), abs=1e-6)
    separable = torch.tensor([[1.0], [-1.0]]).double()
    fitted = fit_log_odds(separable, torch.tensor([1.0, 0]).double(), *torch.ones(2, 2).double(), *flat(1, 0.5, 1.0))
    assert 0.5 < fitted.item() < 2
    nothing = torch.empty(0).double()
    assert fit_log_odds(nothing.view(0, 2), nothing, nothing, nothing, *flat(2, 0.5)).tolist() == [0.5, 0.5]


def facts_of(features: torch.Tensor, relation: torch.Tensor) -> CandidateFacts:
    return CandidateFacts(Triples(relation, relation, relation), relation.double(), features.double())


def test_log_odds_are_a_regression_for_each_relation() -> None:
    features = torch.randn(4, len(FEATURES), generator=GENERATOR).double()
    weights, own = torch.randn(2, len(FEATURES) + 1, generator=GENERATOR).double()
    calibration = FactCalibration([1.0] * 8, [2.0] * 8, weights.tolist(), {7: own.tolist()}, 99)
    inputs = torch.cat([(features - 1) / 2, torch.ones(4, 1)], dim=1)
    expected = inputs @ weights + torch.tensor([0, 1, 1, 0]) * (inputs @ own)
    log_odds = calibration.log_odds(facts_of(features, torch.tensor([3, 7, 7, 0])))
    torch.testing.assert_close(log_odds, expected)
    assert schema.read(FactCalibration, json.loads(storage.to_json(calibration))) == calibration
    assert len(calibration.log_odds(CandidateFacts.cat([]))) == 0


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
    assert probability.sum().item() == pytest.approx(is_hidden.sum().item(), rel=0.2)
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
    facts = facts_of(torch.randn(50_000, 8, generator=GENERATOR), torch.zeros(50_000, dtype=torch.int64))
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

    def count(scorer, graph, typed=True, progress=None):
        fits.append(typed)
        return fit(scorer, graph, typed, progress)

    monkeypatch.setattr(fact_probability, "fit_fact_calibration", count)
    monkeypatch.setattr(manifest, "_computed", {})
    typed, untyped = open_run(run).fact_calibration(), open_run(run).fact_calibration(typed=False)
    assert typed is not None
    assert untyped is not None
    assert fits == [True, False]
    monkeypatch.setattr(manifest, "_computed", {})  # another process
    again = Run.load(tmp_path / "run")
    assert (open_run(again).fact_calibration(), open_run(again).fact_calibration(typed=False)) == (typed, untyped)
    assert fits == [True, False]
    file = tmp_path / "run" / "fact_calibration.typed.json"
    good = file.read_bytes()
    for content in (b"", b"[]", good.replace(b"0", b"1")):
        monkeypatch.setattr(manifest, "_computed", {})
        file.write_bytes(content)
        assert open_run(again).fact_calibration() == typed
        assert file.read_bytes() == good
    assert fits == [True, False, True, True, True]


def test_that_nothing_could_be_fitted_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.load(untrained_run((200, 5, 60)).save(tmp_path / "run"))
    monkeypatch.setattr(manifest, "_computed", {})
    assert open_run(run).fact_calibration() is None
    monkeypatch.setattr(manifest, "_computed", {})
    monkeypatch.setattr(fact_probability, "fit_fact_calibration", None)  # an error if it were called
    assert open_run(tmp_path / "run").fact_calibration() is None
