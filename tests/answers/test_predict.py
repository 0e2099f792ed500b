from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import harmonium
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.predict import best_answers, listed_candidates, typed_candidates
from harmonium.answers.prediction import Prediction
from harmonium.answers.query import ask
from harmonium.answers.score import score_triples
from harmonium.config.settings import ModelConfig
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.tables.fact_file import read_triples
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.ranking import rank
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import Run
from small import CONFIGS, graph_of, ladder, make_graph, make_run, random_model, untrained

GIVEN = {
    Slot.HEAD: {"relation": "r1", "tail": "e3"},
    Slot.RELATION: {"head": "e2", "tail": "e3"},
    Slot.TAIL: {"head": "e2", "relation": "r1"},
}


def brute_force(model: GradientGraph, graph: Graph, slot: Slot) -> list[tuple[str, float, str | None]]:
    """Every candidate written into the triple, scored by the definition, sorted; with the first split that has it."""
    ids = {Slot.HEAD: 2, Slot.RELATION: 1, Slot.TAIL: 3}
    names = graph.relations.ids if slot is Slot.RELATION else graph.entities.ids
    facts = {split: {tuple(row) for row in triples.to_rows().tolist()} for split, triples in graph.splits.items()}
    form, answers = model.form.fold(), []
    for candidate, name in enumerate(names):
        head, relation, tail = row = tuple(candidate if s is slot else ids[s] for s in Slot)
        if model.reciprocal and slot is Slot.HEAD:
            head, relation, tail = tail, relation + model.n_relations, head
        vectors = model.entities()[head], model.relations()[relation], model.entities()[tail]
        score = form(model.composition.compose(*vectors)) - form.constant
        answers.append((name, score.item(), next((split for split in SPLITS if row in facts[split]), None)))
    return sorted(answers, key=lambda entry: -entry[1])


def answer(opened: OpenRun, slot: Slot, allowed=None, **options) -> list[Prediction]:
    query = ask(opened.graph, **GIVEN[slot])
    return next(best_answers(opened, slot, query.triple, allowed, **options))


def opened(graph: Graph, model: GradientGraph) -> OpenRun:
    return open_run(make_run(graph, model))


def summary(answers: list[Prediction]) -> list[tuple[str, float, str | None]]:
    return [(a.id, pytest.approx(a.score, rel=1e-4, abs=1e-4), a.known) for a in answers]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("slot", list(Slot))
