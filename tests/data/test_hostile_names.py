"""What is accepted is what the file says: names and facts that a format could confuse with its own signs."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from graph_checks import facts
from harmonium.data.datasets import convert, load
from harmonium.data.graph import SPLITS, Graph
from harmonium.errors import HarmoniumError

TARGETS = [
    ("f.tsv", None), ("f.csv", None), ("f.jsonl", None), ("f.parquet", None), ("f.nq", None), ("f.graph", None),
    ("d", "tsv"), ("d", "csv"), ("d", "nt"), ("d", "ttl"), ("d", "openke"), ("d", "libkge"),
]  # fmt: skip
GRAPHS = {
    "relation like a blank node": [("a", "_:r", "b", "train"), ("_:a", "_:r", "_:b", "train")],
    "quoted names": [('"a"', '"r"', '"b"', "train"), ('"b"', '"r"', '"a"', "train")],
    "first fact like a header": [("subject", "predicate", "object", "train"), ("a", "r", "b", "train")],
    "first fact names a column twice": [("head", "head", "tail", "train"), ("a", "r", "b", "train")],
    "first fact of a split shares no name": [
        ("a", "r", "b", "train"), ("b", "r", "a", "train"), ("x", "s", "y", "test"), ("a", "r", "a", "test"),
    ],
    "names of ours": [("urn:harmonium:name:%FF", "r", "urn:harmonium:name:%FE", "train"), ("%20", "r", "a/b", "train")],
}  # fmt: skip


@pytest.mark.parametrize(("out", "to"), TARGETS)
@pytest.mark.parametrize("rows", GRAPHS.values(), ids=GRAPHS)
def test_every_format_gives_back_the_facts_it_got(
    rows: list[tuple[str, ...]], out: str, to: str, tmp_path: Path
) -> None:
    graph = load(pl.DataFrame(rows, schema=["head", "relation", "tail", "split"], orient="row"), valid=0, test=0)
    convert(graph, tmp_path / out, to)
    again = load(tmp_path / out, valid=0, test=0)
    assert {split: facts(again, split) for split in SPLITS} == {split: facts(graph, split) for split in SPLITS}


@pytest.mark.parametrize(("out", "to"), [("f.nq", None), ("d", "nt"), ("d", "ttl")])
def test_a_fact_of_two_splits_keeps_both_weights_in_rdf(out: str, to: str, tmp_path: Path) -> None:
    rows = [("a", "r", "b", "train", 1.0), ("b", "r", "a", "train", 0.3), ("a", "r", "b", "test", 0.1)]
    table = pl.DataFrame(rows, schema=["head", "relation", "tail", "split", "weight"], orient="row")
    graph = load(table, valid=0, test=0, weight_column="weight")
    convert(graph, tmp_path / out, to)
    again = load(tmp_path / out)
    assert again.train.weights().tolist() == [1.0, 0.3] and again.test.weights().tolist() == [0.1]


def read(path: Path, content: str | bytes, **options: object) -> Graph:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load(path, valid=0, test=0, **options)


def test_numbers_in_json_are_names_as_they_are_written(tmp_path: Path) -> None:
    text = '{"head": 1.10, "relation": 1e3, "tail": 1E400}\n{"head": -0, "relation": 1e3, "tail": "d\u2028e"}\n'
    expected = [("1.10", "1e3", "1E400"), ("-0", "1e3", "d e")]
    assert facts(read(tmp_path / "f.jsonl", text)) == expected
    assert facts(read(tmp_path / "f.json", text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"head": "a", "head": "b", "relation": "r", "tail": "c"}', "f.jsonl:1: a key is repeated"),
        ('{"head": "a\\ud800", "relation": "r", "tail": "c"}', "f.jsonl:1: an unpaired surrogate"),
        ('{"head": Infinity, "relation": "r", "tail": "c"}', "f.jsonl:1: the head is empty"),
    ],
)
def test_json_that_holds_no_sure_name_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=message):
        read(tmp_path / "f.jsonl", text)


@pytest.mark.parametrize("name", ["valid.txt", "entity_names.tsv"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "broken link", "link to itself"])
def test_a_part_of_a_graph_that_is_no_file_is_an_error(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\n")
    part = tmp_path / name
    if kind == "pipe":
        os.mkfifo(part)
    elif kind == "folder":
        part.mkdir()
    else:
        part.symlink_to(name if kind == "link to itself" else "nowhere")
    with pytest.raises(HarmoniumError, match=f"{name}: (is a pipe|is a folder|a link to a file that does not exist)"):
        load(tmp_path)
