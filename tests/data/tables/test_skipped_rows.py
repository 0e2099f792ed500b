"""Rows that cannot be used: an error that names the first, or skipped with counts and examples."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import polars as pl
import pytest

from graph_checks import facts, whole
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError

GOOD = [("a", "r", "b"), ("b", "r", "c"), ("c", "q", "a"), ("d", "q", "b"), ("a", "q", "d")]


def skipped(graph: Graph) -> dict[str, int]:
    """Reason -> number of rows."""
    notes = [note for note in graph.notes if note.kind == "skipped rows"]
    return {note.text.split(": ")[1]: note.count for note in notes}


MESSY = b"""\xef\xbb\xbfsubject;predicate;object;since\r
a;r;b;1999\r
b;;c;2000\r
"b";"r";" c ";\r
;r;c;\r
c;q;a;;;\r
c;q\r
d;q;b;1;2;3\r
 ; ; ;\r
M\xfcnchen;r;b;\r
a;r;b;\xc3\xa9\r
d;q;"b";\r
"d;q;c;\r
d;"q"x;c;\r
a;r;b;1999\r
a;r;N/A;\r
a;r; NULL ;\r
a;q;d;"two
lines"\r
"""


def test_every_row_that_can_be_read_is_read(tmp_path: Path) -> None:
    file = tmp_path / "messy.csv"
    file.write_bytes(MESSY + b"a;r;b;1999\n" * 9)
    graph = whole(file, on_bad="skip")
    assert facts(graph) == GOOD
    assert skipped(graph) == {
        "the tail (column 'object') is a placeholder": 2,
        "the relation (column 'predicate') is empty": 1,
        "the head (column 'subject') is empty": 1,
        "found 2 columns, expected 4": 1,
        "found 6 columns, expected 4": 1,
        "not UTF-8 text": 1,
        "';' expected after '\"'; is a quote open?": 2,
    }
    texts = "\n".join(map(str, graph.notes))
    assert "is a placeholder: messy.csv:16 (a, r, N/A), messy.csv:17 (a, r, NULL)" in texts
    assert "found 2 columns, expected 4: subject, predicate, object, since: messy.csv:7 (c;q)" in texts
    assert "messy.csv:10 (M\ufffdnchen;r;b;)" in texts
    assert "train: dropped 11 repeated triples of 16" in texts
    with pytest.raises(
        HarmoniumError, match=r"messy\.csv:3: the relation \(column 'predicate'\) is empty; 7 rows cannot"
    ):
        whole(file)


ROWS = [*GOOD[:2], ("", "r", "b"), ("c", " ", "b"), ("c", "q", None), *GOOD[2:]]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "pandas", "polars"])
def test_empty_cells_are_skipped_in_every_format(tmp_path: Path, kind: str) -> None:
    columns = ("head", "relation", "tail")
    texts = ["\t".join(cell or "" for cell in row) + "\n" for row in ROWS]
    source: object = tmp_path / f"facts.{kind}"
    if kind in ("csv", "tsv"):
        Path(source).write_text("".join(texts).replace("\t", "," if kind == "csv" else "\t"))
    elif kind == "jsonl":
        Path(source).write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in ROWS))
    elif kind == "pandas":
        source = pandas.DataFrame(ROWS, columns=columns)
    else:
        source = pl.DataFrame(ROWS, schema=columns, orient="row")
        if kind == "parquet":
            source.write_parquet(tmp_path / "facts.parquet")
            source = tmp_path / "facts.parquet"
    graph = whole(source, on_bad="skip")
    assert facts(graph) == GOOD
    assert skipped(graph) == dict.fromkeys([f"the {column} is empty" for column in columns], 1)
    with pytest.raises(HarmoniumError, match="(:| row )3: the head is empty"):
        whole(source)


def test_a_table_with_splits_counts_each_row_once(tmp_path: Path) -> None:
    """Its file is read once for each split."""
    file = tmp_path / "facts.csv"
    file.write_text("head,relation,tail,split\na,r,b,train\nb,r,c,train\n,r,c,train\nc,r,a,test\n")
    graph = load(file, on_bad="skip")
    assert skipped(graph) == {"the head is empty": 1}
    assert (len(graph.train), len(graph.test)) == (2, 1)


@pytest.mark.parametrize("on_bad", ["error", "skip"])
def test_a_header_within_joined_files_is_no_fact(tmp_path: Path, on_bad: str) -> None:
    file = tmp_path / "facts.csv"
    lines = [",".join(row) for row in GOOD]
    file.write_text("\n".join(["Source,Type,Target", *lines[:2], "Source,Type,Target", *lines[2:]]))
    graph = whole(file, on_bad=on_bad)
    assert facts(graph) == GOOD
    assert skipped(graph) == {"repeated header": 1}


def test_lines_above_a_table_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "facts.csv"
    file.write_text("My films, exported 2024\nhead,relation,tail\n" + "".join(",".join(row) + "\n" for row in GOOD))
    graph = whole(file, on_bad="skip")
    assert facts(graph) == GOOD
    assert skipped(graph) == {"found 2 columns, expected 3": 1}


def test_a_file_of_which_most_rows_are_bad_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "facts.csv"
    file.write_text("head,relation,tail\n" + "a,r,\n" * 30 + "a,r,b\n")
    with pytest.raises(HarmoniumError, match="facts: 30 of 31 rows cannot be used; skipped 30 rows: the tail is empty"):
        load(file, on_bad="skip")
    file.write_text("head,relation,tail\n" + "a,r,\n" * 30)
    with pytest.raises(
        HarmoniumError, match=r"facts\.csv: none of its rows can be used; skipped 30 rows: the tail is empty"
    ):
        load(file, on_bad="skip")
    with pytest.raises(HarmoniumError, match="on_bad must be error or skip, not 'ignore'"):
        load(file, on_bad="ignore")  # type: ignore[arg-type]


def test_signs_of_a_misread_file_are_noted(tmp_path: Path) -> None:
    file = tmp_path / "facts.csv"
    file.write_text("".join(f"film {i % 7},person {i},{1990 + i % 5}\n" for i in range(60)))
    with pytest.raises(HarmoniumError, match=r"second column.*hardly ever repeats.*film 0, person 0, 1990"):
        whole(file)
    assert "60 relations for 60 facts" in str(whole(file, columns="1,2,3").notes[0])
    file.write_text("a,r,b\nb,r,N/A\nc,r,null\n")
    (note,) = whole(file).notes
    assert "read as entities: N/A, null" in note.text
