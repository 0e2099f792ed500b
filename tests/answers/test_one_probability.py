"""One fact has one probability, however it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium import Run
from harmonium.analysis.tableau import build_tableau
from harmonium.answers.classify import classify, label_facts
from harmonium.answers.open_run import open_run
from harmonium.review.session import Review
from harmonium.server.explorer import Explorer
from small import countries, run_with_constraints

EVERYTHING = 10_000
Fact = tuple[str, str, str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph, row = countries(), torch.arange(len(countries().train))
    missing, test = row % 7 == 3, row % 7 == 5
    graph = replace(graph, train=graph.train[~missing & ~test], test=graph.train[test])
    return Run.load(run_with_constraints(graph).save(tmp_path_factory.mktemp("runs") / "run"))


def by_fact(predictions) -> dict[Fact, float]:
    return {(p.head, p.relation, p.tail): p.probability for p in predictions}


@pytest.fixture(scope="module")
def listed(run: Run) -> dict[Fact, float]:
    """Missing facts of the run; `borders` is symmetric, so these are the directions in which its facts are listed."""
    probabilities = by_fact(harmonium.complete(run, top=40, reasons=False))
    assert len(probabilities) == 40 and "borders" in {relation for _, relation, _ in probabilities}
    assert max(probabilities.values()) > 0.5
    return probabilities


def test_lists_and_scores_agree(run: Run, listed: dict[Fact, float]) -> None:
    wide = by_fact(harmonium.complete(run, top=EVERYTHING, typed=False, reasons=False))
    by_tail, by_head = (by_fact(harmonium.score(run, list(listed), side=side)) for side in ("tail", "head"))
    for fact, probability in listed.items():
        same = pytest.approx(probability, abs=1e-5)
        assert by_tail[fact] == same
        assert by_head[fact] == same
        assert wide.get(fact, probability) == same


def test_queries_agree(run: Run, listed: dict[Fact, float]) -> None:
    for (head, relation, tail), probability in list(listed.items())[:8]:
        queries = [(head, relation, None), (None, relation, tail), (head, None, None), (None, None, tail)]
        found = [by_fact(harmonium.predict(run, *query, top=EVERYTHING)) for query in queries]
        found.append(by_fact(harmonium.predict(run, None, relation, None, top=EVERYTHING)))
        for answers in found:
            either = answers.get((head, relation, tail), answers.get((tail, relation, head)))
            assert either == pytest.approx(probability, abs=1e-5)


def test_explanations_labels_pages_and_reviews_agree(run: Run, listed: dict[Fact, float], tmp_path: Path) -> None:
    labelled = label_facts(run, list(listed), classify(run))
    explorer = Explorer(run)
    with (review := Review.open(run, tmp_path / "judged.sqlite", top=EVERYTHING)).store:
        queue = {shown.fact: shown.probability for shown in review.queue.shown}
        for number, (fact, probability) in enumerate(listed.items()):
            same = pytest.approx(probability, abs=1e-5)
            assert labelled[number].probability == same
            assert queue[fact] == same
            assert explorer.fact(*fact).probability == same
    for fact, probability in list(listed.items())[:3]:
        shown = build_tableau(open_run(run), run.graph.triple(*fact))
        assert shown is not None and shown.asked.probability == pytest.approx(probability, abs=1e-5)
