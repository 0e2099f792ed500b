"""One spelling of a name, whatever its blanks and Unicode form, in every format."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import networkx
import pandas
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_checks import facts, whole
from harmonium.answers.query import ask
from harmonium.data.names import clean_name
from harmonium.data.tables.encode import clean_names
from harmonium.data.tables.fact_file import read_triples

DECOMPOSED = unicodedata.normalize("NFD", "São Paulo")
ROWS = [
    ("São Paulo", "in", "Brasil"),
    (DECOMPOSED, "twin  city", "Lisboa"),
    ("São\u00a0 Paulo ", "in", "América"),
    (" São Paulo", "twin city", "Lisboa\u200b"),
    ("Lisboa", "in", "Europa"),
]
CLEAN = [
    ("São Paulo", "in", "Brasil"),
    ("São Paulo", "twin city", "Lisboa"),
    ("São Paulo", "in", "América"),
    ("Lisboa", "in", "Europa"),
]
COLUMNS = ("head", "relation", "tail")


def text(separator: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = folder / ("facts.tsv" if separator == "\t" else "facts.csv")
        file.write_text("".join(separator.join(row) + "\n" for row in ROWS), encoding="utf-8")
        return file

    return write


def jsonl(folder: Path) -> Path:
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in ROWS]
    (folder / "facts.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "facts.jsonl"


def parquet(folder: Path) -> Path:
    pl.DataFrame(ROWS, schema=COLUMNS, orient="row").write_parquet(folder / "facts.parquet")
    return folder / "facts.parquet"


def edges(folder: Path) -> networkx.MultiDiGraph:
    graph = networkx.MultiDiGraph()
    for head, relation, tail in ROWS:
        graph.add_edge(head, tail, relation=relation)
    return graph


SOURCES: dict[str, Callable[[Path], object]] = {
    "csv": text(","),
    "semicolons": text(";"),
    "tsv": text("\t"),
    "jsonl": jsonl,
    "parquet": parquet,
    "pandas": lambda folder: pandas.DataFrame(ROWS, columns=COLUMNS),
    "polars": lambda folder: pl.DataFrame(ROWS, schema=COLUMNS, orient="row"),
    "networkx": edges,
}


@pytest.mark.parametrize("on_bad", ["error", "skip"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_spellings_are_one_entity_in_every_format(
    tmp_path: Path, source: Callable[[Path], object], on_bad: str
) -> None:
    graph = whole(source(tmp_path), on_bad=on_bad)
    assert sorted(facts(graph)) == sorted(CLEAN)
    notes = {note.kind: note for note in graph.notes}
    assert (notes["repeated"].count, notes["united"].count) == (1, 1)  # united: of relations, the last note
    entities = next(note for note in graph.notes if note.kind == "united")
    assert "of 2 entities that differ in whitespace or Unicode form: São Paulo, Lisboa" in entities.text


def test_queries_may_spell_names_in_another_way(tmp_path: Path) -> None:
    graph = whole(pl.DataFrame(CLEAN, schema=COLUMNS, orient="row"))
    assert ask(graph, f" {DECOMPOSED}", "twin\u00a0city").text == "São Paulo, twin city, ?"
    assert DECOMPOSED in graph.entities
    (tmp_path / "queries.tsv").write_text(f"{DECOMPOSED} \tin\tBrasil\n", encoding="utf-8")
    (triples,) = read_triples(tmp_path / "queries.tsv", graph)
    assert graph.names_of(triples) == CLEAN[:1]


def test_labels_follow_their_identifiers(write_folder) -> None:
    files = {"train.tsv": " a\tr\tb \nb\tr\tc\n", "entity_names.tsv": f"a \tSa\u0303o  Paulo\nb\t{DECOMPOSED} 2\n"}
    graph = whole(write_folder(files))
    assert graph.entities.labels == ["São Paulo", "São Paulo 2", "c"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_column_is_cleaned_as_each_name_is(names: list[str]) -> None:
    column = pl.Series(names, dtype=pl.String)
    assert clean_names(column).to_list() == [clean_name(name) for name in names]
    assert column.to_list() == names
