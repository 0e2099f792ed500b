"""A run is opened once: what answers need of it is computed once, and no other run gets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import harmonium
from harmonium.answers import open_run as module
from harmonium.answers.calibration.fact_probability import uncalibrated_log_odds
from harmonium.answers.candidate_facts import CandidateSearch
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.entity_types import EntityTypes
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot
from harmonium.model.gradient_graph import GradientGraph
from small import CONFIGS, graph_of, ladder, make_graph, make_run, random_model, random_table, save_untrained, untrained


def test_a_run_is_opened_once() -> None:
    run = make_run(graph := make_graph(), untrained(graph))
    opened = open_run(run)
    assert open_run(run) is opened and open_run(opened) is opened
    assert open_run(replace(run, graph=graph)) is not opened


def test_a_run_in_a_folder(tmp_path: Path) -> None:
    graph = make_graph()
    folder = save_untrained(graph, CONFIGS["plain"], tmp_path / "run")
    assert open_run(folder).run.fingerprint == open_run(str(folder)).run.fingerprint


def test_a_second_query_computes_nothing_of_the_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(graph := make_graph(20, 3, (200, 60, 60)), untrained(graph))
    first = [run.predict("e1", "r0"), run.predict(None, "r0", "e1"), run.predict("e1"), run.complete(top=3)]

    def again(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    for owner, name in (
        (EntityTypes, "infer"), (EntityTypes, "_infer_slot"), (module.RelationTraits, "infer"), (CsrIndex, "build"),
        (GradientGraph, "prepare"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, again)
    assert [run.predict("e1", "r0"), run.predict(None, "r0", "e1"), run.predict("e1"), run.complete(top=3)] == first
    run.predict("e2", "r0")
    run.score([("e1", "r0", "e2")])


def test_an_updated_run_is_another_one(tmp_path: Path) -> None:
    graph = graph_of(ladder("{i} capital {j}, {i} part EU", 25) + ", z part EU")
    run = make_run(graph, random_model(graph).float())
    before = run.predict("z", "capital", top=99, probability=False)
    assert "y3" in {answer.id for answer in before}
    changed = replace(run, graph=replace(graph, rejected=graph.triple("z", "capital", "y3")))
    assert "y3" not in {answer.id for answer in changed.predict("z", "capital", top=99, probability=False)}
    assert run.predict("z", "capital", top=99, probability=False) == before


def test_answers_are_scored_by_the_scorer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any Scorer takes the place of the vectors: predict, score, complete and classify do not look at the model."""
    graph = make_graph(20, 3, (200, 60, 60))
    run, table = make_run(graph, untrained(graph)), random_table(graph, 1000, seed=0)
    monkeypatch.setattr(OpenRun, "scorer", table)
    monkeypatch.setattr(OpenRun, "held_out_scorer", table)
    query = graph.triple("e1", "r0", "e0")
    best = int(table.score_slot(Slot.TAIL, query)[0].argmax())
    assert run.predict("e1", "r0", typed=False, top=1)[0].id == f"e{best}"
    (scored,) = run.score([("e1", "r0", "e0")])
    assert scored.score == table.score_slot(Slot.TAIL, query)[0, 0]
    assert {fact.score for fact in run.complete(top=5)} <= set(range(1000))
    found, seen = harmonium.classify(run), open_run(run)
    search = CandidateSearch.prepare(table, graph, ("train",))
    expected = uncalibrated_log_odds(search.rate(graph.test))
    assert seen.held_out_scores(graph.test).tolist() == pytest.approx(expected.tolist())
    assert (
        found.label(seen.held_out_scores, graph.test).tolist()
        == (expected >= found.thresholds[graph.test.relation]).tolist()
    )


def test_a_query_is_answered_where_it_has_one_answer_that_is_known() -> None:
    graph = graph_of(ladder("{i} country X", 20), entities="z")
    found = open_run(make_run(graph, untrained(graph)))
    assert found.is_answered(Slot.TAIL, graph.triple("x3", "country", "X"))
    assert not found.is_answered(Slot.TAIL, graph.triple("z", "country", "X"))
    assert not found.is_answered(Slot.HEAD, graph.triple("x3", "country", "X"))
    assert not found.is_answered(Slot.RELATION, graph.triple("x3", "country", "X"))
