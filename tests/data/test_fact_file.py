from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from harmonium.data import fact_file
from harmonium.data.fact_file import read_labelled, read_rows, read_triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.errors import HarmoniumError
from small import make_graph

COLUMNS = ("head", "relation", "tail")
ROWS = [("e1", "r0", "?"), ("", "r1", "e2"), ("e, 3", "r0", "e4")]
TABLE = pl.DataFrame(ROWS, schema=COLUMNS, orient="row")
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


def test_rows_of_parquet_have_numbers(tmp_path: Path) -> None:
    path, cells = tmp_path / "q.parquet", [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    TABLE.with_columns(more=1).write_parquet(path)
    assert list(read_rows(path)) == [(f"{path}: row {n}", row) for n, row in enumerate(cells, start=1)]
    TABLE.rename({"head": "who"}).write_parquet(path)
    with pytest.raises(HarmoniumError, match="q.parquet: expected columns head, .* found who"):
        list(read_rows(path))


def test_facts_are_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_file, "CHUNK", 2)
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
