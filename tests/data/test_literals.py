"""Numbers and dates among entities: which names are values, and which relations have them."""

from __future__ import annotations

import pytest
import torch

import harmonium
from harmonium.data.graph import Graph
from harmonium.data.literals import Literals, is_value


@pytest.mark.parametrize(
    "name",
    ["7", "-7.14", "\u22127", "1,234,567", "1 234", "6.02e23", "1E-9", ".5", "12 %", "12%", "7.14 g/cm\u00b3",
     "30 km", "\u20ac 5", "$5.20", "~40", "<0.1",
     "1815", "1815-12-10", "1815-12", "1815-12-10T08:00:00Z", "10.12.1815", "12/10/1815", "10 December 1815", "Dec 10, 1815",
     "May 1999", "8:30", "3,5", "-40 \u00b0C"],
)  # fmt: skip
def test_numbers_and_dates_are_values(name: str) -> None:
    assert is_value(name)


@pytest.mark.parametrize(
    "name",
    ["Zinc", "", "-", "e5", "m/s", "U-235", "Boeing 747", "Route 66",
     "3M company", "Q42", "A4", "1st Avenue", "World War 2",
     "192.168.0.1", "may", "C4H10", "/m/02mjmr", "dog.n.01", "2nd", "12-a", "10, Downing Street", "seven"],
)  # fmt: skip
def test_other_names_are_none(name: str) -> None:
    assert not is_value(name)


def read(*rows: tuple[str, str, str]) -> Graph:
    return harmonium.load(list(rows), valid=0, test=0)


def values(graph: Graph) -> tuple[set[str], set[str]]:
    """The literal-valued relations and the literals, by name."""
    literals = Literals.infer(graph)
    relations = {graph.relations.ids[i] for i in literals.relations.nonzero()[:, 0].tolist()}
    return relations, {graph.entities.ids[i] for i in literals.entities.nonzero()[:, 0].tolist()}


METALS = ["zinc", "iron", "tin", "lead", "gold", "silver"]
DENSITIES = [(metal, "density", f"{7 + i}.5") for i, metal in enumerate(METALS)]
KINDS = [(metal, "is a", "metal") for metal in METALS]


def test_relations_whose_tails_are_values_have_them() -> None:
    assert values(read(*DENSITIES, *KINDS)) == ({"density"}, {f"{7 + i}.5" for i in range(6)})
    born = [(f"person {i}", "born", f"18{i}0-01-0{i + 1}") for i in range(6)]
    assert values(read(*born, *KINDS))[0] == {"born"}


def test_a_word_among_many_values_is_no_value() -> None:
    many = [(f"metal {i}", "density", f"{i}.5") for i in range(20)]
    relations, literals = values(read(*many, ("oil", "density", "unknown")))
    assert relations == {"density"} and "unknown" not in literals and len(literals) == 20


def test_a_few_numbers_among_entities_are_entities() -> None:
    films = [
        (f"film {i}", "title", title) for i, title in enumerate(["1917", "300", "Alien", "Brazil", "Heat", "Solaris"])
    ]
    assert values(read(*films)) == (set(), set())
    assert values(read(*DENSITIES[:3])) == (set(), set())  # too few facts to say


def test_numbers_that_are_identifiers_are_entities() -> None:
    """As in graphs whose entities are all numbers: WN18RR, or any table of ids."""
    ids = [(str(i), "next", str(i + 1)) for i in range(50)]
    assert values(read(*ids)) == (set(), set())


def test_a_year_that_something_is_said_of_is_an_entity() -> None:
    years = [(f"film {i}", "released in", str(1990 + i)) for i in range(12)]
    graph = read(*years, ("1990", "is a", "year of the horse"))
    relations, literals = values(graph)
    assert relations == {"released in"} and "1990" not in literals and "1991" in literals


def test_the_literals_of_a_graph_are_found_once() -> None:
    graph = read(*DENSITIES, *KINDS)
    assert graph.literals is graph.literals
    assert torch.equal(graph.literals.entities, Literals.infer(graph).entities) and len(graph.literals) == 6
