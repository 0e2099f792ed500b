"""An update changes walks, names and values at once: answers about some added facts profit from the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import harmonium
from harmonium.run.run import Run
from small import run_with_constraints

LANGUAGES = [f"Language {number}" for number in range(4)]


@pytest.fixture(scope="module")
def run() -> Run:
    """Its vectors are zero, before and after an update: only constraints answer."""
    learned = run_with_constraints()
    assert learned.grammar is not None
    weights = learned.grammar.weights.by_slot.clone()
    weights[..., 0] = 0
    return replace(learned, grammar=replace(learned.grammar, weights=replace(learned.grammar.weights, by_slot=weights)))


def best(run: Run, head: str, relation: str) -> str:
    return harmonium.predict(run, head=head, relation=relation, top=1)[0].name


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_path_over_facts_of_one_update_answers(run: Run, language: str) -> None:
    """Neither the town nor the country is in the graph that rules were learned from."""
    updated = harmonium.update(run, [("Newtown", "located in", "Newland"), ("Newland", "language", language)])
    assert best(updated, "Newtown", "language") == language
    (fact,) = harmonium.score(updated, [("Newtown", "language", language)])
    assert (fact.rank, fact.known) == (1, None)
    reason = harmonium.explain(updated, "Newtown", "language", language).tableau
    assert reason is not None and "Newland" in reason.verdict


def test_a_removed_fact_is_walked_no_more(run: Run) -> None:
    added = harmonium.update(run, [("Newtown", "located in", "Newland"), ("Newland", "language", "Language 3")])
    (before,) = harmonium.score(added, [("Newtown", "language", "Language 3")])
    removed = harmonium.update(added, remove=[("Newland", "language", "Language 3")])
    (after,) = harmonium.score(removed, [("Newtown", "language", "Language 3")])
    assert after.score < before.score - 1
    undone = harmonium.update(removed, undo=True)
    assert harmonium.score(undone, [("Newtown", "language", "Language 3")])[0].score == before.score


def test_names_of_new_entities_are_compared_at_once(run: Run) -> None:
    facts = [("Newland", "borders", "CountryAland"), ("Oldland", "borders", "CountryBland")]
    money = [("CountryAland", "currency", "Newland crown"), ("CountryBland", "currency", "Oldland crown")]
    updated = harmonium.update(run, [*facts, *money])
    assert best(updated, "Newland", "currency") == "Newland crown"
    assert best(updated, "Oldland", "currency") == "Oldland crown"


def test_weights_and_rules_are_those_from_before(run: Run) -> None:
    updated = harmonium.update(run, [("Newtown", "twinned with", "City 1")])
    assert run.grammar is not None and updated.grammar is not None
    before, after = run.grammar.weights.by_slot, updated.grammar.weights.by_slot
    assert torch.equal(after[:, : before.shape[1]], before)
    assert len(updated.grammar.rules) == len(run.grammar.rules)
