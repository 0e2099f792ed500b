"""The difference of two runs: what is the same is the same, what changed is named, and noise is not called a change."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

import harmonium
from harmonium.analysis.diff import verdict
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from small import family, fitted, make_graph, make_run, untrained


@pytest.fixture(scope="module")
def run() -> Run:
    """With probabilities: there are enough validation facts."""
    graph = make_graph(20, 3, (200, 60, 60))
    return make_run(graph, untrained(graph))


@pytest.fixture(scope="module")
def trained() -> Run:
    graph = family(60)
    return make_run(graph, fitted(graph, graph.train))


def with_noise(run: Run, size: float, seed: int = 0) -> Run:
    """The same run with noise on its entity vectors."""
    model = deepcopy(run.model)
    with torch.no_grad():
        model.entity.add_(size * torch.randn(model.entity.shape, generator=torch.Generator().manual_seed(seed)))
    return replace(run, model=model)


def test_a_run_and_itself(run: Run) -> None:
    same = harmonium.diff(run, run)
    assert not same.changed and same.summary == ["nothing changed"]
    assert (same.facts, same.queries, same.rated) == (60, 120, 60)
    assert "nothing changed" in str(same) and "nothing changed" in repr(same)


def test_metrics_are_those_of_an_evaluation(run: Run) -> None:
    other = with_noise(run, 0.3)
    metrics = harmonium.diff(run, other).metrics
    for name in ("mrr", "hits@1", "hits@3", "hits@10"):
        assert metrics[name].control == pytest.approx(run.evaluate(split="test").metrics[name])
        assert metrics[name].model == pytest.approx(other.evaluate(split="test").metrics[name])


def test_facts_that_one_was_trained_on_are_not_compared(run: Run) -> None:
    graph = run.graph
    moved = replace(graph, train=Triples.cat([graph.train, graph.test[:20]]), test=graph.test[20:])
    difference = harmonium.diff(run, replace(run, graph=moved))
    assert (difference.facts, difference.common, difference.split) == (40, 40, "test")
    all_moved = replace(graph, train=Triples.cat([graph.train, graph.test]), test=graph.test[:0])
    assert harmonium.diff(run, replace(run, graph=all_moved)).split == "valid"


def test_noise_is_not_called_a_change_and_a_worse_model_is(trained: Run) -> None:
    noisy = harmonium.diff(trained, with_noise(trained, 1e-4))
    assert verdict(noisy.metrics["mrr"]) in ("the same", "no clear change")
    untaught = make_run(trained.graph, untrained(trained.graph))
    worse = harmonium.diff(trained, untaught)
    assert verdict(worse.metrics["mrr"]) == "worse" and ": worse (95 %" in worse.summary[0]
    assert verdict(harmonium.diff(untaught, trained).metrics["mrr"]) == "better"
    assert worse.right[0] > worse.right[1]


def test_first_answers_are_those_of_predict_without_the_held_out_facts(trained: Run) -> None:
    other = with_noise(trained, 0.5)
    difference = harmonium.diff(trained, other, top=100)
    assert len(difference.answers) == difference.changed_answers > 0
    empty = trained.graph.test[:0]
    blind = [replace(run, graph=replace(run.graph, valid=empty, test=empty)) for run in (trained, other)]
    for row in difference.answers:
        head, relation, tail = (None if word == "?" else word for word in row["query"].split(", "))
        firsts = [run.predict(head, relation, tail, top=1, new_only=True, probability=False) for run in blind]
        assert [row["before"], row["after"]] == [first[0].name if first else None for first in firsts]
    turned = [(row["before"] == row["true"]) != (row["after"] == row["true"]) for row in difference.answers]
    assert turned == sorted(turned, reverse=True)


def test_probabilities_are_those_of_score(run: Run) -> None:
    other = with_noise(run, 0.5)
    rows = harmonium.diff(run, other, top=100).probabilities
    changes = [abs(row["after"] - row["before"]) for row in rows]
    assert rows and changes == sorted(changes, reverse=True)
    facts = [(row["head"], row["relation"], row["tail"]) for row in rows]
    for side, each in (("before", run), ("after", other)):
        assert [row[side] for row in rows] == pytest.approx([fact.probability for fact in each.score(facts)], abs=1e-6)


def test_runs_that_hold_out_nothing_in_common_are_an_error_that_says_what_to_do(run: Run) -> None:
    renamed = replace(run.graph, entities=Vocabulary([f"other {i}" for i in range(20)]))
    with pytest.raises(HarmoniumError, match="hold out no fact in common.*train both on the same splits"):
        harmonium.diff(run, replace(run, graph=renamed))
