"""Facts that come a part at a time: the same graph whatever the parts, and memory that does not grow with them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

from graph_checks import memory_growth
from harmonium.data import compressed, growing_column, repeats
from harmonium.data import split as split_module
from harmonium.data.datasets import load
from harmonium.data.formats import parquet
from harmonium.data.graph import SPLITS
from harmonium.data.tables import table as tables
from harmonium.errors import HarmoniumError


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all were large."""
    set_sizes(monkeypatch, block=50, in_memory=64, chunk=7)


def set_sizes(patch: pytest.MonkeyPatch, block: int = 1 << 24, in_memory: int = 1 << 25, chunk: int = 1 << 22) -> None:
    patch.setattr(compressed, "BYTES_PER_BLOCK", block)
    patch.setattr(growing_column, "MAX_BYTES_IN_MEMORY", in_memory)
    for module in (growing_column, repeats, split_module):
        patch.setattr(module, "ROWS_PER_CHUNK", chunk)


def lines(count: int, seed: int) -> list[tuple[str, str, str]]:
    draw = random.Random(seed)
    return [(f"é{draw.randrange(12)}", f"r{draw.randrange(3)}", f"é{draw.randrange(12)}") for _ in range(count)]


def by_hand(splits: dict[str, list[tuple[str, str, str]]]) -> tuple[list[str], list[str], dict[str, list[list[int]]]]:
    """The entities, relations and rows of a graph, computed plainly."""
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
    assert {split: getattr(graph, split).to_rows().tolist() for split in SPLITS} == rows
    dropped = {split: len(facts) - len(rows[split]) for split, facts in splits.items()}
    notes = [("repeated", split, count) for split, count in dropped.items() if count]
    notes += [("in train", split, sum(row in rows["train"] for row in rows[split])) for split in SPLITS[1:]]
    found = [(note.kind, note.split, note.count) for note in graph.notes if note.kind != "many lost"]
    assert found == notes


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_in_small_parts_have_their_splits_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, in_small_parts: None
) -> None:
    """Names: the first in a column; a tail's wins over a head's, and the file beside over both."""
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 3)
    monkeypatch.setattr(parquet, "ROWS_PER_BATCH", 3)
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
    assert {split: getattr(graph, split).to_rows().tolist() for split in SPLITS} == numbered
    for name, shown in zip(graph.entities.ids, graph.entities.names, strict=True):
        end = "tail" if name in columns["tail"] else "head"
        assert shown == ("Uno" if name == "é1" else f"{end} {columns[end].index(name)} of {name}")
    table[4, "split"] = "later"
    table.write_csv(file) if kind == "csv" else table.write_parquet(file)
    with pytest.raises(HarmoniumError, match="row 5: split 'later' is not train, valid or test"):
        load(file)


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=60)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells")
def test_a_large_column_takes_no_memory() -> None:
    preparation = """
import numpy as np, torch
from harmonium.data import growing_column
from harmonium.data.growing_column import GrowingColumn
growing_column.MAX_BYTES_IN_MEMORY = 1 << 20
part = np.arange(1 << 16)
torch.ones(1 << 20).sum()  # starts torch's threads
"""
    statements = """
column = GrowingColumn()
for _ in range(128):
    column.append(part.copy())
tensor = column.tensor()
assert len(tensor) == 1 << 23  # 64 MiB
assert int(tensor.sum()) == 128 * int(part.sum())
"""
    assert memory_growth(preparation, statements) < 1 << 24
