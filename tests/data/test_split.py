"""The random split: seeded, complete, and without leaks."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.split import split


def random_file(folder: Path, n_entities: int, n_relations: int, count: int, seed: int) -> Path:
    draw = random.Random(seed)
    rows = [(draw.randrange(n_entities), draw.randrange(n_relations), draw.randrange(n_entities)) for _ in range(count)]
    file = folder / "facts.tsv"
    file.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in rows), encoding="utf-8")
    return file


def names(graph: Graph) -> dict[str, set[tuple[str, str, str]]]:
    return {split: set(graph.names_of(triples)) for split, triples in graph.splits.items()}


def test_one_file_is_split_by_its_seed(tmp_path: Path) -> None:
    file = random_file(tmp_path, 30, 3, 600, seed=1)
    first, again, other = load(file, seed=4), load(file, seed=4), load(file, seed=5)
    assert names(first) == names(again)
    assert names(first) != names(other)
    assert first.name == "facts"
    assert "seed 4" in first.notes[-1].text
    quarter = load(file, valid=0.1, test=0.25)
    assert len(quarter.test) == pytest.approx(0.25 * len(quarter.facts()), abs=6)
    assert len(quarter.valid) == pytest.approx(0.1 * len(quarter.facts()), abs=6)
    assert len(load(file, valid=0, test=0).train) == len(first.facts())
    large = load(random_file(tmp_path, 200, 3, 6000, seed=1), valid=0.1, test=0.25)
    assert len(large.test) == pytest.approx(0.25 * len(large.facts()), rel=0.1)


@given(
    n_entities=st.integers(1, 25), n_relations=st.integers(1, 4), count=st.integers(1, 80), seed=st.integers(0, 999),
    valid=st.floats(0, 0.45), test=st.floats(0, 0.45),
)  # fmt: skip
def test_the_split_is_honest(
    n_entities: int, n_relations: int, count: int, seed: int, valid: float, test: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = load(random_file(Path(folder), n_entities, n_relations, count, seed), valid=0, test=0)
    graph = split(whole, seed=seed, valid=valid, test=test)
    parts = names(graph)
    assert sum(len(part) for part in parts.values()) == len(whole.train)
    assert set().union(*parts.values()) == set(whole.names_of(whole.train))
    trained = {name for h, _, t in parts["train"] for name in (h, t)}
    assert trained == set(graph.entities.ids)
    assert {relation for _, relation, _ in parts["train"]} == set(graph.relations.ids)
    pairs = {name: {frozenset((h, t)) for h, _, t in part} for name, part in parts.items()}
    assert not (pairs["train"] & pairs["valid"] or pairs["train"] & pairs["test"] or pairs["valid"] & pairs["test"])


@given(
    seed=st.integers(0, 99),
    change=st.sampled_from(["add", "remove", "shuffle", "prepend"]),
    count=st.integers(300, 900),
)
@settings(max_examples=25, deadline=None)
def test_a_changed_file_leaves_other_facts_in_their_splits(seed: int, change: str, count: int) -> None:
    """But for those that go back to train so that every name is trained."""
    draw = random.Random(seed)
    rows = sorted({(draw.randrange(40), draw.randrange(3), draw.randrange(40)) for _ in range(count)})
    draw.shuffle(rows)
    facts = [(f"é{h}", f"r{r}", f"é{t}") for h, r, t in rows]
    new = [(f"é{draw.randrange(40)}", "r1", f"new {i}") for i in range(20)]
    changed = {
        "add": facts + new,
        "prepend": new + facts,
        "remove": facts[9:],
        "shuffle": draw.sample(facts, len(facts)),
    }
    shares = {"valid": 0.1, "test": 0.1}
    before, after = (names(load(each, seed=seed, **shares)) for each in (facts, changed[change]))
    kept = set(facts) & set(changed[change])
    in_train_twice = before["train"] | after["train"]
    moved = {
        fact for fact in kept if {s for s in before if fact in before[s]} != {s for s in after if fact in after[s]}
    }
    assert moved <= in_train_twice and len(moved) <= (0 if change == "shuffle" else 12)
