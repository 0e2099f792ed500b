"""How `complete` does on test facts that it does not know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harmonium.answers.calibration.hidden_facts import find_hidden
from harmonium.config.settings import Config, ModelConfig
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from small import make_graph


@pytest.fixture(scope="module")
def run() -> Run:
    graph, config = make_graph(20, 3, (200, 60, 60)), Config(model=ModelConfig("distmult", 8))
    return Run(config, graph, build_model(config.model, 20, 3), History())


def test_all_listed_facts_are_in_a_band(run: Run) -> None:
    hidden = find_hidden(run, top=100)
    assert (hidden.listed, hidden.hidden) == (100, 60)
    assert 0 < hidden.in_test <= 60
    assert 0 < hidden.expected < 100
    assert [row["relation"] for row in hidden.completeness]
    for band in hidden.bands:
        assert band.low * band.facts <= band.expected + 1e-9
        assert band.in_test <= band.facts


def test_all_test_facts_that_may_be_listed_are_found_in_the_end(run: Run) -> None:
    assert find_hidden(run, top=5000).in_test > 0.9 * 60


def test_facts_of_train_and_valid_are_not_listed(run: Run) -> None:
    graph = run.graph
    twice = replace(graph, test=Triples.cat([graph.train[:30], graph.valid[:30]]))  # already known
    assert find_hidden(replace(run, graph=twice)).in_test == 0


@pytest.mark.parametrize("split", ["test", "valid"])
def test_too_few_facts_are_an_error(run: Run, split: str) -> None:
    graph = replace(run.graph, **{split: run.graph.splits[split][:5]})
    with pytest.raises(HarmoniumError, match="too few"):
        find_hidden(replace(run, graph=graph))