def test_answers_are_the_best_of_all_candidates(slot: Slot, config: ModelConfig) -> None:
    graph = make_graph(sizes=(120, 60, 60))
    model = untrained(graph, config)
    expected = brute_force(model, graph, slot)
    run = opened(graph, model)
    answers = answer(run, slot, top=99)
    assert summary(answers) == expected
    given = {name: value for name, value in GIVEN[slot].items() if name != slot.value}
    assert all(getattr(a, name) == value for a in answers for name, value in given.items())
    two = answer(run, slot, top=2)
    assert summary(two) == expected[:2]
    assert [a.rank for a in two] == [1, 2]
    new = [entry for entry in expected if entry[2] is None]
    assert summary(answer(run, slot, top=99, new_only=True)) == new
    assert len(new) < len(expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "two of head, relation and tail, or one of them .* 0 given"),
        ({"head": "e1", "relation": "r1", "tail": "e2"}, "3 given; `score` rates whole facts"),
        ({"head": "e99", "relation": "r0"}, "no entity named 'e99' among 12; did you mean"),
        ({"head": "e1", "relation": "r9"}, "no relation named 'r9' among 3"),
    ],
)
def test_a_query_has_one_open_slot_and_known_names(given: dict[str, str], message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        ask(make_graph(), **given)


def test_predict_answers_by_label() -> None:
    bare = make_graph()
    graph = replace(bare, entities=Vocabulary(bare.entities.ids, [f"person {i}" for i in range(12)]))
    run = make_run(graph, untrained(graph))
    by_label = harmonium.predict(run, head="person 2", relation="r1", top=3)
    assert by_label == harmonium.predict(run, head="e2", relation="r1", top=3)
    assert [a.name for a in by_label] == [f"person {a.id[1:]}" for a in by_label]
    assert [a.id for a in by_label] == [name for name, _, _ in brute_force(run.model, graph, Slot.TAIL)[:3]]


def test_one_name_alone_gives_its_missing_facts() -> None:
    graph = make_graph(20, 3, (200, 60, 60))
    run = make_run(graph, untrained(graph))
    known = set(graph.names_of(graph.facts()))
    for column, name in (("head", "e2"), ("tail", "e2"), ("relation", "r1")):
        facts = harmonium.predict(run, **{column: name}, top=30)
        assert {getattr(row, column) for row in facts} == {name}
        assert not known & {(row.head, row.relation, row.tail) for row in facts}
        probabilities = [row.probability for row in facts]
        assert probabilities == sorted(probabilities, reverse=True)
        assert [row.rank for row in facts] == list(range(1, 31))
    assert len({row.relation for row in harmonium.predict(run, head="e2", top=30)}) == 3
    everything = {row.text: row.probability for row in harmonium.complete(run, reasons=False)}
    for row in harmonium.predict(run, tail="e2", top=5):
        assert row.probability == pytest.approx(everything[row.text], rel=1e-4)
    with pytest.raises(HarmoniumError, match="two of head, relation and tail, or one of them"):
        harmonium.predict(run)
    for options in ({"among": ["e3"]}, {"coverage": 0.9}):
        with pytest.raises(HarmoniumError, match="goes with a query of two names"):
            harmonium.predict(run, head="e2", **options)


def test_answers_are_those_that_could_fill_the_slot_by_default() -> None:
    """Countries have a capital among the cities; --no-typed and a list of candidates allow anything."""
    graph = graph_of(ladder("{i} capital {j}, {i} part EU, {j} kind town", 8) + ", z part EU, w kind town")
    run = make_run(graph, untrained(graph))
    towns = {f"y{i}" for i in range(8)} | {"w"}
    assert {answer.id for answer in harmonium.predict(run, "z", "capital", top=99)} == towns
    everyone = {answer.id for answer in harmonium.predict(run, "z", "capital", top=99, typed=False)}
    assert everyone == set(graph.entities.ids)
    assert [answer.id for answer in harmonium.predict(run, "z", "capital", among=["x1"])] == ["x1"]
    assert len(harmonium.predict(run, "x1", None, "y1", top=99)) == graph.n_relations


# Many queries, filters, probabilities --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph(20, 3, (200, 60, 60))


@pytest.fixture(scope="module")
def model(graph: Graph) -> GradientGraph:
    return untrained(graph)


def assert_same(one: list[list[Prediction]], other: list[list[Prediction]]) -> None:
    for first, second in zip(chain(*one), chain(*other), strict=True):
        assert (first.rank, first.id, first.known) == (second.rank, second.id, second.known)
        assert first.score == pytest.approx(second.score, abs=1e-5)
        assert first.probability == pytest.approx(second.probability, rel=1e-4)


def test_only_allowed_and_typed_candidates_answer(model: GradientGraph, graph: Graph) -> None:
    """Filters leave scores and probabilities as they are."""
    graph = replace(
        graph, **{split: facts[(facts.tail < 15) & (facts.head != facts.tail)] for split, facts in graph.splits.items()}
    )
    run = opened(graph, model)
    everyone, types = answer(run, Slot.TAIL, top=99), run.types
    head, relation = (int(ask(graph, **GIVEN[Slot.TAIL]).triple[s]) for s in (Slot.HEAD, Slot.RELATION))
    possible = {f"e{index}" for index in types.of_slot(Slot.TAIL, relation).entities.tolist()}
    possible -= set() if types.has_loops[relation] else {f"e{head}"}
    assert len(possible) < len(everyone) == 20

    def numbers(answers: list[Prediction]) -> dict[str, tuple]:
        return {a.id: (a.score, a.probability, a.known) for a in answers}

    typed = answer(run, Slot.TAIL, typed_candidates(run, Slot.TAIL, one_answer=False), top=99)
    assert numbers(typed) == {id: value for id, value in numbers(everyone).items() if id in possible}
    assert [a.rank for a in typed] == list(range(1, len(typed) + 1))
    few = answer(run, Slot.TAIL, listed_candidates(graph, Slot.TAIL, ["e3", "e17", "e4"]), top=99)
    assert numbers(few) == {id: value for id, value in numbers(everyone).items() if id in ("e3", "e4", "e17")}


@pytest.mark.parametrize("slot", list(Slot))
def test_an_answer_has_the_probability_of_its_fact(model: GradientGraph, graph: Graph, slot: Slot) -> None:
    run, query = opened(graph, model), graph.test[:1]
    answers = next(best_answers(run, slot, query, top=99))
    triples = Triples.cat([graph.triple(a.head, a.relation, a.tail) for a in answers])
    expected = run.probabilities(triples).tolist()
    assert [a.probability for a in answers] == pytest.approx(expected, rel=1e-5)
    assert len({a.known for a in answers}) > 1
    assert {a.probability for a in answer(run, slot, probability=False)} == {None}


def test_a_fact_has_one_probability_however_it_is_asked_for(model: GradientGraph, graph: Graph) -> None:
    run = opened(graph, model)
    missing = harmonium.complete(run.run, top=40, reasons=False)
    assert len(missing) == 40
    for fact in missing[::8]:
        asked = [
            harmonium.predict(run, fact.head, fact.relation, top=99),
            harmonium.predict(run, None, fact.relation, fact.tail, top=99),
            harmonium.predict(run, fact.head, None, fact.tail, top=99),
            harmonium.predict(run, fact.head, top=400),
            harmonium.score(run, [(fact.head, fact.relation, fact.tail)]),
        ]
        for answers in asked:
            same = [a for a in answers if (a.head, a.relation, a.tail) == (fact.head, fact.relation, fact.tail)]
            assert [a.probability for a in same] == pytest.approx([fact.probability])


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_facts_are_scored_with_their_ranks(model: GradientGraph, graph: Graph, slot: Slot) -> None:
    run, triples = opened(graph, model), Triples.cat([graph.test[:7], Triples.from_rows([[0, 0, 0]])])
    scored = score_triples(run, triples, slot)
    ranks = rank(model, triples, slot, graph.known_answers(slot)).values().tolist()
    assert [fact.rank for fact in scored] == ranks
    probabilities = run.probabilities(triples).tolist()
    assert [fact.probability for fact in scored] == pytest.approx(probabilities)
    scores = model.score(triples) - model.form.fold().constant
    assert [fact.score for fact in scored] == pytest.approx(scores.tolist(), abs=1e-4)
    assert [fact.known for fact in scored] == ["test"] * 7 + [None]
    assert [fact.names for fact in scored] == graph.names_of(triples)
    names = graph.names_of(triples)
    assert harmonium.score(run, names, side=slot.value) == scored
    with pytest.raises(HarmoniumError, match="side is head or tail, not 'both'"):
        harmonium.score(run, names, side="both")


def test_a_fact_is_rated_as_the_answer_that_predict_gives(model: GradientGraph, graph: Graph) -> None:
    run = make_run(graph, model)
    for each in run.predict("e1", "r0", top=20, typed=False):
        (scored,) = run.score([(each.head, each.relation, each.tail)])
        assert (scored.score, scored.known, scored.text) == (each.score, each.known, each.text)
        assert scored.probability == pytest.approx(each.probability, rel=1e-4)


def test_a_list_of_facts_is_scored_as_one_by_one_and_as_from_a_file(model, graph: Graph, tmp_path) -> None:
    run, names = make_run(graph, model), graph.names_of(graph.test)
    one_by_one = [harmonium.score(run, [fact])[0] for fact in names]
    together = harmonium.score(run, names)
    assert_same([one_by_one], [together])
    (tmp_path / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in names))
    assert harmonium.score(run, tmp_path / "facts.tsv") == together
    assert [len(batch) for batch in read_triples(names * 40, graph)] == [2048, 352]


