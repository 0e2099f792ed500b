"""Identifiers: one thing has one name, whatever it is read from."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx
import numpy
import pandas
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_checks import facts, whole
from harmonium.data.tables.fact_file import read_triples
from harmonium.data.tables.values import text_of
from harmonium.errors import HarmoniumError

TEXTS = [
    (2, "2"), (2.0, "2"), (-3.0, "-3"), (2.5, "2.5"), (numpy.float32(2), "2"), (numpy.int64(7), "7"), (True, "true"),
    (False, "false"), ("007", "007"), ("2.0", "2.0"), (b"a", "a"), (None, ""), (float("nan"), ""), (float("inf"), "inf"),
    (Decimal("1.50"), "1.50"), (["a"], ""),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=lambda value: repr(value))
def test_values_as_names(value: Any, text: str) -> None:
    assert text_of(value) == text


def gaps(tmp_path: Path) -> dict[str, Any]:
    """Facts over whole numbers, whose tails a library turned into floats when one of them was missing."""
    frame = pandas.DataFrame({"head": [1, 2, 3], "relation": ["r"] * 3, "tail": [2, 3, None]}).dropna()
    assert frame["tail"].dtype == float
    frame.to_csv(tmp_path / "facts.csv", index=False)
    frame.to_csv(tmp_path / "facts.tsv", index=False, sep="\t")
    columns = pl.DataFrame({name: frame[name].to_list() for name in frame.columns})
    columns.write_parquet(tmp_path / "facts.parquet")
    frame.to_json(tmp_path / "facts.jsonl", orient="records", lines=True)
    files = {name: tmp_path / f"facts.{name}" for name in ("csv", "tsv", "parquet", "jsonl")}
    rows = list(frame.itertuples(index=False, name=None))
    return files | {"pandas": frame, "polars": columns, "rows": rows, "array": frame.to_numpy()}


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl", "pandas", "polars", "rows", "array"])
def test_whole_floats_are_integers_in_every_source(tmp_path: Path, kind: str) -> None:
    graph = whole(gaps(tmp_path)[kind])
    assert facts(graph) == [("1", "r", "2"), ("2", "r", "3")]
    (triples,) = read_triples([("1", "r", "2")], graph)  # strings where the graph had numbers
    assert triples.to_rows().tolist() == graph.train[:1].to_rows().tolist()
    assert graph.entities.index(2.0) == graph.entities.index(2) == graph.entities.index("2")


def test_numbers_with_a_fraction_and_leading_zeros_stay(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("head,relation,tail\n007,r,2.5\n08,r,2.0\n")
    assert facts(whole(tmp_path / "f.csv")) == [("007", "r", "2.5"), ("08", "r", "2")]
    (tmp_path / "v.csv").write_text("head,relation,tail\nPython,version,2.0\nHTTP,version,two\n")
    assert facts(whole(tmp_path / "v.csv"))[0] == ("Python", "version", "2.0")  # names, not a column of numbers


def test_true_stays_true(tmp_path: Path) -> None:
    rows = [{"head": "a", "relation": "is old", "tail": True}, {"head": "b", "relation": "is old", "tail": False}]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in (tmp_path / "f.jsonl", rows, pandas.DataFrame(rows), pl.DataFrame(rows)):
        assert facts(whole(source)) == [("a", "is old", "true"), ("b", "is old", "false")]


# networkx ------------------------------------------------------------------------------------------------------------


def test_two_nodes_with_one_name_are_an_error() -> None:
    graph = networkx.DiGraph()
    graph.add_edge(1, "a", relation="r")
    graph.add_edge("1", "b", relation="r")
    with pytest.raises(
        HarmoniumError, match=r"the nodes 1 and '1' are different, but both are named '1'.*relabel_nodes"
    ):
        whole(graph)
    graph = networkx.DiGraph()
    graph.add_edge(1, 2.5, relation="r")
    assert facts(whole(graph)) == [("1", "r", "2.5")]


def test_weights_of_edges_are_read() -> None:
    graph = networkx.DiGraph()
    graph.add_edge("a", "b", relation="r", weight=0.25)
    graph.add_edge("b", "c", relation="r")
    assert whole(graph).train.weights().tolist() == [0.25, 1]
    graph.edges["a", "b"]["weight"] = "much"
    with pytest.raises(HarmoniumError, match=r"edge \(a, b\): the weight \(column 'weight'\) is not a finite number"):
        whole(graph)


# Quoted cells of tab-separated text ----------------------------------------------------------------------------------

names = st.text(st.sampled_from('ab "\t\n,5'), min_size=1, max_size=6).map(lambda name: f"n{name}n")


@given(rows=st.lists(st.tuples(names, names), min_size=2, max_size=8))
def test_what_csv_writer_wrote_is_read_back(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("tsv") / "facts.tsv"
    with file.open("w", newline="", encoding="utf-8") as text:
        writer = csv.writer(text, delimiter="\t")
        writer.writerow(["head", "relation", "tail"])
        writer.writerows((head, "r", tail) for head, tail in rows)
    expected = dict.fromkeys((" ".join(head.split()), "r", " ".join(tail.split())) for head, tail in rows)
    assert facts(whole(file)) == list(expected)


def test_one_quoted_cell_far_below_is_recognised(tmp_path: Path) -> None:
    rows = [(f"disk {n}", "fits", f"drive {n}") for n in range(500)] + [('5" disk', "fits", '"the" drive')]
    pandas.DataFrame(rows, columns=["head", "relation", "tail"]).to_csv(tmp_path / "f.tsv", sep="\t", index=False)
    assert '"5"" disk"' in (tmp_path / "f.tsv").read_text()
    assert facts(whole(tmp_path / "f.tsv"))[-1] == ('5" disk', "fits", '"the" drive')


def test_quotes_that_are_part_of_names_stay(tmp_path: Path) -> None:
    rows = [(f"song {n}", "sung by", f"band {n}") for n in range(50)] + [('"Heroes"', "sung by", 'the "Thin" Duke')]
    (tmp_path / "f.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    assert facts(whole(tmp_path / "f.tsv"))[-1] == rows[-1]
