"""The promises of the embedded graph's README."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import permutations

import pytest

import harmonium
from harmonium.data.datasets import EMBEDDED
from harmonium.data.graph import SPLITS, Graph

FOLDER = EMBEDDED["atlas"]
Fact = tuple[str, str, str]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return harmonium.load("atlas")


@pytest.fixture(scope="module")
def facts(graph: Graph) -> dict[str, list[Fact]]:
    return {split: graph.names_of(triples) for split, triples in graph.splits.items()}


@pytest.fixture(scope="module")
def everything(facts: dict[str, list[Fact]]) -> list[Fact]:
    return [fact for split in SPLITS for fact in facts[split]]


@pytest.fixture(scope="module")
def readme() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_it_is_large_enough_and_small_enough(graph: Graph) -> None:
    assert (graph.name, graph.notes) == ("atlas", ())
    assert graph.n_entities >= 1500
    assert graph.n_relations >= 12
    assert len(graph.facts()) >= 8000
    assert sum(file.stat().st_size for file in FOLDER.glob("*.gz")) < 500_000


def test_the_readme_counts_every_relation_and_split(graph: Graph, facts: dict[str, list[Fact]], readme: str) -> None:
    counted = {split: Counter(relation for _, relation, _ in facts[split]) for split in SPLITS}
    table = re.findall(r"^\| ([^|*]+?) \| [^|]+ \| [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$", readme, re.MULTILINE)
    stated = {name: tuple(int(number) for number in numbers) for name, *numbers in table}
    assert stated == {name: tuple(counted[split][name] for split in SPLITS) for name in graph.relations.ids}
    assert f"{graph.n_entities:,} entities, {graph.n_relations} relations and {len(graph.facts()):,} facts" in readme
    assert " | ".join(f"**{len(facts[split]):,}**" for split in SPLITS) in readme


def test_its_licences_travel_with_it(readme: str) -> None:
    for source in ("GeoNames", "CC BY 4.0", "Unicode License v3", "World Bank"):
        assert source in readme


def test_every_relation_and_two_neighbours_of_every_entity_are_in_train(
    graph: Graph, facts: dict[str, list[Fact]]
) -> None:
    neighbours = defaultdict(set)
    for head, _, tail in facts["train"]:
        neighbours[head].add(tail)
        neighbours[tail].add(head)
    assert [name for name in graph.entities.ids if len(neighbours[name] - {name}) < 2] == []
    assert {relation for _, relation, _ in facts["train"]} == set(graph.relations.ids)


def test_facts_over_the_same_pair_are_in_one_split(facts: dict[str, list[Fact]], everything: list[Fact]) -> None:
    assert len(set(everything)) == len(everything)
    pairs = [{frozenset((head, tail)) for head, _, tail in facts[split]} for split in SPLITS]
    assert sum(map(len, pairs)) == len(set().union(*pairs))


@pytest.mark.parametrize("relation", ["borders", "near"])
def test_symmetric_facts_stand_in_both_directions_in_one_split(facts: dict[str, list[Fact]], relation: str) -> None:
    for split in SPLITS:
        pairs = {(head, tail) for head, name, tail in facts[split] if name == relation}
        assert len(pairs) >= 70
        assert {(tail, head) for head, tail in pairs} == pairs


def test_no_relation_repeats_another_or_its_reverse(everything: list[Fact]) -> None:
    pairs = defaultdict(set)
    for head, relation, tail in everything:
        pairs[relation].add((head, tail))
    overlaps = []
    for one, other in permutations(pairs.values(), 2):
        overlaps.append(len(one & other) / len(one))
        overlaps.append(len(one & {(tail, head) for head, tail in other}) / len(one))
    assert len(overlaps) == 2 * 25 * 24
    assert max(overlaps) < 0.065  # the README says that the most is 6 %
