"""Tab-separated triples, OpenKE and LibKGE folders, and errors that name file and line."""

from __future__ import annotations

import gzip
import lzma

import pytest

import harmonium
from harmonium.data.compressed import zstd
from harmonium.data.datasets import load

FACTS = "Bern\tcapital of\tSwitzerland\nBern\tlocated in\tSwitzerland\n"
SPELT = [("Bern", "capital of", "Switzerland"), ("Bern", "located in", "Switzerland")]


# Tab-separated ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train.txt", FACTS),
        ("train.tsv", FACTS),
        ("train.txt.gz", gzip.compress(FACTS.encode(), mtime=0)),
        ("train.txt.xz", lzma.compress(FACTS.encode())),
        ("train.tsv.zst", zstd.compress(FACTS.encode())),
        ("train.txt", FACTS.rstrip("\n")),
        ("train.txt", FACTS.replace("\n", "\r\n")),
        ("train.txt", "\ufeff" + FACTS),
        ("train.txt", "\n\n" + FACTS.replace("\n", "\n\n")),
        ("train.txt", ("\n" + FACTS + "\n").replace("\n", "\r\n")),
        ("train.tsv.gz", gzip.compress(b"\n" + FACTS.encode(), mtime=0)),
    ],
)
def test_a_folder_of_triples_is_read(write_folder, file: str, content: str | bytes) -> None:
    graph = harmonium.load(write_folder({file: content}))
    assert graph.names_of(graph.train) == SPELT
    assert graph.name == "graph"
    assert graph.notes == ()


def test_names_are_kept_as_they_are(write_folder) -> None:
    rows = [
        ('"quoted"', "it's", 'a "b" c'),
        ("'", "N/A", "null"),
        ("Zürich", "写于", "🇨🇭 España"),
        ("#comment", "with spaces", "1,5;x"),
        ("1e3", "007", "true"),
    ]
    graph = load(write_folder({"train.tsv": "".join("\t".join(row) + "\n" for row in rows)}))
    assert graph.names_of(graph.train) == rows


# OpenKE ----------------------------------------------------------------------------------------------------------

OPENKE = {
    "entity2id.txt": "3\nNew York\t2\nBern\t0\nParis\t1\n",
    "relation2id.txt": "2\nlikes\t0\nnear\t1\n",
    "train2id.txt": "2\n0\t2\t1\n1\t0\t0\n",  # head tail relation
    "test2id.txt": "1\n2 1 0\n",
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_openke_ids_are_head_tail_relation(write_folder, newline: str) -> None:
    graph = load(write_folder({file: text.replace("\n", newline) for file, text in OPENKE.items()}))
    assert graph.entities.ids == ["Bern", "Paris", "New York"]
    assert graph.relations.ids == ["likes", "near"]
    assert graph.names_of(graph.train) == [("Bern", "near", "New York"), ("Paris", "likes", "Bern")]
    assert graph.names_of(graph.test) == [("New York", "likes", "Paris")]
    assert len(graph.valid) == 0


# LibKGE ----------------------------------------------------------------------------------------------------------

LIBKGE = {
    "entity_ids.del": "0\tQ72\n1\tQ39\n2\tQ90\n",
    "relation_ids.del": "0\tP17\n1\tP47\n",
    "train.del": "0\t0\t1\n1\t1\t2\n",
    "test.del": "2\t1\t1\n",
}


def test_libkge_ids_are_head_relation_tail(write_folder) -> None:
    graph = load(write_folder(LIBKGE))
    assert graph.names_of(graph.train) == [("Q72", "P17", "Q39"), ("Q39", "P47", "Q90")]
    assert graph.names_of(graph.test) == [("Q90", "P47", "Q39")]
    assert len(graph.valid) == 0


@pytest.mark.parametrize("strings", ["Q39\tSwitzerland\nQ72\tBern\n", "1\tSwitzerland\n0\tBern\n7\tnobody\n"])
def test_libkge_strings_by_identifier_or_index(write_folder, strings: str) -> None:
    graph = load(write_folder(LIBKGE | {"entity_strings.del": strings, "relation_strings.del": "P17\tcountry\n"}))
    assert graph.entities.labels == ["Bern", "Switzerland", "Q90"]
    assert graph.relations.labels == ["country", "P47"]
