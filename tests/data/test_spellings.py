"""Names that must become one, and look-alikes that must not: written down by hand, a class at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

import harmonium
from harmonium.data.datasets import read_graph
from harmonium.data.graph import Graph
from harmonium.data.names import spelling_key
from harmonium.data.spellings import APART, UNITED

METALS = ["iron", "copper", "gold", "silver", "nickel"]


def read(*rows: tuple[str, str, str], unite: bool = True) -> Graph:
    return harmonium.load(list(rows), valid=0, test=0, unite=unite)


def metals(*names: str) -> list[tuple[str, str, str]]:
    """Each name in the same role, with facts of its own."""
    return [(name, "melts at", f"point {number}") for number, name in enumerate([*METALS, *names])]


def entities(graph: Graph) -> set[str]:
    return set(graph.entities.ids)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Zinc", "zinc"),  # case
        ("Zinc", "ZINC"),
        ("New York", "new york"),
        ("New York", "New_York"),  # underscores are whitespace
        ("New York", "New  York "),  # whitespace: also cleaned in every graph
        ("New York", "New\u00a0York"),
        ("S\u00e3o Paulo", "Sao Paulo"),  # accents
        ("S\u00e3o Paulo", "Sa\u0303o Paulo"),  # Unicode form
        ("Stra\u00dfe", "STRASSE"),
        ("caf\u00e9 au lait", "CAFE AU LAIT"),
        ("\uff2fxygen gas", "Oxygen gas"),  # full-width letters
        ("o\ufb03ce", "office"),  # a ligature
        ("GitHub", "Github"),
        ("vitamin b12", "Vitamin B12"),
        ("\u0130stanbul", "Istanbul"),
    ],
)
def test_spellings_of_one_name_become_one(first: str, second: str) -> None:
    rows = [*metals(first, second), (first, "melts at", "point 99")]
    graph = read(*rows)
    assert entities(graph) & {first, second} == {first}  # that has more facts
    assert graph.n_entities == len({*METALS, first} | {tail for _, _, tail in rows})
    assert {tail for head, _, tail in graph.names_of(graph.train) if head == first} == {
        "point 5",
        "point 6",
        "point 99",
    }
    assert graph.entities.index(second) == graph.entities.index(first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("CO", "Co"),  # symbols
        ("US", "us"),
        ("NaCl", "NACL"),
        ("aB3", "Ab3"),  # codes
        ("10\u00b2", "102"),  # another number
        ("C++", "C#"),
        ("room 12", "room 13"),
        ("Saint-Denis", "Saint Denis"),  # punctuation is only reported
        ("http://x.org/Zinc", "http://x.org/zinc"),  # identifiers
        ("NewYork", "New York"),
    ],
)
def test_other_names_stay_two(first: str, second: str) -> None:
    assert {first, second} <= entities(read(*metals(first, second)))


def test_names_in_one_fact_stay_two() -> None:
    rows = metals("Wolfram", "wolfram")
    assert "wolfram" not in entities(read(*rows))
    graph = read(*rows, ("wolfram", "is an ore of", "Wolfram"))
    assert {"Wolfram", "wolfram"} <= entities(graph)
    (note,) = [note for note in graph.notes if note.kind == APART]
    assert note.count == 1 and "in one fact" in note.text


def test_names_in_other_roles_stay_two() -> None:
    spoken = [(f"person {i}", "speaks", language) for i, language in enumerate(["Polish", "Thai", "Dutch", "Polish"])]
    bought = [(f"shop {i}", "sells", ware) for i, ware in enumerate(["polish", "wax", "soap"])]
    graph = read(*spoken, *bought)
    assert {"Polish", "polish"} <= entities(graph)
    assert any("Polish and polish (other roles)" in note.text for note in graph.notes)


def test_stated_types_are_roles() -> None:
    mixed = [("Mercury", "is a", "planet"), ("mercury", "is a", "metal"), ("Venus", "is a", "planet")]
    assert {"Mercury", "mercury"} <= entities(read(*mixed, ("iron", "is a", "metal")))
    same = [("Mercury", "is a", "metal"), ("mercury", "is a", "metal"), ("iron", "is a", "metal")]
    assert "mercury" not in entities(read(*same))


@pytest.mark.parametrize("other", ["Directed By", "directedBy", "DIRECTED_BY", "directed-by"])
def test_spellings_of_relations_become_one(other: str) -> None:
    rows = [(f"film {i}", "directed by" if i < 4 else other, f"person {i}") for i in range(6)]
    graph = read(*rows)
    assert list(graph.relations.ids) == ["directed by"]
    assert [note.count for note in graph.notes if note.kind == UNITED] == [1]


def test_facts_that_become_the_same_are_one_with_the_largest_weight() -> None:
    rows = [("Zinc", "is", "metal", 0.2), ("zinc", "is", "metal", 0.9), ("Zinc", "melts", "early", 0.5)]
    rows.append(("iron", "is", "metal", 1.0))
    table = {name: [row[i] for row in rows] for i, name in enumerate(("head", "relation", "tail", "weight"))}
    graph = harmonium.load(table, weight_column="weight", valid=0, test=0, unite=True)
    weights = dict(zip(graph.names_of(graph.train), graph.train.weight.tolist(), strict=True))
    assert weights == {("Zinc", "is", "metal"): 0.9, ("Zinc", "melts", "early"): 0.5, ("iron", "is", "metal"): 1.0}


def test_it_says_how_many_with_examples_and_a_way_out() -> None:
    graph = read(*metals("Zinc", "zinc", "ZINC", "tin", "Tin", "Lead", "lead"))
    (note,) = [note for note in graph.notes if note.kind == UNITED]
    assert note.count == 4 and note.text.startswith("united 4 other spellings of entities")
    assert "zinc with Zinc" in note.text and "--no-unite" in note.text
    kept = read(*metals("Zinc", "zinc"), unite=False)
    assert {"Zinc", "zinc"} <= entities(kept) and kept.notes == ()


def test_a_graph_with_splits_of_its_own_stays_as_it_is(write_folder) -> None:
    folder = write_folder({"train.txt": "Zinc\tis\tmetal\nzinc\tis\tmetal\n", "test.txt": "ZINC\tis\tmetal\n"})
    assert {"Zinc", "zinc", "ZINC"} <= entities(read_graph(folder))


def test_every_command_counts_the_same(tmp_path: Path) -> None:
    file = tmp_path / "facts.csv"
    rows = [*metals("Zinc", "zinc", "ZINC", "CO", "Co"), ("no tail", "melts at", "")]
    file.write_text("head,relation,tail\n" + "".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
    settings = {"dim": 2, "epochs": 1, "preset": "plain"}
    notes = {str(note) for note in read_graph(file).notes}
    assert sum("united 2 other spellings" in note for note in notes) == 1
    assert {*map(str, harmonium.train(file, **settings).graph.notes)} == notes
    assert {*harmonium.info(file)["graph"]["notes"]} == notes
    diagnosis = harmonium.doctor(file)
    assert {*diagnosis.notes} == notes
    (names,) = [finding for finding in diagnosis.findings if finding.name == "names of entities"]
    assert (names.numbers["united"], names.numbers["alike"], names.numbers["apart"], names.level) == (2, 0, 1, "ok")
    apart = harmonium.doctor(file, unite=False)
    (names,) = [finding for finding in apart.findings if finding.name == "names of entities"]
    assert (names.numbers["united"], names.numbers["alike"], names.level) == (0, 2, "warning")


@pytest.mark.parametrize("text", ["", " ", "_", "\u0301", "\u00b2"])
def test_no_name_has_an_empty_key(text: str) -> None:
    assert (spelling_key(text) == "") == (text == "")