# Lists and tables ----------------------------------------------------------------------------------------------------


def test_one_name_two_names_lists_and_tables_give_the_same_kind_of_answers(model: GradientGraph, graph: Graph) -> None:
    run = make_run(graph, model)
    expected = [*run.predict("e1", "r0", top=3), *run.predict("e2", "r0", top=3)]
    frame = pd.DataFrame({"head": ["e1", "e2"], "relation": "r0"}, index=["one", "two"])
    for many in (
        run.predict(["e1", "e2"], "r0", top=3),
        run.predict(head=pd.Series(["e1", "e2"]), relation=["r0", "r0"], top=3),
        run.predict(frame, top=3),
        run.predict([("e1", "r0", None), ("e2", "r0", None)], top=3),
    ):
        assert_same([many], [expected])
    assert run.predict(frame, top=3).to_pandas().index.tolist() == ["one"] * 3 + ["two"] * 3
    both = run.predict(["e1", "e2"], top=3)
    assert both == [*run.predict("e1", top=3), *run.predict("e2", top=3)]
    kinds = {
        type(each)
        for answers in (both, expected, run.complete(top=2), run.score(expected_facts(expected)))
        for each in answers
    }
    assert kinds == {Prediction}
    with pytest.raises(HarmoniumError, match="lists of names have the same length; given: 2, 3, 1"):
        run.predict(["e1", "e2"], ["r0", "r1", "r2"])


