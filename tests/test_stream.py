"""Facts that come a part at a time: the same graph whatever the parts, and memory that does not grow with them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.formats import csv, files, parquet, stream
from harmonium.formats.stream import Column, Numbering, chosen, interleaved, repeated
from harmonium.graph import SPLITS, Graph, Triples
from test_graph_file import everything
from test_tensor_file import anonymous


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all were large."""
    monkeypatch.setattr(files, "BLOCK", 50)
    monkeypatch.setattr(stream, "HELD", 64)
    monkeypatch.setattr(stream, "FACTS", 7)


def lines(count: int, seed: int) -> list[tuple[str, str, str]]:
    draw = random.Random(seed)
    return [(f"é{draw.randrange(12)}", f"r{draw.randrange(3)}", f"é{draw.randrange(12)}") for _ in range(count)]


def by_hand(splits: dict[str, list[tuple[str, str, str]]]) -> tuple[list[str], list[str], dict[str, list[list[int]]]]:
    """What a graph is, said in the plainest way."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows: dict[str, list[list[int]]] = {}
    for split, facts in splits.items():
        numbered = []
        for head, relation, tail in facts:
            h = entities.setdefault(head, len(entities))
            t = entities.setdefault(tail, len(entities))
            numbered.append((h, relations.setdefault(relation, len(relations)), t))
        rows[split] = [list(row) for row in dict.fromkeys(numbered)]
    return list(entities), list(relations), rows


def write(folder: Path, splits: dict[str, list[tuple[str, str, str]]]) -> Path:
    folder.mkdir()
    for split, facts in splits.items():
        text = "\n\r\n" + "\n\n".join("\t".join(fact) for fact in facts)
        (folder / f"{split}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.mark.parametrize("seed", range(3))
def test_a_graph_in_small_parts_is_the_graph_by_hand(tmp_path: Path, seed: int, in_small_parts: None) -> None:
    splits = {split: lines(count, seed + count) for split, count in zip(SPLITS, (150, 20, 30), strict=True)}
    graph = load(write(tmp_path / "facts", splits))
    entities, relations, rows = by_hand(splits)
    assert (list(graph.entities.ids), list(graph.relations.ids)) == (entities, relations)
    assert {split: getattr(graph, split).rows().tolist() for split in SPLITS} == rows
    notes = []
    for split, facts in splits.items():
        if dropped := len(facts) - len(rows[split]):
            notes.append(f"{split}: dropped {dropped} repeated triples of {len(facts)}")
        seen, count = sum(row in rows["train"] for row in rows[split]), len(rows[split])
        if split != "train":
            notes.append(f"{split}: {seen} of {count} triples are in train too (kept): its metrics flatter")
    assert graph.notes == tuple(notes)


def test_small_parts_and_large_ones_give_one_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "facts.tsv"
    file.write_text("".join("\t".join(fact) + "\n" for fact in lines(300, seed=1)), encoding="utf-8")

    def made() -> tuple[Graph, Graph]:
        return load(file, valid=0, test=0), load(file, seed=3, valid=0.1, test=0.2)

    large = made()
    monkeypatch.setattr(files, "BLOCK", 64)
    monkeypatch.setattr(stream, "HELD", 100)
    monkeypatch.setattr(stream, "FACTS", 11)
    for one, other in zip(large, made(), strict=True):
        assert everything(one) == everything(other)
    assert len(large[1].test) > 10


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_in_small_parts_have_their_splits_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, in_small_parts: None
) -> None:
    """Names: the first in a column; a tail's wins over a head's, and the file beside over both."""
    monkeypatch.setattr(csv, "ROWS", 3)
    monkeypatch.setattr(parquet, "ROWS", 3)
    splits = {split: list(dict.fromkeys(lines(9, seed))) for seed, split in enumerate(SPLITS)}
    rows = [(*fact, split) for split, facts in splits.items() for fact in facts]
    random.Random(0).shuffle(rows)
    columns = dict(zip(("head", "relation", "tail", "split"), map(list, zip(*rows, strict=True)), strict=True))
    for end in ("head", "tail"):
        columns[f"{end}_name"] = [f"{end} {i} of {name}" for i, name in enumerate(columns[end])]
    table, file = pl.DataFrame(columns), tmp_path / f"facts.{kind}"
    table.write_csv(file) if kind == "csv" else table.write_parquet(file)
    (tmp_path / "entity_names.tsv").write_text("é1\tUno\n", encoding="utf-8")
    graph = load(file)
    entities, relations, numbered = by_hand({s: [r[:3] for r in rows if r[3] == s] for s in SPLITS})
    assert (list(graph.entities.ids), list(graph.relations.ids)) == (entities, relations)
    assert {split: getattr(graph, split).rows().tolist() for split in SPLITS} == numbered
    for name, shown in zip(graph.entities.ids, graph.entities.names, strict=True):
        end = "tail" if name in columns["tail"] else "head"
        assert shown == ("Uno" if name == "é1" else f"{end} {columns[end].index(name)} of {name}")
    table[4, "split"] = "later"
    table.write_csv(file) if kind == "csv" else table.write_parquet(file)
    with pytest.raises(HarmoniumError, match="row 5: split 'later' is not train, valid or test"):
        load(file)


def test_a_wrong_line_of_a_late_part_is_named(tmp_path: Path, in_small_parts: None) -> None:
    file = tmp_path / "facts.tsv"
    for wrong, message in (
        ("a\tb", "found 2 columns, expected 3"),
        ("a\t\tb", "the relation is empty"),
        ("a\tr\t\xe9", ""),
    ):
        text = "".join("\t".join(fact) + "\n" for fact in lines(40, seed=2)).encode() + wrong.encode("latin-1") + b"\n"
        file.write_bytes(text)
        with pytest.raises(HarmoniumError, match=rf"facts\.tsv:41: {message or 'not UTF-8'}"):
            load(file)


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=60)


@given(rows=rows, facts=st.integers(1, 20), held=st.integers(8, 300))
def test_repeated_triples_are_those_that_stood_before(rows: list[tuple[int, int, int]], facts: int, held: int) -> None:
    triples = Triples.from_rows([list(row) for row in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "FACTS", facts)
        patch.setattr(stream, "HELD", held)
        found = repeated(triples)
        assert found.tolist() == [row in rows[:place] for place, row in enumerate(rows)]
        assert chosen(triples, ~found).rows().tolist() == [list(row) for row in dict.fromkeys(rows)]


def test_triples_with_one_hash_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "mix", torch.zeros_like)
    rows = [[0, 0, 1], [1, 0, 0], [0, 0, 1], [2, 1, 0], [1, 0, 0]]
    assert repeated(Triples.from_rows(rows)).tolist() == [False, False, True, False, True]


@pytest.mark.parametrize("held", [0, 40, 1 << 20])
def test_a_column_is_all_that_was_added(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(stream, "HELD", held)
    column, numbers = Column(), np.arange(23)
    assert Column().tensor().tolist() == []
    for part in np.split(numbers, [0, 4, 5, 17]):
        column.add(part)
    column.add(numbers[::-2])
    found = column.tensor()
    del column
    assert found.dtype == torch.int64
    assert found.tolist() == [*range(23), *range(22, -1, -2)]


def test_names_are_numbered_as_they_come() -> None:
    numbering = Numbering()
    names = [f"name {(i * i) % 9973}" for i in range(30_000)]
    found = [numbering(pl.Series(names[start : start + 7000])) for start in range(0, len(names), 7000)]
    expected: dict[str, int] = {}
    assert np.concatenate(found).tolist() == [expected.setdefault(name, len(expected)) for name in names]
    assert list(numbering.texts()) == list(expected)
    assert list(Numbering().texts()) == []
    assert len(Numbering()(pl.Series([], dtype=pl.String))) == 0
    assert interleaved(pl.Series(["a", "b"]), pl.Series(["c", "d"])).to_list() == ["a", "c", "b", "d"]


def test_names_with_one_hash_are_an_error() -> None:
    """Not one name: what is found by one hash is checked by another."""
    numbering = Numbering()
    numbering(pl.Series(["a"]))
    numbering.keys[:] = pl.Series(["b"]).hash(0).to_numpy()
    with pytest.raises(HarmoniumError, match="two names have the same hash"):
        numbering(pl.Series(["c", "b"]))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells")
def test_a_large_column_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HELD", 1 << 20)
    before, column, part = anonymous(), Column(), np.arange(1 << 16)
    for _ in range(128):
        column.add(part.copy())
    found = column.tensor()
    assert len(found) == 1 << 23  # 64 MiB
    assert int(found.sum()) == 128 * int(part.sum())
    assert anonymous() - before < 1 << 24
