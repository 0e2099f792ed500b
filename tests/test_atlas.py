"""The promises of the embedded graph's README."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import harmonium
from harmonium.datasets import EMBEDDED
from harmonium.graph import SPLITS, Graph

FOLDER = EMBEDDED["atlas"]
Fact = tuple[str, str, str]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return harmonium.load("atlas")


@pytest.fixture(scope="module")
def facts(graph: Graph) -> dict[str, list[Fact]]:
    return {split: graph.spell(getattr(graph, split)) for split in SPLITS}


@pytest.fixture(scope="module")
def everything(facts: dict[str, list[Fact]]) -> list[Fact]:
    return [fact for split in SPLITS for fact in facts[split]]


def test_it_is_large_enough_and_small_enough(graph: Graph) -> None:
    assert graph.n_entities >= 1500
    assert graph.n_relations >= 12
    assert len(graph.facts()) >= 8000
    assert sum(file.stat().st_size for file in FOLDER.glob("*.gz")) < 500_000
    assert graph.name == "atlas"


def test_the_readme_counts_every_relation_and_split(graph: Graph, facts: dict[str, list[Fact]]) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    counted = {split: Counter(relation for _, relation, _ in facts[split]) for split in SPLITS}
    table = re.findall(r"^\| ([^|*]+?) \| [^|]+ \| [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    stated = {name: tuple(int(number) for number in numbers) for name, *numbers in table}
    assert stated == {name: tuple(counted[split][name] for split in SPLITS) for name in graph.relations.ids}
    assert f"{graph.n_entities:,} entities, {graph.n_relations} relations and {len(graph.facts()):,} facts" in text
    assert " | ".join(f"**{len(facts[split]):,}**" for split in SPLITS) in text


def test_the_readme_examples_are_facts(everything: list[Fact]) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\| ([^|]+?) \| ([^|]+?) → ([^|]+?) \|", text, re.MULTILINE)
    assert len(examples) == 25
    known = set(everything)
    assert [example for example in examples if (example[1], example[0], example[2]) not in known] == []


def test_nothing_is_asked_of_the_unseen(graph: Graph, facts: dict[str, list[Fact]]) -> None:
    assert not graph.unseen(graph.valid).any()
    assert not graph.unseen(graph.test).any()
    assert {relation for _, relation, _ in facts["train"]} == set(graph.relations.ids)


def test_every_entity_keeps_two_others_in_train(graph: Graph, facts: dict[str, list[Fact]]) -> None:
    others = defaultdict(set)
    for head, _, tail in facts["train"]:
        others[head].add(tail)
        others[tail].add(head)
    assert [name for name in graph.entities.ids if len(others[name] - {name}) < 2] == []


def test_no_fact_is_told_twice(graph: Graph, everything: list[Fact]) -> None:
    assert graph.notes == ()
    assert len(set(everything)) == len(everything)


def test_facts_about_the_same_two_are_in_one_split(facts: dict[str, list[Fact]]) -> None:
    pairs = {split: {frozenset((head, tail)) for head, _, tail in facts[split]} for split in SPLITS}
    assert not pairs["train"] & pairs["valid"]
    assert not pairs["train"] & pairs["test"]
    assert not pairs["valid"] & pairs["test"]


@pytest.mark.parametrize("relation", ["borders", "near"])
def test_symmetric_facts_are_told_in_both_directions_in_one_split(facts: dict[str, list[Fact]], relation: str) -> None:
    for split in SPLITS:
        pairs = {(head, tail) for head, name, tail in facts[split] if name == relation}
        assert len(pairs) >= 70
        assert {(tail, head) for head, tail in pairs} == pairs


def test_no_relation_repeats_another_or_its_reverse(everything: list[Fact]) -> None:
    pairs = defaultdict(set)
    for head, relation, tail in everything:
        pairs[relation].add((head, tail))
    overlaps = {}
    for one, found in pairs.items():
        for other, others in pairs.items():
            if one != other:
                overlaps[one, other, "same"] = len(found & others) / len(found)
                overlaps[one, other, "reverse"] = len(found & {(t, h) for h, t in others}) / len(found)
    assert len(overlaps) == 2 * 25 * 24
    assert max(overlaps.values()) < 0.8
    assert max(overlaps.values()) < 0.065  # the README says that the most is 6 %


def test_switzerland_speaks_four_languages(facts: dict[str, list[Fact]]) -> None:
    spoken = {
        tail for head, relation, tail in facts["train"] if (head, relation) == ("Switzerland", "official language")
    }
    assert spoken == {"German", "French", "Italian", "Romansh"}


def test_capitals_are_not_also_located_in_their_country(everything: list[Fact]) -> None:
    capitals = {(tail, head) for head, relation, tail in everything if relation == "capital"}
    assert ("Bern", "Switzerland") in capitals
    assert not capitals & {(head, tail) for head, relation, tail in everything if relation == "located in"}


def test_its_licences_travel_with_it() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for source in ("GeoNames", "CC BY 4.0", "Unicode License v3", "World Bank"):
        assert source in text
    assert Path(FOLDER / "build.py").is_file()