def expected_facts(predictions: list[Prediction]) -> list[tuple[str, str, str]]:
    return [(each.head, each.relation, each.tail) for each in predictions]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.predict("e1", "r0", topp=5), "unknown keyword 'topp'; did you mean 'top'"),
        (lambda run: run.predict("e1", "r0", columns="a,b,c"), "unknown keyword 'columns'"),
        (lambda run: run.complete(relations="r0"), "unknown keyword 'relations'; did you mean 'relation'"),
        (lambda run: run.complete(min_probability=0.5), "unknown keyword 'min_probability'"),
        (lambda run: run.complete(preset="fast"), "is a run, which is not trained again; drop preset"),
        (lambda run: run.score([("e1", "r0", "e2")], probability=False), "unknown keyword 'probability'"),
        (lambda run: run.classify(sed=3), "unknown keyword 'sed'; did you mean 'seed'"),
    ],
)
def test_unknown_keywords_are_errors_that_name_the_nearest(call, message: str) -> None:
    graph = make_graph()
    with pytest.raises(HarmoniumError, match=message):
        call(make_run(graph, untrained(graph)))


# Files ----------------------------------------------------------------------------------------------------------------

QUERIES = [("e1", "r0", "?"), ("?", "r1", "e2"), ("e3", "r0", ""), ("e3", "?", "e4")]


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "q.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in QUERIES))
    return path


@pytest.fixture(scope="module")
def run(graph: Graph) -> Run:
    graph = replace(graph, entities=Vocabulary(graph.entities.ids, [f"Person, {i}" for i in range(20)]))
    return make_run(graph, random_model(graph, "distmult", 6).float())


def test_candidates_from_a_file_or_a_list(run: Run, tmp_path: Path) -> None:
    (tmp_path / "among.txt").write_text("e3\n\nPerson, 5\n", encoding="utf-8")
    for among in (tmp_path / "among.txt", ["e3", "e5"]):
        answers = harmonium.predict(run, "e1", "r0", among=among, probability=False)
        assert sorted(answer.id for answer in answers) == ["e3", "e5"]
        assert {answer.probability for answer in answers} == {None}
    (tmp_path / "bad.txt").write_text("e3\ne99\n")
    for name, message in (("gone", "--among: .*gone: cannot be read"), ("bad.txt", "bad.txt:2: no entity named 'e99'")):
        with pytest.raises(HarmoniumError, match=message):
            harmonium.predict(run, "e1", "r0", among=tmp_path / name)


def test_an_entity_is_related_to_itself_only_where_the_relation_has_such_facts() -> None:
    facts = ", ".join(f"a{i} near a{(i + 1) % 6}, a{i} like a{(i + 2) % 6}" for i in range(6))
    graph = graph_of(f"{facts}, a0 like a0")
    run = opened(graph, untrained(graph))
    for relation, allowed in (("near", False), ("like", True)):
        for slot, given in ((Slot.TAIL, {"head": "a3"}), (Slot.HEAD, {"tail": "a3"})):
            query = ask(graph, relation=relation, **given)
            (answers,) = best_answers(run, slot, query.triple, typed_candidates(run, slot, one_answer=False), top=20)
            assert ("a3" in {answer.id for answer in answers}) == allowed


COUNTRIES = ladder("{i} capital {j}, {i} in Europe, {i} borders y0", 25) + ", z borders y0, w borders y0, w in Asia"


@pytest.mark.parametrize("new_only", [False, True])
def test_where_a_relation_has_one_answer_and_it_is_known_there_is_no_other(new_only: bool) -> None:
    """As in the missing facts of an entity; a query without its answer has candidates, and so has any if asked for."""
    run = make_run(graph := graph_of(COUNTRIES), random_model(graph).float())

    def answers(**query) -> list[str]:
        return [a.id for a in harmonium.predict(run, **query, top=99, new_only=new_only, probability=False)]

    known = [] if new_only else ["Europe"]
    assert answers(head="x3", relation="in") == known
    assert answers(relation="capital", tail="y3") == ([] if new_only else ["x3"])
    assert {row.tail for row in harmonium.predict(run, head="x3") if row.relation == "in"} == set()
    assert "Asia" in answers(head="x3", relation="in", typed=False)
    assert {"Europe", "Asia"} <= set(answers(head="z", relation="in"))
    assert len(answers(head="x3", relation="borders")) + new_only >= 1


@pytest.mark.parametrize("wrong", [-1, 2.5, "5", None, math.nan])
def test_a_wrong_number_of_answers_or_queries_is_an_error_that_names_it(wrong: Any) -> None:
    graph = make_graph()
    run = make_run(graph, random_model(graph, "distmult", 4))
    with pytest.raises(HarmoniumError, match="top is a whole number from 0, not"):
        run.predict(head="e1", relation="r0", top=wrong)
    if wrong is not None:  # of `complete`: the usual length
        with pytest.raises(HarmoniumError, match="top is a whole number from 0, not"):
            run.complete(top=wrong)
        with pytest.raises(HarmoniumError, match="chunk is a whole number from 1, not"):
            run.evaluate(chunk=wrong)
