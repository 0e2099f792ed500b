"""The candidate "no (further) answer"."""

from __future__ import annotations

import numpy as np
import pytest

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.further_answers import FurtherAnswers
from small import countries

PEOPLE, TOWNS = 40, 20  # people 0..39 have one birthplace each, but for the last; towns 40..59 have none; two classes


@pytest.fixture(scope="module")
def further() -> FurtherAnswers:
    """born_in (0), of all people but the last; is_a (1) person (60) or town (61)."""
    rows = [[p, 0, PEOPLE + p % TOWNS] for p in range(PEOPLE - 1)]
    rows += [[p, 1, 60] for p in range(PEOPLE)] + [[PEOPLE + t, 1, 61] for t in range(TOWNS)]
    facts = Triples.from_rows(rows)
    names = Vocabulary([f"e{number}" for number in range(62)])
    graph = Graph(names, Vocabulary(["born_in", "is_a"]), facts, facts[:0], facts[:0])
    return FurtherAnswers.of(graph)


def test_an_entity_lacks_what_nearly_all_like_it_have_once(further: FurtherAnswers) -> None:
    lacking, having, town = further.log_odds(Slot.TAIL, 0, np.array([PEOPLE - 1, 0, PEOPLE]))
    assert lacking > having + 2
    assert lacking > town + 2
    hidden = further.log_odds(Slot.TAIL, 0, np.array([0]), n_hidden=1)
    assert hidden[0] == pytest.approx(lacking, abs=0.2)  # as if it were not known


def test_probability_of_no_answer_falls_with_missing_facts(further: FurtherAnswers) -> None:
    given = np.array([PEOPLE - 1])
    few, many = (further.no_answer(Slot.TAIL, 0, given, missing)[0] for missing in (0.01, 1.0))
    assert 0 < many < few < 1
    assert further.no_answer(Slot.TAIL, 0, given, 0.0)[0] == 1


def test_expected_numbers_add_up_to_the_facts() -> None:
    graph = countries()
    further = FurtherAnswers.of(graph, ("train",))
    everyone = np.arange(graph.n_entities)
    for relation in range(graph.n_relations):
        count = int((graph.train.relation == relation).sum())
        for slot in (Slot.HEAD, Slot.TAIL):
            log_odds = further.log_odds(slot, relation, everyone)
            assert np.exp(log_odds).sum() == pytest.approx(count, rel=1e-6)
            assert further.log_odds(slot, relation, everyone[7:8])[0] == pytest.approx(log_odds[7])


def test_a_relation_without_facts_has_finite_odds() -> None:
    facts = Triples.from_rows([[0, 0, 1], [1, 0, 2]])
    graph = Graph(Vocabulary(list("abc")), Vocabulary(["r", "unused"]), facts, facts[:0], facts[:0])
    assert np.isfinite(FurtherAnswers.of(graph).log_odds(Slot.TAIL, 1, np.arange(3))).all()
