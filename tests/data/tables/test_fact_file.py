from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy
import pandas
import polars as pl
import pytest

from harmonium.answers.query import read_queries
from harmonium.data.graph import Graph
from harmonium.data.tables import fact_file
from harmonium.data.tables.fact_file import fact_table, read_labelled, read_rows, read_triples
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from small import make_graph

COLUMNS = ("head", "relation", "tail")
ROWS = [("e1", "r0", "?"), ("", "r1", "e2"), ("e, 3", "r0", "e4")]
TSV = "".join("\t".join(row) + "\r\n\n" for row in ROWS)
CSV = "s;p;extra;o\n" + "".join(f'"{h}" ; {r};7;"{t}"\n' for h, r, t in ROWS)
JSON = "".join(json.dumps({"head": h or None, "relation": r, "tail": t, "more": []}) + "\n" for h, r, t in ROWS)


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("q.tsv", "\ufeff" + TSV, (1, 3, 5)),
        ("q.txt", TSV, (1, 3, 5)),
        ("q.tsv.gz", "HEAD\tRelation\ttail\n" + TSV, (2, 4, 6)),
        ("q.csv", CSV, (2, 3, 4)),
        ("q.jsonl", JSON, (1, 2, 3)),
    ],
)
def test_rows_are_the_same_in_every_format(tmp_path: Path, name: str, content: str, lines: tuple[int, ...]) -> None:
    path, raw = tmp_path / name, content.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    expected = [(f"{path}:{line}", dict(zip(COLUMNS, row, strict=True))) for line, row in zip(lines, ROWS, strict=True)]
    assert list(read_rows(path)) == expected


def test_facts_are_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_file, "FACTS_PER_CHUNK", 2)
    (tmp_path / "f.tsv").write_text("e1\tr0\te2\ne3\tr1\te4\ne5\tr2\te6\n")
    chunks = list(read_triples(tmp_path / "f.tsv", make_graph()))
    assert [chunk.to_rows().tolist() for chunk in chunks] == [[[1, 0, 2], [3, 1, 4]], [[5, 2, 6]]]
    (tmp_path / "f.tsv").write_text("e1\tr0\t?\n")
    with pytest.raises(HarmoniumError, match=r"f.tsv:1: no entity named '\?'"):
        list(read_triples(tmp_path / "f.tsv", make_graph()))
    with pytest.raises(HarmoniumError, match=r"gone.tsv: cannot be read \(No such file"):
        list(read_triples(tmp_path / "gone.tsv", make_graph()))


LABELLED = "e1\tr0\te2\t1\r\n\ne3\tr1\tperson 4\t-1\nperson 5\tr2\te6\tTrue\ne7\tr0\te8\tfalse\ne9\tr0\te1\t0\n"
JSON_LABELLED = [("e1", "r0", "e2", 1), ("e3", "r1", "e4", -1), ("e5", "r2", "e6", True), ("e7", "r0", "e8", "false")]


def test_labels_may_be_written_in_several_ways(tmp_path: Path) -> None:
    bare = make_graph()
    graph = replace(bare, entities=Vocabulary(bare.entities.ids, [f"person {i}" for i in range(12)], "entity"))
    (tmp_path / "facts.txt").write_bytes(LABELLED.encode())
    rows = [dict(zip((*COLUMNS, "label"), row, strict=True)) for row in (*JSON_LABELLED, ("e9", "r0", "e1", 0))]
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file in ("facts.txt", "facts.jsonl"):
        triples, labels = read_labelled(tmp_path / file, graph)
        assert triples.to_rows().tolist() == [[1, 0, 2], [3, 1, 4], [5, 2, 6], [7, 0, 8], [9, 0, 1]]
        assert labels.tolist() == [True, False, True, False, False]


FACTS = [("e1", "r0", "e2"), ("e3", "r1", "e4"), ("e5", "r2", "e6")]
TITLES = ("subject", "predicate", "object")
IN_MEMORY = {
    "tuples": FACTS,
    "lists": [list(row) for row in FACTS],
    "titled tuples": [TITLES, *FACTS],
    "objects": [dict(zip(TITLES, row, strict=True)) for row in FACTS],
    "array": numpy.array(FACTS),
    "pandas": pandas.DataFrame(FACTS, columns=TITLES),
    "untitled pandas": pandas.DataFrame(FACTS),
    "polars": pl.DataFrame(FACTS, schema=TITLES, orient="row"),
    "columns": {title: [row[i] for row in FACTS] for i, title in enumerate(TITLES)},
    "graph": replace(make_graph(), train=make_graph().triple(*FACTS[0]), valid=make_graph().train[:0]),
}


@pytest.mark.parametrize("source", IN_MEMORY.values(), ids=IN_MEMORY.keys())
def test_facts_in_memory_are_read_as_files_are(source: object) -> None:
    graph = make_graph()
    expected = FACTS if not isinstance(source, Graph) else graph.names_of(source.facts())
    assert [names for batch in read_triples(source, graph) for names in graph.names_of(batch)] == expected


def test_unknown_names_are_counted_with_suggestions() -> None:
    rows = [FACTS[0], ("e1", "r9", "e2"), ("nobody", "r0", "e2"), ("e1", "r0", ""), ("e1", "r0"), FACTS[1]]
    with pytest.raises(HarmoniumError, match=r"the facts: row 2: no relation named 'r9' among 3; 4 rows") as error:
        list(read_triples(rows, make_graph()))
    assert "4 rows cannot be used" in str(error.value) and 'on_bad="skip"' in str(error.value)
    skipped = SkippedRows("skip")
    (triples,) = read_triples(rows, make_graph(), skipped)
    assert make_graph().names_of(triples) == FACTS[:2]
    assert {reason: count for (_, reason), count in skipped.counts.items()} == {
        "unknown relation": 1,
        "unknown entity": 1,
        "the tail is empty": 1,
        "found 2 columns, expected 3": 1,
    }


def test_wrong_columns_are_an_error_that_names_them() -> None:
    frame = pandas.DataFrame(FACTS, columns=["film", "genre", "year"])
    with pytest.raises(HarmoniumError, match=r'header .film, genre, year. names no head.*--columns "film,genre,year"'):
        list(read_triples(frame, make_graph()))
    (triples,) = read_triples(frame, make_graph(), columns=["film", "genre", "year"])
    assert len(triples) == 3
    with pytest.raises(HarmoniumError, match="unknown keyword 'collumns'; did you mean 'columns'"):
        list(read_triples(frame, make_graph(), collumns="film,genre,year"))


def test_queries_may_lack_the_column_that_is_asked_for() -> None:
    frame = pl.DataFrame({"subject": ["e1", "e2"], "predicate": ["r0", "r1"]})
    assert [query.text for query in read_queries(frame, make_graph())] == ["e1, r0, ?", "e2, r1, ?"]
    with pytest.raises(HarmoniumError, match=r"2 columns .subject, predicate."):
        list(read_triples(frame, make_graph()))
    assert fact_table(frame, are_queries=True)["tail"].to_list() == [None, None]
