"""Every kind of source with every kind of mess: the same facts, counts and notes, whatever they come from."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy
import pandas
import polars as pl
import pytest

from graph_checks import facts, whole
from harmonium.data.datasets import convert, load
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError

Row = Sequence[Any]
Source = Callable[[Path, Sequence[str], Sequence[Row]], Any]
TITLES = ("subject", "predicate", "object")


def separated(name: str, separator: str) -> Source:
    def write(folder: Path, titles: Sequence[str], rows: Sequence[Row]) -> Path:
        lines = [separator.join("" if cell is None else str(cell) for cell in row) for row in (titles, *rows) if row]
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return folder / name

    return write


def objects(titles: Sequence[str], rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(zip(titles, row, strict=True)) for row in rows]


def json_lines(folder: Path, titles: Sequence[str], rows: Sequence[Row]) -> Path:
    (folder / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in objects(titles, rows)))
    return folder / "facts.jsonl"


def json_array(folder: Path, titles: Sequence[str], rows: Sequence[Row]) -> Path:
    (folder / "facts.json").write_text(json.dumps(objects(titles, rows)))
    return folder / "facts.json"


def json_rows(folder: Path, titles: Sequence[str], rows: Sequence[Row]) -> Path:
    values = [row for row in (titles, *rows) if row]
    (folder / "rows.jsonl").write_text("".join(json.dumps(list(row)) + "\n" for row in values))
    return folder / "rows.jsonl"


def polars_frame(folder: Path, titles: Sequence[str], rows: Sequence[Row]) -> pl.DataFrame:
    columns = {title: [None if row[i] is None else str(row[i]) for row in rows] for i, title in enumerate(titles)}
    return pl.DataFrame(columns, schema=dict.fromkeys(titles, pl.String))


def parquet(folder: Path, titles: Sequence[str], rows: Sequence[Row]) -> Path:
    polars_frame(folder, titles, rows).write_parquet(folder / "facts.parquet")
    return folder / "facts.parquet"


def untitled(titles: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    return [tuple(row) for row in (titles, *rows) if row]


TITLED: dict[str, Source] = {
    "csv": separated("facts.csv", ","),
    "semicolons": separated("facts.txt", ";"),
    "tsv": separated("facts.tsv", "\t"),
    "json lines": json_lines,
    "json": json_array,
    "parquet": parquet,
    "pandas": lambda folder, titles, rows: pandas.DataFrame(list(rows), columns=list(titles)),
    "polars": polars_frame,
    "lazy": lambda folder, titles, rows: polars_frame(folder, titles, rows).lazy(),
    "columns": lambda folder, titles, rows: {title: [row[i] for row in rows] for i, title in enumerate(titles)},
    "objects": lambda folder, titles, rows: objects(titles, rows),
}
UNTITLED: dict[str, Source] = {
    "plain csv": TITLED["csv"],
    "plain tsv": TITLED["tsv"],
    "json rows": json_rows,
    "tuples": lambda folder, titles, rows: untitled(titles, rows),
    "lists": lambda folder, titles, rows: list(map(list, untitled(titles, rows))),
    "iterator": lambda folder, titles, rows: untitled(titles, rows),
    "array": lambda folder, titles, rows: numpy.array(untitled(titles, rows), dtype=object),
    "untitled pandas": lambda folder, titles, rows: pandas.DataFrame(untitled(titles, rows)),
}
each_titled = pytest.mark.parametrize("source", TITLED.values(), ids=TITLED.keys())
each_untitled = pytest.mark.parametrize("source", UNTITLED.values(), ids=UNTITLED.keys())
each = pytest.mark.parametrize(
    ("source", "titles"),
    [*((source, TITLES) for source in TITLED.values()), *((source, ()) for source in UNTITLED.values())],
    ids=[*TITLED, *UNTITLED],
)
GOOD = [("a", "r", "b"), ("b", "r", "c"), ("c", "q", "a"), ("d", "q", "b"), ("a", "q", "d")]


def kinds(graph: Graph, kind: str) -> list[int]:
    return [note.count for note in graph.notes if note.kind == kind]


# Rows that cannot be used --------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("empty", [None, "", "  "], ids=["null", "empty", "blank"])
@pytest.mark.parametrize("slot", range(3))
def test_an_empty_cell_is_counted_in_every_source(
    tmp_path: Path, source: Source, titles: Sequence[str], empty: str | None, slot: int
) -> None:
    bad = [tuple(empty if i == slot else cell for i, cell in enumerate(row)) for row in GOOD[:2]]
    data = source(tmp_path, titles, [*GOOD[:3], *bad, *GOOD[3:]])
    name = ("head", "relation", "tail")[slot]
    with pytest.raises(HarmoniumError) as error:
        whole(data)
    message = str(error.value)
    assert f"the {name}" in message and "is empty" in message
    assert "2 rows cannot be used" in message and "--on-bad skip" in message and 'on_bad="skip"' in message
    if titles:
        assert f"column '{titles[slot]}'" in message or "facts.tsv" in message
    graph = whole(data, on_bad="skip")
    assert facts(graph) == GOOD
    assert kinds(graph, "skipped rows") == [2]


@pytest.mark.parametrize(
    "name", [name for name in UNTITLED if name not in ("array", "untitled pandas")]
)  # of one width
def test_rows_of_another_width_are_counted(tmp_path: Path, name: str) -> None:
    source = UNTITLED[name]
    data = source(tmp_path, (), [*GOOD, ("a", "r"), ("a", "r", "b", "c"), ("a",)])
    with pytest.raises(HarmoniumError, match=r"found 2 columns, expected 3.*3 rows cannot be used.*--on-bad skip"):
        whole(data)
    graph = whole(data, on_bad="skip")
    assert facts(graph) == GOOD
    assert sum(kinds(graph, "skipped rows")) == 3


@pytest.mark.parametrize("name", ["facts.csv", "facts.tsv", "facts.jsonl", "facts.nt"])
def test_bytes_that_are_no_text_are_counted(tmp_path: Path, name: str) -> None:
    pattern = {
        "csv": "{},{},{}\n",
        "tsv": "{}\t{}\t{}\n",
        "jsonl": '["{}", "{}", "{}"]\n',
        "nt": "<x:{}> <x:{}> <x:{}> .\n",
    }
    lines = [pattern[name.split(".")[1]].format(*row).encode() for row in (*GOOD, ("Zo\u00eb", "r", "b"))]
    (tmp_path / name).write_bytes(b"".join([*lines, lines[-1].decode().encode("latin-1")]))
    with pytest.raises(HarmoniumError, match=r":7: not (UTF-8 text|N-Triples).*--on-bad skip"):
        whole(tmp_path / name)
    graph = whole(tmp_path / name, on_bad="skip")
    assert (len(graph.train), kinds(graph, "skipped rows")) == (6, [1])


@pytest.mark.parametrize("to", ["nt", "openke", "libkge", "graph"])
@pytest.mark.parametrize("option", [{"columns": "1,2,3"}, {"weight_column": "4"}, {"delimiter": ";"}, {"header": True}])
def test_options_of_tables_are_refused_where_there_is_none(tmp_path: Path, to: str, option: dict[str, Any]) -> None:
    out = tmp_path / ("facts.graph" if to == "graph" else "facts")
    convert(GOOD, out, None if to == "graph" else to)
    message = f"it is not a table, so it has no {next(iter(option)).replace('_', ' ')}"
    if to == "nt" and "weight_column" in option:
        message = "no statement about a fact or its graph has the predicate '4'"
    with pytest.raises(HarmoniumError, match=message):
        load(out, **option)
    assert len(load(out, on_bad="skip", valid=0, test=0).train) == len(GOOD)


def test_a_file_that_is_all_wrong_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harmonium.data.tables.skipped_rows.MAX_COUNTED_ROWS", 20)
    (tmp_path / "facts.csv").write_text("a,r,b\n" + "a,r\n" * 50)
    with pytest.raises(HarmoniumError, match="more than 20 rows cannot be used"):
        whole(tmp_path / "facts.csv")


# Names -----------------------------------------------------------------------------------------------------------


MESSY = [
    (" S\u00e3o Paulo", "in", "Brasil"),
    (unicodedata.normalize("NFD", "S\u00e3o Paulo"), "in", "Am\u00e9rica "),
    ("S\u00e3o\u00a0Paulo", " in ", unicodedata.normalize("NFD", "Am\u00e9rica")),
    ("Lisboa\u200b", "in", "Europa"),
    ("Lisboa", "twin  city", "S\u00e3o Paulo"),
]
CLEAN = [
    ("S\u00e3o Paulo", "in", "Brasil"),
    ("S\u00e3o Paulo", "in", "Am\u00e9rica"),
    ("Lisboa", "in", "Europa"),
    ("Lisboa", "twin city", "S\u00e3o Paulo"),
]


@each
def test_names_are_the_same_in_every_source(tmp_path: Path, source: Source, titles: Sequence[str]) -> None:
    graph = whole(source(tmp_path, titles, MESSY), header=None if titles else False)
    assert facts(graph) == CLEAN
    assert len(kinds(graph, "cleaned")) == 2  # entities and relations
    assert "S\u00e3o Paulo" in next(note.text for note in graph.notes if note.kind == "cleaned")


# Headers ---------------------------------------------------------------------------------------------------------


@each_untitled
@pytest.mark.parametrize(
    "titles",
    [
        ("Head", "relation", "TAIL"),
        ("s", "p", "o"),
        ("from", "type", "to"),
        ("Person", "relation", "Other"),
        *map(tuple, permutations("hrt")),
    ],
)
def test_a_header_is_no_fact_in_any_source(tmp_path: Path, source: Source, titles: Sequence[str]) -> None:
    order = ["hrt".index(title) for title in titles] if set(titles) == set("hrt") else range(3)
    rows = [tuple(fact[i] for i in order) for fact in GOOD]
    assert facts(whole(source(tmp_path, titles, rows))) == GOOD
    told = whole(source(tmp_path, titles, rows), header=False)
    assert (facts(told)[0], len(told.train), told.notes) == (tuple(titles), 6, ())


@each_untitled
def test_titles_that_say_nothing_are_an_error_that_shows_what_to_type(tmp_path: Path, source: Source) -> None:
    titles = ("Person", "Tie", "Other")
    with pytest.raises(HarmoniumError, match=r'a, r, b; b, r, c.*--columns "Person,Tie,Other".*--no-header'):
        whole(source(tmp_path, titles, GOOD))
    for told in ({"columns": titles}, {"columns": "1,2,3", "header": True}, {"header": True}):
        graph = whole(source(tmp_path, titles, GOOD), **told)
        assert facts(graph) == GOOD
        assert graph.reading == "head = Person, relation = Tie, tail = Other; for example: a - r - b"


@each_untitled
@pytest.mark.parametrize(
    ("titles", "rows"),
    [(("type", "r", "x"), GOOD), (("Person", "Tie", "Other"), [("a", "r", "b"), ("c", "q", "d"), ("e", "s", "f")])],
    ids=["a title that may be a name", "too few rows to tell"],
)
def test_a_row_that_may_be_a_header_is_asked_about(
    tmp_path: Path, source: Source, titles: Sequence[str], rows: list[Row]
) -> None:
    data = [("from", *titles[1:]) if titles[0] == "type" else titles, *rows]
    graph = whole(source(tmp_path, (), data))
    assert len(graph.train) == len(data)
    (note,) = [note for note in graph.notes if note.kind == "header"]
    assert "read as a fact" in note.text and "--header" in note.text
    assert kinds(whole(source(tmp_path, (), data), header=False), "header") == []
    assert len(whole(source(tmp_path, (), data), header=True).train) == len(rows)


# Columns ---------------------------------------------------------------------------------------------------------

WIDE_TITLES = ("id", "who", "who_is", "tie", "whom", "label", "kind of whom", "trust")
WIDE = [
    (1, "a", "person", "r", "b", "Ben", "city", "0.5"),
    (2, "b", "city", "r", "c", "", "", "2"),
    (3, "c", "", "q", "a", "Ann", "person", "0"),
]
WIDE_OPTIONS = {
    "columns": "who,tie,whom",
    "label_columns": "-,label",
    "type_columns": "who_is,kind of whom",
    "weight_column": "trust",
}


@each_titled
def test_columns_of_labels_types_and_weights(tmp_path: Path, source: Source) -> None:
    graph = whole(source(tmp_path, WIDE_TITLES, WIDE), **WIDE_OPTIONS)
    ties = [(h, r, t) for _, h, _, r, t, *_ in WIDE]
    assert facts(graph) == [*ties, ("a", "type", "person"), ("b", "type", "city")]
    assert graph.entities.name(graph.entities.index("b")) == "Ben"
    assert graph.train.weight is not None
    assert graph.train.weight.tolist() == [0.5, 2.0, 0.0, 1.0, 1.0]
    assert {"types", "weights"} <= {note.kind for note in graph.notes}


@each_titled
@pytest.mark.parametrize(
    "option", [{"weight_column": "trust"}, {"label_columns": "trust,-"}, {"type_columns": "trust"}]
)
def test_a_column_by_name_needs_no_other_names(tmp_path: Path, source: Source, option: dict[str, str]) -> None:
    """The first row is then a header, and the other three columns are head, relation and tail."""
    graph = whole(source(tmp_path, ("film", "tie", "thing", "trust"), [(*row, 1) for row in GOOD]), **option)
    assert facts(graph)[: len(GOOD)] == GOOD


@each_titled
@pytest.mark.parametrize("weight", ["-1", "inf", "much"])
def test_a_weight_that_is_none_is_a_bad_row(tmp_path: Path, source: Source, weight: str | None) -> None:
    rows = [(*row, "1") for row in GOOD] + [("d", "r", "a", weight)]
    data = source(tmp_path, (*TITLES, "w"), rows)
    with pytest.raises(
        HarmoniumError, match=r"the weight \(column 'w'\) is not a finite number, 0 or more.*--on-bad skip"
    ):
        whole(data, weight_column="w")
    graph = whole(data, weight_column="w", on_bad="skip")
    assert (facts(graph), kinds(graph, "skipped rows")) == (GOOD, [1])


@each_titled
@pytest.mark.parametrize("weight", ["", " ", None, "NA"])
def test_a_fact_without_a_weight_has_the_weight_1(tmp_path: Path, source: Source, weight: str | None) -> None:
    rows = [(*row, "0.5") for row in GOOD] + [("d", "r", "a", weight)]
    graph = whole(source(tmp_path, (*TITLES, "w"), rows), weight_column="w")
    assert graph.train.weights().tolist() == [0.5] * 5 + [1]
    assert kinds(graph, "no weight")


def test_weights_may_have_a_decimal_comma_but_not_all_be_zero() -> None:
    rows = [
        {"head": "a", "relation": "r", "tail": "b", "w": "0,5"},
        {"head": "b", "relation": "r", "tail": "c", "w": 1},
    ]
    assert whole(rows, weight_column="w").train.weights().tolist() == [0.5, 1]
    with pytest.raises(HarmoniumError, match="all facts have the weight 0"):
        whole([row | {"w": 0} for row in rows], weight_column="w")


@each_titled
def test_unused_columns_are_named(tmp_path: Path, source: Source) -> None:
    graph = whole(source(tmp_path, ("head", "since", "relation", "tail", "trust"), [("a", 1, "r", "b", 2)]))
    (note,) = graph.notes
    assert (note.kind, note.count) == ("unused columns", 2)
    assert "columns not used: since, trust" in note.text and "--weight-column" in note.text


SPELLINGS = [
    ("subject", "predicate", "object"),
    ("source", "type", "target"),
    ("from", "rel", "to"),
    ("h", "r", "t"),
    ("s", "p", "o"),
    ("Head", "Rel", "Tail"),
    ("subject_id", "relation", "object_id"),
    ("entity1", "relationship", "entity2"),
    (":START_ID", ":TYPE", ":END_ID"),
    ("subject_label", "predicate_label", "object_label"),
]


@each_titled
@pytest.mark.parametrize("titles", SPELLINGS, ids=",".join)
def test_usual_titles_are_recognised(tmp_path: Path, source: Source, titles: Sequence[str]) -> None:
    assert facts(whole(source(tmp_path, titles, GOOD))) == GOOD
    turned = [titles[2], titles[0], titles[1]]
    assert facts(whole(source(tmp_path, turned, [(t, h, r) for h, r, t in GOOD]))) == GOOD


@each_titled
def test_a_column_that_is_missing_is_named_with_the_others(tmp_path: Path, source: Source) -> None:
    data = source(tmp_path, (*TITLES, "since"), [(*row, 1) for row in GOOD])
    for option in ({"columns": "subject,predicate,whom"}, {"weight_column": "whom"}, {"label_columns": "subject,whom"}):
        with pytest.raises(HarmoniumError, match="no column 'whom'; there are subject, predicate, object, since"):
            whole(data, **option)


# Other values in memory ----------------------------------------------------------------------------------------------


def test_one_fact_and_odd_values() -> None:
    assert facts(whole(("a", "r", "b"))) == [("a", "r", "b")]
    assert facts(whole({"head": "a", "relation": "r", "tail": "b"})) == [("a", "r", "b")]
    assert facts(whole(row for row in GOOD)) == GOOD
    assert facts(whole(numpy.array([[1, 0, 2], [2, 0, 3]]))) == [("1", "0", "2"), ("2", "0", "3")]
    record = numpy.array(GOOD, dtype=[("s", "U1"), ("p", "U1"), ("o", "U1")])
    assert facts(whole(record)) == GOOD
    assert facts(whole([(b"a", "r", 7), ("b", "r", 2.5)])) == [("a", "r", "7"), ("b", "r", "2.5")]
    rows = [
        ("a", "r", float("nan")),
        ("a", "r", pandas.NA),
        ("a", "r", pandas.NaT),
        ("a", "r", ["b"]),
        ("a", "r", b"\xff"),
    ]
    assert kinds(whole([*GOOD, *rows], on_bad="skip"), "skipped rows") == [5]
    for nothing in ([], numpy.empty((0, 3)), pandas.DataFrame({"head": [], "relation": [], "tail": []})):
        with pytest.raises(HarmoniumError, match="no triples in it"):
            whole(nothing)
    with pytest.raises(HarmoniumError, match="three columns; this one has the shape"):
        whole(numpy.zeros(3))
    with pytest.raises(HarmoniumError, match="different lengths: head 2, relation 1, tail 1"):
        whole({"head": ["a", "b"], "relation": ["r"], "tail": ["b"]})
    with pytest.raises(HarmoniumError, match="facts cannot be read from a int; give a name"):
        whole(3)
