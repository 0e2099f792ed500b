from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import harmonium
from harmonium.answers.calibration.fact_probability import FactCalibration, uncalibrated_log_odds
from harmonium.answers.candidate_facts import CandidateFacts, CandidateSearch, one_per_slot
from harmonium.answers.complete import MissingFacts, find_missing
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.evaluation.baselines import Frequency
from harmonium.runtime.distributed import World
from small import family, graph_of, ladder, make_graph, make_run, random_model, random_table, untrained

WEIGHTS = [1.0, 0.7, 0.5, 0.2, 0.3, 0.1, 0.2, 0.1, *[0.0] * 9, -1.0]
CALIBRATION = FactCalibration(
    [0.0] * 17, [1.0] * 17, WEIGHTS, {1: [0.5] * 8 + [0.0] * 9 + [0.5]}, 0.0, {1: 1.0}, {1: 0.3}, 0.7, {}, 99
)
EVERYTHING = 10_000


def rows(found: MissingFacts) -> list[tuple]:
    return [tuple(row) for row in found.triples.to_rows().tolist()]


@pytest.mark.parametrize("calibration", [CALIBRATION, None], ids=["calibrated", "bare"])
@pytest.mark.parametrize("options", [{}, {"typed": False}, {"only_empty": True}], ids=str)
def test_the_best_candidates_of_all_relations(options: dict, calibration: FactCalibration | None) -> None:
    """With few different scores many facts are equal: they are ordered by relation, head and tail."""
    graph = make_graph(sizes=(20, 4, 5))
    search = CandidateSearch.prepare(random_table(graph, 2, seed=0), graph, **options)
    for relations in ([1], [2, 0, 2], None):
        facts = CandidateFacts.cat([search.of_relation(r, EVERYTHING) for r in sorted(set(relations or range(3)))])
        odds = calibration.log_odds(facts) if calibration else uncalibrated_log_odds(facts)
        triples = [tuple(row) for row in facts.triples.to_rows().tolist()]
        expected = sorted(
            zip(odds.tolist(), triples, facts.scores.tolist(), strict=True), key=lambda e: (-e[0], e[1][1], e[1])
        )
        assert len({entry[0] for entry in expected}) < len(expected)
        for top in (1, 7, EVERYTHING):
            found = find_missing(search, relations, top, calibration)
            assert rows(found) == [triple for _, triple, _ in expected[:top]]
            assert found.scores.tolist() == [score for _, _, score in expected[:top]]
            if calibration is None:
                assert found.probabilities is None
            else:
                log_odds = [entry[0] for entry in expected[:top]]
                assert found.probabilities.logit().tolist() == pytest.approx(log_odds, abs=1e-9)


def test_each_process_searches_some_relations() -> None:
    graph = make_graph(sizes=(20, 4, 5))
    search = CandidateSearch.prepare(random_table(graph, 2, seed=0), graph)
    sent: list = []

    class Alone(World):
        def all_gather(self, value):
            sent.append(value)
            return [value]

    parts = [find_missing(search, None, 9, CALIBRATION, world=Alone(rank, 4)) for rank in range(4)]
    assert [{r for _, r, _ in rows(part)} for part in parts] == [{0}, {1}, {2}, set()]

    class Together(World):
        def all_gather(self, value):
            return sent

    assert rows(find_missing(search, None, 9, CALIBRATION, world=Together(0, 4))) == rows(
        find_missing(search, None, 9, CALIBRATION)
    )


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_best_candidates_of_an_entity(slot: Slot) -> None:
    graph = make_graph(sizes=(20, 4, 5))
    search = CandidateSearch.prepare(random_table(graph, 9, seed=0), graph)
    column = 0 if slot is Slot.HEAD else 2
    everything = [row for row in rows(find_missing(search, None, EVERYTHING, CALIBRATION)) if row[column] == 3]
    assert everything
    assert rows(find_missing(search, None, EVERYTHING, CALIBRATION, (slot, 3))) == everything
    assert rows(find_missing(search, None, 2, CALIBRATION, (slot, 3))) == everything[:2]


def test_a_functional_relation_is_offered_one_answer_for_each_empty_slot() -> None:
    """Countries without a capital and cities without a country; those that have one are not asked again."""
    facts = ladder("{i} capital {j}, {i} part EU, {j} kind town", 25)
    graph = graph_of(facts + ", u part EU, v part EU, w kind town, z kind town, q kind town")
    search = CandidateSearch.prepare(random_table(graph, 9, seed=0), graph)
    found = find_missing(search, [0], EVERYTHING, CALIBRATION)
    names = graph.names_of(found.triples)
    assert len(names) == len({head for head, _, _ in names}) == len({tail for _, _, tail in names})
    assert {head for head, _, _ in names} <= {"u", "v"} and {tail for _, _, tail in names} <= {"w", "z", "q"}
    facts = search.of_relation(0, EVERYTHING)
    odds = CALIBRATION.log_odds(facts)
    assert names[0] == graph.names_of(facts.triples[odds.argmax()[None]])[0]
    assert len(names) == one_per_slot(facts, odds, search.traits).sum()


