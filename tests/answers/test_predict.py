from __future__ import annotations

import csv
import gzip
import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import harmonium
from harmonium.answers import predict
from harmonium.answers.calibration.probability import fit_calibration
from harmonium.answers.predict import answer_all, batches_of_queries, predict_file
from harmonium.answers.query import Answer, ask, read_queries
from harmonium.answers.score import score_triples
from harmonium.answers.send.result_file import write_rows
from harmonium.config.settings import ModelConfig
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.tables.fact_file import read_triples
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.candidates import MAX_SCORES
from harmonium.evaluation.ranking import rank
from harmonium.model import gradient_graph
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


def answer(model: GradientGraph, graph: Graph, slot: Slot, **options) -> list[Answer]:
    query = ask(graph, **GIVEN[slot])
    return next(answer_all(model, graph, slot, query.triple, **options))


def summary(answers: list[Answer]) -> list[tuple[str, float, str | None]]:
    return [(a.id, pytest.approx(a.score, rel=1e-4, abs=1e-4), a.known) for a in answers]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("slot", list(Slot))
def test_answers_are_the_best_of_all_candidates(slot: Slot, config: ModelConfig) -> None:
    graph = make_graph(sizes=(120, 60, 60))
    model = untrained(graph, config)
    expected = brute_force(model, graph, slot)
    answers = answer(model, graph, slot, top=99)
    assert summary(answers) == expected
    assert [a.id for a in answers] == [("r" if slot is Slot.RELATION else "e") + str(a.index) for a in answers]
    two = answer(model, graph, slot, top=2)
    assert summary(two) == expected[:2]
    assert [a.rank for a in two] == [1, 2]
    new = [entry for entry in expected if entry[2] is None]
    assert summary(answer(model, graph, slot, top=99, new_only=True)) == new
    assert len(new) < len(expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly two .* 0 given"),
        ({"head": "e1"}, "exactly two .* 1 given"),
        ({"head": "e1", "relation": "r1", "tail": "e2"}, "exactly two .* 3 given"),
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
    assert [a.name for a in by_label] == [f"person {a.index}" for a in by_label]
    assert [a.id for a in by_label] == [name for name, _, _ in brute_force(run.model, graph, Slot.TAIL)[:3]]


def test_one_name_alone_gives_its_missing_facts() -> None:
    graph = make_graph(20, 3, (200, 60, 60))
    run = make_run(graph, untrained(graph))
    known = set(graph.names_of(graph.facts()))
    for column, name in (("head", "e2"), ("tail", "e2"), ("relation", "r1")):
        facts = harmonium.predict(run, **{column: name}, top=30)
        assert {row[column] for row in facts} == {name}
        assert not known & {(row["head"], row["relation"], row["tail"]) for row in facts}
        probabilities = [row["probability"] for row in facts]
        assert probabilities == sorted(probabilities, reverse=True)
        assert [row["rank"] for row in facts] == list(range(1, 31))
    assert len({row["relation"] for row in harmonium.predict(run, head="e2", top=30)}) == 3
    everything = {row["text"]: row["probability"] for row in harmonium.complete(run, reasons=False)}
    for row in harmonium.predict(run, tail="e2", top=5):
        assert row["probability"] == pytest.approx(everything[row["text"]], rel=1e-4)
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


def assert_same(one: list[list[Answer]], other: list[list[Answer]]) -> None:
    for first, second in zip(chain(*one), chain(*other), strict=True):
        assert (first.rank, first.id, first.known) == (second.rank, second.id, second.known)
        assert first.score == pytest.approx(second.score, abs=1e-5)
        assert first.probability == pytest.approx(second.probability, rel=1e-4)


@pytest.mark.parametrize("slot", list(Slot))
def test_blocks_of_candidates_give_the_same_answers(monkeypatch, model, graph: Graph, slot: Slot) -> None:
    calibration, queries = fit_calibration(model, graph), graph.test[:30]
    options = [{}, {"new_only": True}, {"allowed": torch.tensor([0, 1, 2])}]
    options += [] if slot is Slot.RELATION else [{"types": EntityTypes.infer(graph)}]

    def answers() -> list[list[Answer]]:
        return [a for o in options for a in answer_all(model, graph, slot, queries, 5, calibration=calibration, **o)]

    whole, facts = answers(), list(score_triples(model, graph, queries, calibration))
    for block in (1, 3, 7, 19):
        monkeypatch.setitem(gradient_graph.CANDIDATES_AT_ONCE, "cpu", block)
        assert_same(answers(), whole)
        for one, other in zip(score_triples(model, graph, queries, calibration), facts, strict=True):
            assert (one.rank, one.head_rank) == (other.rank, other.head_rank)
            assert [one.score, one.probability] == pytest.approx([other.score, other.probability], rel=1e-4)


@pytest.mark.parametrize("slot", list(Slot))
def test_many_queries_give_the_same_answers_as_one(monkeypatch, model, graph: Graph, slot: Slot) -> None:
    options = {"top": 5, "new_only": True, "calibration": fit_calibration(model, graph)}
    queries = graph.test[:9]
    alone = [next(answer_all(model, graph, slot, one, **options)) for one in queries.chunks(1)]
    for rows in (1, 4, 100):
        monkeypatch.setitem(MAX_SCORES, "cpu", rows * (3 if slot is Slot.RELATION else 20))
        assert_same(list(answer_all(model, graph, slot, queries, **options)), alone)


def test_only_allowed_and_typed_candidates_answer(model: GradientGraph, graph: Graph) -> None:
    """Filters leave scores and probabilities as they are."""
    graph = replace(
        graph, **{split: facts[(facts.tail < 15) & (facts.head != facts.tail)] for split, facts in graph.splits.items()}
    )
    options = {"top": 99, "calibration": fit_calibration(model, graph)}
    everyone = answer(model, graph, Slot.TAIL, **options)
    types = EntityTypes.infer(graph)
    head, relation = (int(ask(graph, **GIVEN[Slot.TAIL]).triple[s]) for s in (Slot.HEAD, Slot.RELATION))
    possible = set(types.of_slot(Slot.TAIL, relation).entities.tolist())
    possible -= set() if types.has_loops[relation] else {head}
    assert len(possible) < len(everyone) == 20

    def numbers(answers: list[Answer]) -> dict[int, tuple]:
        return {a.index: (a.score, a.probability, a.known) for a in answers}

    typed = answer(model, graph, Slot.TAIL, types=types, **options)
    assert numbers(typed) == {index: value for index, value in numbers(everyone).items() if index in possible}
    assert [a.rank for a in typed] == list(range(1, len(typed) + 1))
    allowed = torch.tensor([3, 17, 4])
    few = answer(model, graph, Slot.TAIL, allowed=allowed, **options)
    assert numbers(few) == {index: value for index, value in numbers(everyone).items() if index in (3, 4, 17)}
    both = {a.index for a in answer(model, graph, Slot.TAIL, allowed=allowed, types=types, **options)}
    assert both == possible & {3, 4, 17}


@pytest.mark.parametrize("slot", list(Slot))
def test_an_answer_has_the_probability_of_its_fact(model: GradientGraph, graph: Graph, slot: Slot) -> None:
    calibration, query = fit_calibration(model, graph), graph.test[:1]
    answers = next(answer_all(model, graph, slot, query, 99, calibration=calibration))
    triples = Triples.from_rows([[a.index if s is slot else int(query[s]) for s in Slot] for a in answers])
    expected = calibration.of_facts(model, graph, triples, slot).tolist()
    assert [a.probability for a in answers] == pytest.approx(expected, rel=1e-5)
    assert len({a.known for a in answers}) > 1
    assert {a.probability for a in answer(model, graph, slot)} == {None}


def test_facts_are_scored_with_their_ranks(model: GradientGraph, graph: Graph) -> None:
    calibration, triples = fit_calibration(model, graph), Triples.cat([graph.test[:7], Triples.from_rows([[0, 0, 0]])])
    scored = list(score_triples(model, graph, triples, calibration))
    for slot, name in ((Slot.TAIL, ""), (Slot.HEAD, "head_")):
        ranks = rank(model, triples, slot, graph.known_answers(slot)).values().tolist()
        assert [getattr(fact, f"{name}rank") for fact in scored] == ranks
        probabilities = calibration.of_facts(model, graph, triples, slot).tolist()
        assert [getattr(fact, f"{name}probability") for fact in scored] == pytest.approx(probabilities)
    scores = model.score(triples) - model.form.fold().constant
    assert [fact.score for fact in scored] == pytest.approx(scores.tolist(), abs=1e-4)
    assert [fact.known for fact in scored] == ["test"] * 7 + [None]
    assert scored[0].triple == graph.names_of(triples)[0]


def test_a_list_of_facts_is_scored_in_one_pass(model: GradientGraph, graph: Graph, monkeypatch, tmp_path) -> None:
    """As one by one and as from a file, but with as many scans of the graph as a single fact takes."""
    run, names = make_run(graph, model), graph.names_of(graph.test)
    scans, scan = [], Graph.known_answers
    monkeypatch.setattr(Graph, "known_answers", lambda *args, **kwargs: scans.append(1) or scan(*args, **kwargs))
    harmonium.score(run, names[:1])  # fits the probabilities
    scans.clear()
    one_by_one = [harmonium.score(run, [fact])[0] for fact in names]
    once = len(scans) / len(names)
    scans.clear()
    together = harmonium.score(run, names)
    assert len(scans) == once
    for one, other in zip(one_by_one, together, strict=True):
        assert (one.triple, one.known, one.head_rank) == (other.triple, other.known, other.head_rank)
        assert [one.rank, one.score] == pytest.approx([other.rank, other.score], abs=1e-6)
        assert one.probability == pytest.approx(other.probability, rel=1e-4)
    (tmp_path / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in names))
    assert harmonium.score(run, tmp_path / "facts.tsv") == together
    assert [len(batch) for batch in read_triples(names * 40, graph)] == [2048, 352]


