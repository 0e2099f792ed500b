"""Which columns are head, relation and tail: families of column names, contents, order, and doubt."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pandas
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_checks import facts, whole
from harmonium.data.tables.columns import FAMILIES, NAME_SUFFIXES, choose_columns
from harmonium.data.tables.reading_options import Options
from harmonium.errors import HarmoniumError

ELEMENTS = [
    ("Calcium", "same column as", "Magnesium"),
    ("Iron", "found by", "Ben"),
    ("Zinc", "same column as", "Cadmium"),
]
FACTS = [(f"{head} {n}", relation, f"{tail} {n}") for n in range(8) for head, relation, tail in ELEMENTS]
YEAR, SCORE, WIKI, COUNT = "1990", "0.5", "wiki", "7"

# titles, positions of head, relation and tail, and what the other columns hold
READ: dict[str, tuple[tuple[int, int, int], dict[str, str]]] = {
    "Substance;Property;Value;Source;Confidence": ((0, 1, 2), {"Source": WIKI, "Confidence": SCORE}),
    "item,property,value,source": ((0, 1, 2), {"source": WIKI}),
    "subject_id,predicate_id,object_id,source": ((0, 1, 2), {"source": WIKI}),
    "source,s,p,o": ((1, 2, 3), {"source": WIKI}),
    "entity_1,link,entity_2,source": ((0, 1, 2), {"source": WIKI}),
    "player,relation,club,from,to": ((0, 1, 2), {"from": YEAR, "to": YEAR}),
    "head_id,relation,tail_id,value": ((0, 1, 2), {"value": COUNT}),
    "source,relation,target,confidence": ((0, 1, 2), {"confidence": SCORE}),
    "id,source,target,type": ((1, 3, 2), {"id": COUNT}),
    ",head,relation,tail": ((1, 2, 3), {"": COUNT}),
    "Unnamed: 0,subject,predicate,object": ((1, 2, 3), {"Unnamed: 0": COUNT}),
    "person,relation,company,since": ((0, 1, 2), {"since": YEAR}),
    "person,relation,company": ((0, 1, 2), {}),
    "relation,person,company": ((1, 0, 2), {}),
    "head,predicate,object": ((0, 1, 2), {}),
    "object,subject,relation,source,target": ((1, 2, 0), {"source": WIKI, "target": WIKI}),
    "~id,~from,~to,~label": ((1, 3, 2), {"~id": COUNT}),
    "startNode,relationshipType,endNode": ((0, 1, 2), {}),
    "subject,predicate,object,year,url": ((0, 1, 2), {"year": YEAR, "url": "http://x.y"}),
    "arg1,rel,arg2,score": ((0, 1, 2), {"score": SCORE}),
    "Prädikat,Objekt,Subjekt,Quelle": ((2, 0, 1), {"Quelle": WIKI}),
    "尾实体,关系,头实体": ((2, 1, 0), {}),
    "subject uri,predicate uri,object uri": ((0, 1, 2), {}),
    **{",".join(order): (tuple(map(order.index, "hrt")), {}) for order in permutations("hrt")},  # type: ignore[dict-item]
    **{",".join(order): (tuple(map(order.index, "spo")), {}) for order in permutations("spo")},  # type: ignore[dict-item]
}
DOUBTFUL = [
    "film,genre,country",
    "name,mother,father",
    "a,b,c,d,e",
    "head,tail,source",
    "head,relation,tail,subject,predicate,object",
    "relation,a,b,c",
    "subject,predicate,note",
]


def table(header: str, positions: tuple[int, int, int], others: dict[str, str]) -> tuple[list[str], list[list[str]]]:
    titles = header.split(";" if ";" in header else ",")
    rows = []
    for fact in FACTS:
        cells = [others.get(title, "x") for title in titles]
        for position, name in zip(positions, fact, strict=True):
            cells[position] = name
        rows.append(cells)
    return titles, rows


def write(file: Path, titles: list[str], rows: list[list[str]], separator: str) -> Path:
    file.write_text("".join(separator.join(row) + "\n" for row in (titles, *rows)))
    return file


@pytest.mark.parametrize("header", READ)
def test_columns_are_those_of_one_family(tmp_path: Path, header: str) -> None:
    titles, rows = table(header, *READ[header])
    head, relation, tail = READ[header][0]
    reading = f"head = {titles[head]}, relation = {titles[relation]}, tail = {titles[tail]}; for example: "
    for source in (
        write(tmp_path / "facts.csv", titles, rows, ";" if ";" in header else ","),
        write(tmp_path / "facts.tsv", titles, rows, "\t"),
        pandas.DataFrame(rows, columns=titles),
    ):
        graph = whole(source)
        assert facts(graph) == FACTS
        assert graph.reading == f"{reading}Calcium 0 - same column as - Magnesium 0"


@pytest.mark.parametrize("header", DOUBTFUL)
def test_doubt_is_an_error_that_shows_rows_and_what_to_type(tmp_path: Path, header: str) -> None:
    titles, rows = table(header, (0, 1, 2), {})
    with pytest.raises(HarmoniumError, match=r'facts.csv:1: .*Calcium 0, same column as, Magnesium 0.*--columns "'):
        whole(write(tmp_path / "facts.csv", titles, rows, ","))
    told = whole(tmp_path / "facts.csv", columns="1,2,3", header=True)
    assert facts(told) == FACTS


@pytest.mark.parametrize(("head", "tail", "relations"), FAMILIES)
@given(data=st.data())
def test_a_complete_family_is_found_in_any_order_among_other_columns(
    head: str, tail: str, relations: tuple[str, ...], data: st.DataObject
) -> None:
    form = data.draw(st.sampled_from(["", "_id"] if len(head) > 1 else [""]))
    style: Callable[[str], str] = data.draw(st.sampled_from([str, str.upper, str.title, "#{}".format]))
    family = [head + form, data.draw(st.sampled_from(relations)), tail + form]
    others = data.draw(st.lists(st.sampled_from(["confidence", "year", "url", "notes", "rank"]), unique=True))
    titles = data.draw(st.permutations(family + others))
    chosen = choose_columns([style(title) for title in titles], Options(), "f.csv")
    assert [titles[chosen[column]] for column in ("head", "relation", "tail")] == family


def test_forms_of_titles_are_known() -> None:
    assert {"", "_id", "_label"} <= set(NAME_SUFFIXES)


def test_positions_decide_only_without_titles(tmp_path: Path) -> None:
    rows = [list(fact) for fact in FACTS]
    graph = whole(write(tmp_path / "facts.tsv", rows[0], rows[1:], "\t"))
    assert graph.reading.startswith("head = column 1, relation = column 2, tail = column 3; for example: Calcium 0")
    turned = [[head, tail, relation] for head, relation, tail in FACTS]
    with pytest.raises(HarmoniumError, match="the second column, which would be the relation, hardly ever repeats"):
        whole(write(tmp_path / "turned.tsv", turned[0], turned[1:], "\t"))
    assert facts(whole(tmp_path / "turned.tsv", columns="1,3,2")) == FACTS
    ring = [(f"a{n}", ("next", "before")[n % 2], f"a{(n + 1) % 30}") for n in range(30)]
    rows = [[head, tail, relation, ""] for head, relation, tail in ring]
    with pytest.raises(HarmoniumError, match='has names of the entities beside it.*--columns "1,3,2"'):
        whole(write(tmp_path / "ring.tsv", rows[0], rows[1:], "\t"))
    rows = [[*fact, ""] for fact in ring]  # a separator at the end of each row
    assert facts(whole(write(tmp_path / "ends.tsv", rows[0], rows[1:], "\t"))) == ring


def test_a_type_that_never_changes_is_in_doubt(tmp_path: Path) -> None:
    """Gephi writes Type = Directed, and relations as Label."""
    rows = [[head, tail, "Directed", relation] for head, relation, tail in FACTS]
    with pytest.raises(HarmoniumError, match="'Type' has one value only.*--columns \"Source,Label,Target\""):
        whole(write(tmp_path / "edges.csv", ["Source", "Target", "Type", "Label"], rows, ","))


def test_the_index_of_a_frame_may_hold_heads() -> None:
    frame = pandas.DataFrame(FACTS, columns=["head", "relation", "tail"])
    assert facts(whole(frame.set_index("head"))) == facts(whole(frame.set_index(["head", "relation"]))) == FACTS


def test_columns_that_pandas_numbered_are_no_fact(tmp_path: Path) -> None:
    frame = pandas.DataFrame(FACTS)
    for index in (True, False):
        frame.to_csv(tmp_path / "facts.csv", index=index)
        graph = whole(tmp_path / "facts.csv", **({"columns": "0,1,2"} if index else {}))
        assert facts(graph) == FACTS


def test_dates_are_no_heads_but_numbers_may_be_where_titles_say_so() -> None:
    years = pl.DataFrame({"from": [1990, 1991], "relation": ["r", "r"], "to": [1995, 1996]})
    assert facts(whole(years)) == [("1990", "r", "1995"), ("1991", "r", "1996")]
    assert facts(whole(years.with_columns(player=pl.Series(["a", "b"]), club=pl.Series(["c", "d"]))))[0] == (
        "a",
        "r",
        "c",
    )


# Rows that are lost --------------------------------------------------------------------------------------------------


def test_a_column_that_makes_most_rows_repeat_is_an_error(tmp_path: Path) -> None:
    rows = [(f"a{i % 4}", "r", f"b{i % 3}", str(i)) for i in range(200)]
    frame = pl.DataFrame(rows, schema=["subject", "predicate", "object", "note"], orient="row")
    with pytest.raises(HarmoniumError, match=r"188 of 200 rows repeat .*--columns A,B,C"):
        whole(frame)
    graph = whole(frame, columns="subject,predicate,object")
    (lost,) = [note for note in graph.notes if note.kind == "many lost"]
    assert (len(graph.train), lost.count) == (12, 188)
    assert not [note for note in whole(frame.unique(["subject", "object"])).notes if note.kind == "many lost"]
