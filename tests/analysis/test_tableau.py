"""The tableau: contributions in its cells add up to the harmony that answers are ranked by."""

from __future__ import annotations

import json

import pytest
import torch

import harmonium
from harmonium.analysis.tableau import COLUMNS, Tableau, build_tableau
from harmonium.answers.open_run import open_run
from harmonium.data.triples import Slot
from harmonium.run.run import Run
from small import graph_of, ladder, make_run, run_with_constraints, untrained


@pytest.fixture(scope="module")
def run() -> Run:
    return run_with_constraints()


def tableau_of(run: Run, *fact: str) -> Tableau:
    tableau = build_tableau(open_run(run), run.graph.triple(*fact))
    assert tableau is not None
    return tableau


FACTS = [
    ("City 0", "language", "Language 0"),  # known
    ("City 0", "language", "Language 1"),  # not known, and wrong
    ("CountryAland", "currency", "CountryAland crown"),
    ("City 3", "located in", "CountryDland"),
    ("City 3", "borders", "City 4"),
]


@pytest.mark.parametrize("fact", FACTS, ids=" ".join)
def test_rows_add_up_to_the_harmony_that_ranks(run: Run, fact: tuple[str, str, str]) -> None:
    """Whatever is merged, and whether the fact is known and hidden or not."""
    tableau, graph = tableau_of(run, *fact), run.graph
    scores = open_run(run).scorer.score_slot(Slot.TAIL, graph.triple(*fact))[0].detach()
    assert len(tableau.constraints) <= COLUMNS
    for candidate in tableau.candidates:
        total = sum(cell.value for cell in candidate.cells)
        assert total == pytest.approx(candidate.harmony, abs=1e-4)
        assert total == pytest.approx(float(scores[graph.entities.index(candidate.name)]), abs=1e-4)
    harmonies = [candidate.harmony for candidate in tableau.candidates]
    assert harmonies == sorted(harmonies, reverse=True)


@pytest.mark.parametrize("fact", FACTS, ids=" ".join)
def test_candidates_are_the_fact_and_the_best_that_are_not_known(run: Run, fact: tuple[str, str, str]) -> None:
    tableau, graph = tableau_of(run, *fact), run.graph
    triple = graph.triple(*fact)
    scores = open_run(run).scorer.score_slot(Slot.TAIL, triple)[0].detach().clone()
    scores[graph.known_answers(Slot.TAIL).of(triple)[1]] = -torch.inf
    scores[triple.tail] = -torch.inf
    best = {graph.entities.name(tail) for tail in scores.topk(4).indices.tolist()}
    assert {candidate.name for candidate in tableau.candidates if not candidate.asked} == best
    assert tableau.asked.name == fact[2]
    (answer,) = harmonium.score(run, [fact])
    assert (tableau.asked.probability, tableau.asked.known) == (pytest.approx(answer.probability), answer.known)


def test_what_decides_is_the_largest_difference_to_the_runner_up(run: Run) -> None:
    for fact in FACTS:
        tableau = tableau_of(run, *fact)
        assert tableau.rival is not None
        winner, loser = sorted((tableau.asked, tableau.rival), key=lambda each: -each.harmony)
        differences = [a.value - b.value for a, b in zip(winner.cells, loser.cells, strict=True)]
        assert tableau.decided is not None
        assert differences[tableau.decided] == max(differences)
        assert tableau.verdict.startswith(f"{winner.name} is ahead of {loser.name} by ")
        assert f"Decided by {tableau.constraints[tableau.decided].name} (" in tableau.verdict


def test_a_known_fact_is_no_evidence_for_itself(run: Run) -> None:
    tableau = tableau_of(run, "City 3", "located in", "CountryDland")
    assert not any(fact == tableau_fact for cell in tableau.asked.cells for fact in cell.facts
                   for tableau_fact in [("City 3", "located in", "CountryDland")])  # fmt: skip
    assert "'located in: CountryDland'" not in " ".join(text for cell in tableau.asked.cells for text in cell.texts)


def test_it_shows_itself_and_is_part_of_the_explanation(run: Run) -> None:
    explanation = harmonium.explain(run, "City 3", "located in", "CountryDland", details=True)
    tableau = explanation.tableau
    assert tableau is not None
    assert tableau.verdict in str(explanation)
    assert "What speaks for CountryDland" in str(explanation)
    assert "<table" in explanation._repr_html_()
    contents = json.loads(json.dumps(explanation.to_json()["tableau"]))
    assert contents["verdict"] == tableau.verdict
    assert [len(candidate["cells"]) for candidate in contents["candidates"]] == [len(tableau.constraints)] * 5
    assert explanation.rank["tail"] == harmonium.score(run, [explanation.triple])[0].rank


def test_a_run_without_constraints_has_none() -> None:
    graph = graph_of(ladder("{i} likes {j}"))
    run = make_run(graph, untrained(graph))
    assert build_tableau(open_run(run), graph.triple("x0", "likes", "y0")) is None
    assert harmonium.explain(run, "x0", "likes", "y0").to_json()["tableau"] is None
