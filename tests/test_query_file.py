from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import harmonium
from harmonium import query_file
from harmonium.config import Config, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import Vocabulary
from harmonium.prediction import ask
from harmonium.query_file import batches, read_facts, read_queries, write_rows
from harmonium.run import Run
from harmonium.training import History
from small import make_graph

QUERIES = [("e1", "r0", "?"), ("?", "r1", "e2"), ("e3", "r0", ""), ("e3", "?", "e4")]


def write_queries(path: Path) -> Path:
    if path.name.endswith(".jsonl"):
        rows = [dict(zip(("head", "relation", "tail"), row, strict=True)) for row in QUERIES]
        rows[0]["tail"] = None
        del rows[3]["relation"]
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        mark = "," if ".csv" in path.name else "\t"
        text = "\ufeff" + mark.join(("head", "relation", "tail")) + "\r\n\n"
        text += "".join(mark.join(row) + "\r\n" for row in QUERIES)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def make_run() -> Run:
    bare = make_graph(20, 3, (200, 60, 60))
    graph = replace(bare, entities=Vocabulary(bare.entities.ids, [f"Person, {i}" for i in range(20)]))
    model = harmonium.build_model(ModelConfig("distmult", 6), graph.n_entities, graph.n_relations, seed=3)
    return Run(Config(), graph, model, History(), {})


