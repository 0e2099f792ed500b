"""Known facts that are probably wrong: errors that were put into a small graph of countries are found and explained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.answers.audit import audit
from harmonium.answers.audit.artificial_errors import KINDS, draw_errors
from harmonium.answers.audit.audit import find_suspects, kept_suspects
from harmonium.answers.audit.error_model import fit_error_model
from harmonium.answers.audit.fold_vectors import deal_folds
from harmonium.answers.audit.proposals import NamesAlike
from harmonium.answers.audit.suspect import in_words
from harmonium.answers.open_run import open_run
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.run.run import History, Run
from harmonium.training.constraints import learn_constraints
from small import FITTED, countries, fitted, graph_of

WRONG = {  # by the fact that was changed
    ("City 7", "located in", "CountryHland"): ("City 7", "located in", "CountryCland"),
    ("City 20", "located in", "CountryIland"): ("City 20", "located in", "City 3"),
    ("CountryDland", "currency", "CountryDland crown"): ("CountryDland crown", "currency", "CountryDland"),
    ("City 33", "language", "Language 1"): ("City 33", "language", "CountryAland crown"),
    ("CountryEland", "borders", "CountryFland"): ("CountryEland", "borders", "Language 2"),
    ("City 50", "language", "Language 2"): ("City 50", "language", "CountryEland"),
}


def trained(graph: Graph, folder: Path) -> Run:
    config = replace(FITTED, train=replace(FITTED.train, epochs=20))
    vectors = fitted(graph, graph.train)
    Run(config, graph, vectors, History(), grammar=learn_constraints(vectors, graph)).save(folder)
    return Run.load(folder)


def with_wrong_facts(graph: Graph) -> Graph:
    changes = {tuple(graph.triple(*fact).to_rows()[0].tolist()): graph.triple(*wrong) for fact, wrong in WRONG.items()}
    splits = {}
    for name, facts in graph.splits.items():
        rows = [changes[tuple(row)].to_rows()[0].tolist() if tuple(row) in changes else row
                for row in facts.to_rows().tolist()]  # fmt: skip
        splits[name] = Triples.from_rows(rows)
    return replace(graph, **splits)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(with_wrong_facts(countries()), tmp_path_factory.mktemp("audit") / "wrong")


def test_wrong_facts_come_first_and_the_interval_has_their_number(run) -> None:
    found = run.audit(top=20)
    first = {suspect.names for suspect in found.suspects[: len(WRONG)]}
    assert len(first & set(WRONG.values())) >= len(WRONG) - 1
    probabilities = [suspect.probability for suspect in found.suspects]
    assert probabilities == sorted(probabilities, reverse=True) and probabilities[0] > 20 * probabilities[-1]
    low, high = found.interval
    assert low <= len(WRONG) <= high and low <= found.wrong <= high
    assert f"of {found.n_facts} facts are wrong" in found.summary()


def test_what_was_meant_and_why(run) -> None:
    meant = {wrong: right for right, wrong in WRONG.items()}
    by_fact = {suspect.names: suspect for suspect in run.audit(top=20).suspects}
    proposed = {fact: suspect.meant for fact, suspect in by_fact.items() if suspect.meant and fact in meant}
    assert len(proposed) >= 2 and all(proposed[fact] == meant[fact] for fact in proposed)
    assert all(by_fact[fact].status == "contradicted" and by_fact[fact].reason for fact in proposed)


def test_a_graph_without_errors_yields_few(tmp_path) -> None:
    clean = trained(countries(), tmp_path / "clean").audit()
    assert clean.n_likely <= 2 and clean.wrong < 4


def test_an_audit_is_kept_in_the_run_folder_and_a_fresh_run_uses_it(run) -> None:
    found = find_suspects(open_run(run))
    assert kept_suspects(open_run(Run.load(run.path))) == found
    assert kept_suspects(open_run(replace(run, path=None))) is None


def test_of_a_large_graph_the_most_suspect_facts_are_judged_with_all_evidence(run, monkeypatch) -> None:
    monkeypatch.setattr(audit, "JUDGED", 120)
    opened, facts = open_run(run), run.graph.facts()
    folds = deal_folds(len(facts))
    judged = audit.judge(audit.call_witness(opened, facts, folds), facts, folds)
    assert len(judged.rows) == len(judged.rows.unique()) == 120 < len(facts)
    order = judged.model.log_odds(judged.heard.features).argsort(descending=True)
    first = set(run.graph.names_of(facts[judged.rows[order[: 2 * len(WRONG)]]]))
    assert len(first & set(WRONG.values())) >= len(WRONG) - 2


def test_confirmed_facts_are_not_listed(run) -> None:
    opened = open_run(run)
    first = in_words(opened, find_suspects(opened), 5).suspects[0]
    fact = first.head, first.relation, first.tail
    assert fact not in {
        (s.head, s.relation, s.tail) for s in in_words(opened, find_suspects(opened), 5, [fact]).suspects
    }


def test_rows_of_a_file_are_those_of_the_result(run, tmp_path) -> None:
    listed = harmonium.audit(run, top=3, out=tmp_path / "suspects.jsonl")
    assert len((tmp_path / "suspects.jsonl").read_text().splitlines()) == len(listed) == 3
    assert list(listed.records()[0])[:6] == ["head", "relation", "tail", "probability", "status", "reason"]


def test_a_graph_with_too_few_facts_is_refused(tmp_path) -> None:
    graph = graph_of("a likes b, b likes c, c likes d")
    with pytest.raises(harmonium.HarmoniumError, match="an audit needs"):
        Run(FITTED, graph, fitted(graph, graph.train), History()).audit()
    with pytest.raises(harmonium.HarmoniumError, match="tops"):
        harmonium.audit(graph, tops=3)


@pytest.mark.parametrize("kind", KINDS)
def test_artificial_errors_are_different_unknown_and_of_their_kind(kind) -> None:
    graph = countries()
    facts = graph.facts()
    drawn = draw_errors(kind, facts, graph.n_entities, graph.n_relations, 40, torch.Generator().manual_seed(0))
    errors = drawn.facts
    assert graph.known_answers(Slot.TAIL).contain(drawn.originals).all()
    assert len(errors) == len(errors.to_rows().unique(dim=0)) == 40
    assert not graph.known_answers(Slot.TAIL).contain(errors).any()
    if kind == "exchanged":
        assert graph.known_answers(Slot.TAIL).contain(Triples(errors.tail, errors.relation, errors.head)).all()
    if kind == "same role":
        pairs = {tuple(pair) for pair in facts.to_rows()[:, 1:].tolist()}
        assert all(tuple(pair) in pairs for pair in errors.to_rows()[:, 1:].tolist())


def test_the_share_of_wrong_facts_is_recovered_where_errors_look_different() -> None:
    generator = torch.Generator().manual_seed(0)
    draw = lambda n, shift: torch.randn(n, 2, generator=generator, dtype=torch.float64) + shift  # noqa: E731
    errors, kind = (
        torch.cat([draw(1000, -3.0), draw(1000, torch.tensor([-4.0, 3.0]))]),
        torch.arange(2).repeat_interleave(1000),
    )
    noisy = fit_error_model(torch.cat([draw(3000, 1.0), draw(200, -3.0)]), errors, kind)
    low, high = noisy.interval
    assert low < 200 / 3200 < high and high < 0.1
    assert fit_error_model(draw(3200, 1.0), errors, kind).share < 0.005


def test_folds_are_of_one_size() -> None:
    assert deal_folds(10, 4).bincount().tolist() == [3, 3, 2, 2]


def test_names_one_letter_apart_but_for_digits() -> None:
    alike = NamesAlike.of(Vocabulary(["Osmium", "Osmiun", "Osmiums", "Iron-56", "Iron-57", "Os"]))
    assert [alike.to(number) for number in range(6)] == [[1, 2], [0], [0], [], [], []]