def test_a_fact_of_a_symmetric_relation_appears_once_with_one_probability() -> None:
    graph = graph_of(ladder("{i} borders {j}, {j} borders {i}, {i} borders c, c borders {i}", 6))
    search = CandidateSearch.prepare(random_table(graph, 9, seed=0), graph)
    found = rows(find_missing(search, None, EVERYTHING, CALIBRATION))
    assert found
    assert len({frozenset((head, tail)) for head, _, tail in found}) == len(found)
    probabilities = []
    for slot in (Slot.HEAD, Slot.TAIL):
        part = find_missing(search, None, EVERYTHING, CALIBRATION, (slot, 0))
        probabilities.append(dict(zip(map(frozenset, rows(part)), part.probabilities.tolist(), strict=True)))
    assert probabilities[0] and probabilities[0] == pytest.approx(probabilities[1])


def test_any_scorer_can_complete() -> None:
    graph = make_graph(20, 3, (200, 60, 60))
    assert len(find_missing(CandidateSearch.prepare(Frequency(graph), graph), None, 50)) == 50


def test_complete_gives_rows_by_name_and_writes_them(tmp_path: Path) -> None:
    graph = make_graph(20, 3, (200, 60, 60))
    run = make_run(graph, random_model(graph, "distmult", 6).float())
    facts = harmonium.complete(run, "r1", top=4, out=tmp_path / "missing.tsv", reasons=False)
    known = set(graph.names_of(graph.facts()))
    assert [row.rank for row in facts] == [1, 2, 3, 4]
    for row in facts:
        fact = row.head, row.relation, row.tail
        assert fact not in known
        assert row.text == ", ".join(fact)
        assert row.relation == "r1"
    calibration = open_run(run).fact_calibration()
    search = CandidateSearch.prepare(run.model, graph)
    expected = find_missing(search, [1], 4, calibration)
    assert [row.probability for row in facts] == expected.probabilities.tolist()
    lines = (tmp_path / "missing.tsv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[1].split("\t")[:3] == [facts[0].head, "r1", facts[0].tail]


def test_empty_slots_are_those_without_a_known_tail() -> None:
    """An entity whose only value was removed is asked again."""
    whole = family()
    graph = replace(whole, train=whole.train[5:])
    run = make_run(graph, untrained(graph))
    removed = {(head, relation) for head, relation, _ in whole.names_of(whole.train[:5])}
    facts = harmonium.complete(run, only_empty=True)
    assert {(row.head, row.relation) for row in facts} == removed
    assert all(harmonium.complete(run, only_empty=True, typed=typed) for typed in (True, False))


def test_too_few_validation_facts_give_no_probability() -> None:
    graph = make_graph(20, 3, (200, 5, 60))
    facts = harmonium.complete(make_run(graph, untrained(graph)), top=5)
    assert [row.probability for row in facts] == [None] * 5


def test_an_unknown_relation_is_an_error(graph: Graph) -> None:
    with pytest.raises(HarmoniumError, match="no relation named 'r9'"):
        harmonium.complete(make_run(graph, untrained(graph)), ["r1", "r9"])


def test_numbers_and_dates_are_listed_only_for_relations_that_are_named() -> None:
    metals = [f"metal {i}" for i in range(12)]
    facts = [(metal, "found in", f"place {i % 3}") for i, metal in enumerate(metals)]
    facts += [(metal, "density", f"{i % 4}.5") for i, metal in enumerate(metals[:8])]
    graph = harmonium.load(facts, valid=0, test=0)
    search = CandidateSearch.prepare(random_table(graph, 2, seed=0), graph)
    density = graph.relations.index("density")
    assert density not in find_missing(search, top=EVERYTHING).triples.relation
    assert len(find_missing(search, [density], EVERYTHING)) > 0
    metal = graph.entities.index(metals[9])
    assert density not in find_missing(search, top=EVERYTHING, given=(Slot.HEAD, metal)).triples.relation


def test_a_list_of_a_given_precision_is_as_long_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_graph(30, 3, (300, 60, 60))
    graph, table = replace(whole, test=whole.test[:0]), random_table(whole, 3, seed=0)
    for slot, scores in ((Slot.HEAD, table.heads), (Slot.TAIL, table.tails)):  # all facts score above others
        facts, given = whole.facts(), Slot.TAIL if slot is Slot.HEAD else Slot.HEAD
        scores[facts.relation, facts[given], facts[slot]] += 5
    monkeypatch.setattr(OpenRun, "scorer", table)
    monkeypatch.setattr(OpenRun, "held_out_scorer", table)
    run = make_run(graph, untrained(graph))
    everything = [fact.probability for fact in run.complete(top=EVERYTHING, reasons=False)]
    assert sum(everything[:40]) / 40 > 0.9 > 0.5 > sum(everything) / len(everything)
    for precision in (0.9, 0.6):
        found = run.complete(precision=precision, reasons=False)
        probabilities = [fact.probability for fact in found]
        assert probabilities == everything[: len(found)]
        assert sum(probabilities) >= precision * len(found)
        assert sum(everything[: len(found) + 1]) < precision * (len(found) + 1)
        assert f"of {len(found):,} are expected to be true" in found.notes[0]
    assert len(run.complete(precision=0.6, top=3)) == 3


def test_a_precision_is_a_share_and_needs_probabilities() -> None:
    run = make_run(graph := make_graph(), untrained(graph))
    with pytest.raises(HarmoniumError, match="between 0 and 1"):
        run.complete(precision=90)
    with pytest.raises(HarmoniumError, match="too few validation facts"):
        run.complete(precision=0.9)