@pytest.mark.parametrize("name", ["q.tsv", "q.txt", "q.csv", "q.jsonl", "q.tsv.gz"])
def test_queries_may_be_written_in_several_ways(tmp_path: Path, name: str) -> None:
    found = list(read_queries(write_queries(tmp_path / name), make_graph()))
    assert [query.text for query in found] == ["e1, r0, ?", "?, r1, e2", "e3, r0, ?", "e3, ?, e4"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.tsv", b"e1\tr0\t?\ne1\tr0\n", r"q.tsv:2: found 2 columns, expected 3: head, relation, tail"),
        ("q.tsv", b"e1\tr0\te2\n", r"q.tsv:1: give exactly two of head, relation and tail; 3 given"),
        ("q.tsv", b"\ne1\tr9\t?\n", r"q.tsv:2: no relation named 'r9'"),
        ("q.tsv", b"head\trelation\ttail\n\n", r"q.tsv: nothing in it"),
        ("q.tsv", b"e1\t\xff\t?\n", r"q.tsv:1: not UTF-8"),
        ("q.jsonl", b'{"head": "e1"}\n', r"q.jsonl:1: give exactly two of head, relation and tail; 1 given"),
        ("q.jsonl", b"[1]\n", r'q.jsonl:1: expected \{"head"'),
        ("q.jsonl", b'{"head": 3}\n', r'q.jsonl:1: expected \{"head"'),
        ("q.jsonl", b"{\n", r"q.jsonl:1: not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HarmoniumError, match=message):
        list(read_queries(tmp_path / name, make_graph()))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=r"gone.tsv: cannot be read"):
        list(read_queries(tmp_path / "gone.tsv", make_graph()))


def test_queries_are_read_as_they_are_needed(monkeypatch) -> None:
    """A batch has one open slot and a bounded size; what comes later is not read yet."""
    monkeypatch.setattr(query_file, "ROWS", 2)
    graph, read = make_graph(), []

    def endless():
        while True:
            read.append(1)
            yield ask(graph, "e1", "r0", None)

    slot, first = next(batches(endless()))
    assert (slot, len(first)) == ("tail", 2)
    assert len(read) <= 3
    texts = [[q.text for q in part] for _, part in batches(ask(graph, *names) for names in NAMES)]
    assert texts == [["e1, r0, ?", "e2, r0, ?"], ["e3, r0, ?"], ["?, r0, e1"], ["e4, r0, ?"]]


NAMES = [("e1", "r0", None), ("e2", "r0", None), ("e3", "r0", None), (None, "r0", "e1"), ("e4", "r0", None)]


def read_back(path: Path) -> list[dict]:
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
def test_answers_are_the_same_in_every_format(tmp_path: Path, name: str) -> None:
    run, told = make_run(), []
    count = harmonium.predict_file(run, write_queries(tmp_path / "q.tsv"), tmp_path / name, top=3, watch=told.append)
    found = read_back(tmp_path / name)
    assert sum(told) == 4
    expected = []
    for head, relation, tail in QUERIES:
        given = {"head": head, "relation": relation, "tail": tail}
        given = {key: value for key, value in given.items() if value not in ("", "?")}
        (missing,) = {"head", "relation", "tail"} - set(given)
        for a in harmonium.predict(run, **given, top=3):
            expected.append((a.rank, missing, a.id, a.name, a.score, a.known or "", a.probability, *given.values()))
    assert len(found) == count == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        rank, missing, own, title, score, known, chance, *given = wanted
        assert (row["rank"], row["open"], row[missing], row["name"], row["known"]) == (
            str(rank),
            missing,
            own,
            title,
            known,
        )
        assert float(row["score"]) == pytest.approx(score, abs=1e-5)
        assert float(row["probability"]) == pytest.approx(chance, rel=1e-4)
        assert [row[k] for k in ("head", "relation", "tail") if k != missing] == given
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_answers_are_written_as_rdf(tmp_path: Path) -> None:
    count = harmonium.predict_file(make_run(), write_queries(tmp_path / "q.tsv"), tmp_path / "a.nt", top=2)
    text = (tmp_path / "a.nt").read_text(encoding="utf-8")
    assert text.count("harmonium:probability>") == count == 8
    with pytest.raises(HarmoniumError, match="RDF is written with probabilities"):
        row = {"head": "a", "relation": "b", "tail": "c", "probability": None}
        write_rows(tmp_path / "b.nt", iter([row]), "run")


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    row = {"head": "a\tb", "n": 1}
    with pytest.raises(HarmoniumError, match=r"a.xls: cannot tell its format; it may end in .tsv"):
        write_rows(tmp_path / "a.xls", iter([row]), "run")
    with pytest.raises(HarmoniumError, match=r"has a tab or a line break in it; write .csv"):
        write_rows(tmp_path / "a.tsv", iter([row]), "run")
    assert write_rows(tmp_path / "a.csv", iter([row]), "run") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    for name in ("none.tsv", "none.jsonl", "none.parquet"):
        assert write_rows(tmp_path / name, iter([]), "run") == 0
        assert (tmp_path / name).is_file()


def test_facts_are_read_in_chunks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(query_file, "ROWS", 2)
    (tmp_path / "f.tsv").write_text("e1\tr0\te2\ne3\tr1\te4\ne5\tr2\te6\n")
    graph = make_graph()
    parts = list(read_facts(tmp_path / "f.tsv", graph))
    assert [part.rows().tolist() for part in parts] == [[[1, 0, 2], [3, 1, 4]], [[5, 2, 6]]]
    (tmp_path / "f.tsv").write_text("e1\tr0\t?\n")
    with pytest.raises(HarmoniumError, match=r"f.tsv:1: no entity named '\?'"):
        list(read_facts(tmp_path / "f.tsv", graph))


def test_candidates_from_a_file_or_a_list(tmp_path: Path) -> None:
    run = make_run()
    (tmp_path / "who.txt").write_text("e3\n\nPerson, 5\n", encoding="utf-8")
    for among in (tmp_path / "who.txt", ["e3", "e5"]):
        found = harmonium.predict(run, "e1", "r0", among=among, probability=False)
        assert sorted(a.id for a in found) == ["e3", "e5"]
        assert {a.probability for a in found} == {None}
    with pytest.raises(HarmoniumError, match=r"--among .*gone: cannot be read"):
        harmonium.predict(run, "e1", "r0", among=tmp_path / "gone")
