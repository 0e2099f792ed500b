"""Every kind of source with every kind of mess: the same facts, counts and notes, whatever they come from."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx
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


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_bytes_that_a_given_encoding_does_not_have_are_skipped(tmp_path: Path, encoding: str) -> None:
    texts = [f"{head},{relation},{tail}\n".encode(encoding) for head, relation, tail in GOOD]
    bad = (
        b"a,\x81,b\n" if encoding == "cp1252" else "a,".encode("utf-16")[2:] + b"\x00\xd8" + ",b\n".encode("utf-16")[2:]
    )
    (tmp_path / "facts.csv").write_bytes(
        b"".join([texts[0], bad, *(text.removeprefix(b"\xff\xfe") for text in texts[1:])])
    )
    with pytest.raises(HarmoniumError, match=rf":2: not {encoding} text"):
        whole(tmp_path / "facts.csv", encoding=encoding)
    assert facts(whole(tmp_path / "facts.csv", encoding=encoding, on_bad="skip")) == GOOD


def test_folders_of_ids_are_messy_too(write_folder) -> None:
    names = "a\t0\nb\t1\nc \t2\n  c\t3\n"
    train = "0\t1\t0\n1\t2\t0\n7\t1\t0\n1\tx\t0\n1\t2\n3\t0\t0\n"
    files = {"entity2id.txt": f"4\n{names}", "relation2id.txt": "1\nr\t0\n", "train2id.txt": f"6\n{train}"}
    folder = write_folder(files, "openke")
    with pytest.raises(
        HarmoniumError, match=r"train2id.txt:4: head 7 is not an id .*3 rows cannot be used.*--on-bad skip"
    ):
        load(folder)
    graph = load(folder, on_bad="skip")
    assert facts(graph) == [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]
    assert (kinds(graph, "cleaned"), sum(kinds(graph, "skipped rows"))) == ([2], 3)
    libkge = {
        "entity_ids.del": "".join(f"{line.split(chr(9))[1]}\t{line.split(chr(9))[0]}\n" for line in names.splitlines()),
        "relation_ids.del": "0\tr\n",
        "train.del": "0\t0\t1\n1\t0\t2\n7\t0\t1\nx\t0\t0\n3\t0\t0\n",
    }
    graph = load(write_folder(libkge, "libkge"), on_bad="skip")
    assert facts(graph) == [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]


@pytest.mark.parametrize("to", ["nt", "openke", "libkge", "graph"])
@pytest.mark.parametrize("option", [{"columns": "1,2,3"}, {"weight_column": "4"}, {"delimiter": ";"}, {"header": True}])
def test_options_of_tables_are_refused_where_there_is_none(tmp_path: Path, to: str, option: dict[str, Any]) -> None:
    out = tmp_path / ("facts.graph" if to == "graph" else "facts")
    convert(GOOD, out, None if to == "graph" else to)
    message = f"it is no table, so it has no {next(iter(option)).replace('_', ' ')}"
    if to == "nt" and "weight_column" in option:
        message = "no statement about a fact or its graph has the predicate '4'"
    with pytest.raises(HarmoniumError, match=message):
        load(out, **option)
    assert len(load(out, on_bad="skip", valid=0, test=0).train) == len(GOOD)


def test_a_file_that_is_all_wrong_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harmonium.data.tables.skipped_rows.MAX_COUNTED", 20)
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


def test_names_of_networkx_nodes_are_the_same() -> None:
    graph = networkx.MultiDiGraph()
    for head, relation, tail in MESSY:
        graph.add_edge(head, tail, predicate=relation)
    assert sorted(facts(whole(graph))) == sorted(CLEAN)


# Headers ---------------------------------------------------------------------------------------------------------


@each_untitled
@pytest.mark.parametrize(
    "titles", [("Head", "relation", "TAIL"), ("s", "p", "o"), ("from", "type", "to"), ("Person", "Tie", "Other")]
)
def test_a_header_is_no_fact_in_any_source(tmp_path: Path, source: Source, titles: Sequence[str]) -> None:
    graph = whole(source(tmp_path, titles, GOOD))
    assert facts(graph) == GOOD
    told = whole(source(tmp_path, titles, GOOD), header=False)
    assert (facts(told)[0], len(told.train), told.notes) == (tuple(titles), 6, ())


@each_untitled
def test_a_header_that_shares_a_name_is_recognised_by_its_words(tmp_path: Path, source: Source) -> None:
    """Films are entities below, so that the first row shares a name with others."""
    rows = [*GOOD, ("d", "q", "film"), ("c", "q", "film")]
    graph = whole(source(tmp_path, ("film", "relation", "genre"), rows))
    assert len(graph.train) == 7
    (note,) = [note for note in graph.notes if note.kind == "header"]
    assert "read as a header (film, relation, genre)" in note.text and "--no-header" in note.text


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


def test_attributes_of_networkx_are_columns() -> None:
    graph = networkx.DiGraph()
    graph.add_node("a", kind="person", title="Ann")
    graph.add_edge("a", "b", tie="r", trust=0.5)
    graph.add_edge("b", "a", tie="q", trust=-1)
    options = {
        "columns": "0,tie,1",
        "label_columns": "title,title",
        "type_columns": "kind,kind",
        "weight_column": "trust",
    }
    with pytest.raises(HarmoniumError, match=r"edge \(b, a\): the weight \(column 'trust'\) is not a finite number"):
        whole(graph, **options)
    read = whole(graph, on_bad="skip", **options)
    assert facts(read) == [("a", "r", "b"), ("a", "type", "person")]
    assert read.entities.name(0) == "Ann"


@each_titled
@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "much", "", None])
def test_a_weight_that_is_none_is_a_bad_row(tmp_path: Path, source: Source, weight: str | None) -> None:
    rows = [(*row, "1") for row in GOOD] + [("d", "r", "a", weight)]
    data = source(tmp_path, (*TITLES, "w"), rows)
    with pytest.raises(
        HarmoniumError, match=r"the weight \(column 'w'\) is not a finite number, 0 or more.*--on-bad skip"
    ):
        whole(data, weight_column="w")
    graph = whole(data, weight_column="w", on_bad="skip")
    assert (facts(graph), kinds(graph, "skipped rows")) == (GOOD, [1])


def test_weights_stay_with_their_facts(tmp_path: Path) -> None:
    rows = [(f"e{i % 17}", "r", f"e{i % 13}", i) for i in range(200)]
    graph = load(pl.DataFrame(rows, schema=["s", "p", "o", "n"], orient="row"), weight_column="n", test=0.2, valid=0.2)
    expected = {(head, tail): float(n) for head, _, tail, n in reversed(rows)}  # of repeated facts the first
    convert(graph, tmp_path / "facts.graph")
    for read in (graph, load(tmp_path / "facts.graph")):
        for split, triples in read.splits.items():
            assert len(triples) and triples.weight is not None
            weights = {(h, t): w for (h, _, t), w in zip(facts(read, split), triples.weight.tolist(), strict=True)}
            assert weights == {pair: expected[pair] for pair in weights}
    convert(graph, tmp_path / "facts.csv")
    again = load(tmp_path / "facts.csv", weight_column="weight")
    assert again.test.weight is not None and graph.test.weight is not None
    assert again.test.weight.tolist() == graph.test.weight.tolist()


@each_titled
def test_unused_columns_are_named(tmp_path: Path, source: Source) -> None:
    graph = whole(source(tmp_path, ("head", "since", "relation", "tail", "trust"), [("a", 1, "r", "b", 2)]))
    (note,) = graph.notes
    assert (note.kind, note.count) == ("unused columns", 2)
    assert "columns not used: since, trust" in note.text and "--weight-column" in note.text


@each_titled
def test_titles_that_say_nothing_are_read_in_order_with_a_note(tmp_path: Path, source: Source) -> None:
    """They may be the first fact of a table without a header."""
    graph = whole(source(tmp_path, ("film", "tie", "thing"), GOOD), header=True)
    assert facts(graph) == GOOD
    (note,) = graph.notes
    assert "columns film, tie, thing are read as head, relation and tail" in note.text


@each_titled
def test_columns_may_be_given_by_slot(tmp_path: Path, source: Source) -> None:
    data = source(tmp_path, ("x", "y", "z", "n"), [(r, t, h, f"name of {h}") for h, r, t in GOOD])
    graph = whole(data, columns={"head": "z", "relation": "x", "tail": "y"}, label_columns={"head": "n"})
    assert facts(graph) == GOOD
    assert graph.entities.name(0) == "name of a"
    with pytest.raises(HarmoniumError, match="columns are given for head, relation, tail, not for 'subject'"):
        whole(data, columns={"subject": "z"})


def test_bytes_of_parquet_are_names_where_they_are_text(tmp_path: Path) -> None:
    cells = [b"a", b"b", b"\xff"]
    frame = pl.DataFrame(
        {"head": cells, "relation": ["r"] * 3, "tail": ["x"] * 3}, schema_overrides={"head": pl.Binary}
    )
    frame.write_parquet(tmp_path / "facts.parquet")
    for source in (frame, tmp_path / "facts.parquet"):
        with pytest.raises(HarmoniumError, match="row 3: the head is empty"):
            whole(source)
        assert facts(whole(source, on_bad="skip")) == [("a", "r", "x"), ("b", "r", "x")]


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
    if titles != ("h", "r", "t"):  # initials count only in this order
        assert facts(whole(source(tmp_path, turned, [(t, h, r) for h, r, t in GOOD]))) == GOOD


def test_labels_beside_identifiers_are_recognised(tmp_path: Path) -> None:
    titles = ("subject_id", "subject_label", "predicate", "object_id", "object_label")
    rows = [("Q1", "Ann", "knows", "Q2", "Ben"), ("Q2", "Ben", "knows", "Q3", "")]
    for source in TITLED.values():
        graph = whole(source(tmp_path, titles, rows))
        assert facts(graph) == [("Q1", "knows", "Q2"), ("Q2", "knows", "Q3")]
        assert graph.entities.labels == ["Ann", "Ben", "Q3"]


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
    with pytest.raises(HarmoniumError, match="no facts can be made of a int; give a name"):
        whole(3)


def test_columns_of_an_untitled_frame_are_its_labels_or_numbers() -> None:
    frame = pandas.DataFrame([(t, h, r) for h, r, t in GOOD])
    for columns in ([1, 2, 0], "2,3,1"):
        assert facts(whole(frame, columns=columns)) == GOOD
    with pytest.raises(HarmoniumError, match="no column '0'; there are 1, 2, 3"):
        whole(GOOD, columns=[0, 1, 2])


def test_a_delimiter_has_several_names(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("a|r|b,c\nb|r|c,d\n")
    for name in ("delimiter", "separator", "sep"):
        assert facts(whole(tmp_path / "facts.csv", **{name: "|"}))[0] == ("a", "r", "b,c")
    with pytest.raises(HarmoniumError, match="give the delimiter once"):
        whole(tmp_path / "facts.csv", sep="|", delimiter=",")
