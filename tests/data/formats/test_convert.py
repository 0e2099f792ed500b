"""Graphs out: every format holds what was put in, splits and names included."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import harmonium
from graph_checks import facts
from harmonium.data.datasets import load
from harmonium.data.formats.registry import GRAPH_FORMAT, targets, writer
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.names import clean_name
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from small import make_graph

FOLDERS = [to for to in targets() if to != GRAPH_FORMAT]
MERGED = ("nt", "ttl")  # RDF without named graphs cannot tell splits apart
ONE_FILE = [to for to in targets() if to == GRAPH_FORMAT or (to not in MERGED and writer(to).write is not None)]
ONE_FILE += ["txt.gz", "jsonl.gz", "nq.zst", "csv.xz"]
NAMES = [
    'say "hi"',
    "写于",
    "a, b; c",
    " spaced",
    "it's",
    "100 %",
    "/m/027rn",
    "http://x.y/z",
    "_:b",
    "null",
    "#",
    "\\n",
]
LABELS = ["Anna", "Ben", 'Carl "the" one', "Dora", "Anna", *NAMES[5:]]


@pytest.fixture
def graph() -> Graph:
    """Awkward names, a few with labels."""
    relations = Vocabulary(["r 0", "http://x.y/r", "r,2"], kind="relation")
    return replace(make_graph(n_entities=12), entities=Vocabulary(NAMES, LABELS), relations=relations)


def same(first: Graph, second: Graph) -> None:
    for split in SPLITS:
        assert facts(first, split) == facts(second, split)
    assert set(first.relations.ids) == set(second.relations.ids)
    shown = {name: first.entities.name(i) for i, name in enumerate(first.entities.ids)}
    assert shown == {name: second.entities.name(i) for i, name in enumerate(second.entities.ids)}


def as_read_from(kind: str, graph: Graph) -> Graph:
    """What a format keeps: all but RDF, which has identifiers, and .graph are read with clean names."""
    if kind == GRAPH_FORMAT or writer(kind).has_labels:
        return graph
    return replace(graph, entities=Vocabulary(map(clean_name, graph.entities.ids), graph.entities.labels))


@pytest.mark.parametrize("to", FOLDERS)
def test_a_folder_of_each_format_holds_everything(graph: Graph, tmp_path: Path, to: str) -> None:
    harmonium.convert(graph, tmp_path / "out", to)
    same(as_read_from(to, graph), load(tmp_path / "out"))


@pytest.mark.parametrize("ending", ONE_FILE)
def test_one_file_holds_everything(graph: Graph, tmp_path: Path, ending: str) -> None:
    written = harmonium.convert(graph, tmp_path / f"out.{ending}")
    assert written.notes == ()
    same(as_read_from(ending.split(".")[0], graph), load(tmp_path / f"out.{ending}"))


@pytest.mark.parametrize("ending", ["nt", "ttl.gz"])
def test_splits_that_a_file_cannot_hold_are_merged_with_a_note(graph: Graph, tmp_path: Path, ending: str) -> None:
    note = harmonium.convert(graph, tmp_path / f"out.{ending}").notes[-1]
    assert re.match(rf"out.{ending}: train, valid, test are merged.*\.nq", note.text)
    again = load(tmp_path / f"out.{ending}", valid=0, test=0)
    assert set(facts(again)) == {fact for split in SPLITS for fact in facts(graph, split)}


def test_nothing_is_overwritten_unless_asked(graph: Graph, tmp_path: Path) -> None:
    harmonium.convert(graph, tmp_path / "out")
    (tmp_path / "out" / "mine.md").write_text("keep me")
    with pytest.raises(HarmoniumError, match="out exists; .*--overwrite"):
        harmonium.convert("atlas", tmp_path / "out")
    bare = replace(graph, valid=graph.valid[:0], test=graph.test[:0])
    harmonium.convert(bare, tmp_path / "out", "csv", overwrite=True)
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["entity_names.tsv", "harmonium.json", "mine.md", "train.csv"]


@pytest.mark.parametrize("to", FOLDERS)
@pytest.mark.parametrize(
    "name", ["train.tsv", "test.csv", "valid.txt.gz", "entity_names.tsv", "relation2id.txt", "test.del"]
)
def test_files_of_others_are_named_and_kept(graph: Graph, tmp_path: Path, name: str, to: str) -> None:
    """They would be replaced by a file of the graph, or be read with it."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(HarmoniumError, match=f"{name}: not written by harmonium"):
        harmonium.convert(graph, tmp_path, to, overwrite=True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {name: "mine"}


def test_what_cannot_be_written_is_said_before_reading(tmp_path: Path) -> None:
    for out, to, message in (
        ("x.xlsx", None, "cannot write .xlsx; a file ends in .tsv"),
        ("x", "excel", "cannot write 'excel'; there are tsv, txt, csv"),
        ("x.csv", "nt", "'x.csv' and --to nt disagree"),
        ("x.parquet.gz", None, "a .parquet file is not compressed again; drop .gz"),
        ("x", "graph", "'x' and --to graph disagree"),
    ):
        with pytest.raises(HarmoniumError, match=message):
            harmonium.convert("no such graph", tmp_path / out, to)
    (tmp_path / "file").write_text("")
    with pytest.raises(HarmoniumError, match="cannot be written"):
        harmonium.convert("atlas", tmp_path / "file" / "x.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