# Files ----------------------------------------------------------------------------------------------------------------

QUERIES = [("e1", "r0", "?"), ("?", "r1", "e2"), ("e3", "r0", ""), ("e3", "?", "e4")]
COLUMNS = ("head", "relation", "tail")


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "q.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in QUERIES))
    return path


@pytest.fixture(scope="module")
def run(graph: Graph) -> Run:
    graph = replace(graph, entities=Vocabulary(graph.entities.ids, [f"Person, {i}" for i in range(20)]))
    return make_run(graph, random_model(graph, "distmult", 6).float())


def test_queries_of_a_file_have_one_open_slot(queries: Path, tmp_path: Path) -> None:
    texts = [query.text for query in read_queries(queries, make_graph())]
    assert texts == ["e1, r0, ?", "?, r1, e2", "e3, r0, ?", "e3, ?, e4"]
    for line, message in (("e1\tr0\te2", "3 given"), ("e1\t?\t", "1 given"), ("e1\tr9\t?", "no relation named 'r9'")):
        queries.write_text(f"e1\tr0\t?\n{line}\n")
        with pytest.raises(HarmoniumError, match=f"q.tsv:2: .*{message}"):
            list(read_queries(queries, make_graph()))


def test_queries_are_read_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has one open slot and a bounded size; later queries are not read yet."""
    monkeypatch.setattr(predict, "CHUNK", 2)
    graph, read = make_graph(), []

    def endless():
        while True:
            read.append(1)
            yield ask(graph, "e1", "r0", None)

    slot, first = next(batches_of_queries(endless()))
    assert (slot, len(first)) == ("tail", 2)
    assert len(read) <= 3
    names = [("e1", "r0", None), ("e2", "r0", None), ("e3", "r0", None), (None, "r0", "e1"), ("e4", "r0", None)]
    batches = batches_of_queries(ask(graph, *triple) for triple in names)
    texts = [[query.text for query in batch] for _, batch in batches]
    assert texts == [["e1, r0, ?", "e2, r0, ?"], ["e3, r0, ?"], ["?, r0, e1"], ["e4, r0, ?"]]


def read_back(path: Path) -> list[dict[str, str]]:
    """Rows of any format, as text."""
    if path.suffix == ".parquet":
        rows = pl.read_parquet(path).to_dicts()
    else:
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        if ".jsonl" in path.name:
            rows = [json.loads(line) for line in text.splitlines()]
        else:
            rows = list(csv.DictReader(text.splitlines(), delimiter="," if ".csv" in path.name else "\t"))
    return [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.csv.gz"])
def test_answers_are_the_same_in_every_format(run: Run, queries: Path, tmp_path: Path, name: str) -> None:
    progress: list[int] = []
    count = predict_file(run, queries, tmp_path / name, top=3, progress=progress.append)
    rows = read_back(tmp_path / name)
    assert sum(progress) == len(QUERIES)
    assert len(rows) == count
    expected = []
    for query in QUERIES:
        given = {column: cell for column, cell in zip(COLUMNS, query, strict=True) if cell not in ("", "?")}
        (missing,) = set(COLUMNS) - set(given)
        expected += [(missing, given | {missing: a.id}, a) for a in harmonium.predict(run, **given, top=3)]
    for row, (missing, fact, answer) in zip(rows, expected, strict=True):
        assert {column: row[column] for column in COLUMNS} == fact
        known = answer.known or ""
        assert (row["open"], row["rank"], row["name"], row["known"]) == (missing, str(answer.rank), answer.name, known)
        assert float(row["score"]) == pytest.approx(answer.score, abs=1e-5)
        if answer.probability is None:
            assert row["probability"] == ""
        else:
            assert float(row["probability"]) == pytest.approx(answer.probability, rel=1e-4)
    assert any(row["probability"] for row in rows)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_answers_are_written_as_rdf(run: Run, queries: Path, tmp_path: Path) -> None:
    count = predict_file(run, queries, tmp_path / "a.nt", top=2)
    text = (tmp_path / "a.nt").read_text(encoding="utf-8")
    assert text.count("#Statement>") == count == 8
    row = {"head": "a", "relation": "b", "tail": "c"}
    write_rows(tmp_path / "b.nt", iter([row | {"probability": 0.25}, row | {"probability": None}]), "run")
    text = (tmp_path / "b.nt").read_text(encoding="utf-8")
    assert (text.count("#Statement>"), text.count("harmonium:probability>")) == (2, 1)


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    row = {"head": "a\tb", "n": 1}
    for name, message in (("a.xls", "a.xls: unknown format; .* .tsv"), ("a.tsv", "contains a tab .* write .csv")):
        with pytest.raises(HarmoniumError, match=message):
            write_rows(tmp_path / name, iter([row]), "run")
    assert write_rows(tmp_path / "a.csv", iter([row]), "run") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    for name in ("none.tsv", "none.jsonl", "none.parquet"):
        assert write_rows(tmp_path / name, iter([]), "run") == 0
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet", "nt", "ttl", "csv.gz", "nt.zst"])
def test_only_earlier_results_are_replaced(tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"out.{kind}"
    row = {"head": "a", "relation": "b", "tail": "c", "score": 1.0, "probability": 0.5}
    for rows in ([row], [row, row], [], [row]):
        assert write_rows(out, iter(rows), "run") == len(rows)
    strangers = [
        b"head\trelation\ttail\na\tb\tc\n",
        b"head,relation,tail\na,b,c\n",
        b'{"head": 1}\n',
        b"\x00\xff",
        b"PAR1",
    ]
    for content in (*strangers, b"<a:a> <a:b> <a:c> .\n", b"[" * 99_999):
        out.write_bytes(content)
        with pytest.raises(HarmoniumError, match="holds no results of harmonium, so it will not be replaced"):
            write_rows(out, iter([row]), "run")
        assert out.read_bytes() == content


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
    types, model = EntityTypes.infer(graph), untrained(graph)
    for relation, allowed in (("near", False), ("like", True)):
        for slot, given in ((Slot.TAIL, {"head": "a3"}), (Slot.HEAD, {"tail": "a3"})):
            query = ask(graph, relation=relation, **given)
            (answers,) = answer_all(model, graph, slot, query.triple, 20, types=types)
            assert ("a3" in {answer.id for answer in answers}) == allowed


COUNTRIES = ladder("{i} capital {j}, {i} in Europe, {i} borders y0", 25) + ", z borders y0, w borders y0, w in Asia"


@pytest.mark.parametrize("new_only", [False, True])
def test_where_a_relation_has_one_answer_and_it_is_known_there_is_no_other(new_only: bool) -> None:
    """As in the missing facts of an entity; a question without its answer has candidates, and so has any if asked for."""
    run = make_run(graph := graph_of(COUNTRIES), random_model(graph).float())

    def answers(**query) -> list[str]:
        return [a.id for a in harmonium.predict(run, **query, top=99, new_only=new_only, probability=False)]

    known = [] if new_only else ["Europe"]
    assert answers(head="x3", relation="in") == known
    assert answers(relation="capital", tail="y3") == ([] if new_only else ["x3"])
    assert {row["tail"] for row in harmonium.predict(run, head="x3") if row["relation"] == "in"} == set()
    assert "Asia" in answers(head="x3", relation="in", typed=False)
    assert {"Europe", "Asia"} <= set(answers(head="z", relation="in"))
    assert len(answers(head="x3", relation="borders")) + new_only >= 1


def test_second_answers_are_left_out_of_a_file_of_queries_too(tmp_path: Path) -> None:
    run = make_run(graph := graph_of(COUNTRIES), random_model(graph).float())
    (tmp_path / "queries.tsv").write_text("x3\tin\t?\nz\tin\t?\nx4\tcapital\t?\n")
    predict_file(run, tmp_path / "queries.tsv", tmp_path / "answers.jsonl", probability=False)
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    by_head = {head: {row["tail"] for row in rows if row["head"] == head} for head in ("x3", "z", "x4")}
    assert (by_head["x3"], by_head["x4"]) == ({"Europe"}, {"y4"})
    assert len(by_head["z"]) > 1


@pytest.mark.parametrize("wrong", [-1, 2.5, "5", None, math.nan])
def test_a_wrong_number_of_answers_or_queries_is_an_error_that_names_it(wrong: Any) -> None:
    graph = make_graph()
    run = make_run(graph, random_model(graph, "distmult", 4))
    for question in (lambda: run.predict(head="e1", relation="r0", top=wrong), lambda: run.complete(top=wrong)):
        with pytest.raises(HarmoniumError, match="top is a whole number from 0, not"):
            question()
    if wrong is not None:
        with pytest.raises(HarmoniumError, match="chunk is a whole number from 1, not"):
            run.evaluate(chunk=wrong)
