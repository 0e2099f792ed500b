"""Graphs in: the tsv and openke formats, one file with a split, and what is said when a file is wrong."""

from __future__ import annotations

import gzip
import lzma
import random
import re
import tempfile
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import harmonium
from harmonium import formats
from harmonium.datasets import load, split
from harmonium.errors import HarmoniumError
from harmonium.formats.files import zstd
from harmonium.graph import SPLITS, Graph

FACTS = "Bern\tcapital of\tSwitzerland\nBern\tlocated in\tSwitzerland\n"
SPELT = [("Bern", "capital of", "Switzerland"), ("Bern", "located in", "Switzerland")]


# Tab-separated ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train.txt", FACTS),
        ("train.tsv", FACTS),
        ("train.txt.gz", gzip.compress(FACTS.encode())),
        ("train.tsv.gz", gzip.compress(FACTS.encode())),
        ("train.txt.xz", lzma.compress(FACTS.encode())),
        ("train.tsv.zst", zstd.compress(FACTS.encode())),
        ("train.txt", FACTS.rstrip("\n")),
        ("train.txt", FACTS.replace("\n", "\r\n")),
        ("train.txt", "\ufeff" + FACTS),
        ("train.txt", "\n\n" + FACTS.replace("\n", "\n\n")),
        ("train.txt", ("\n" + FACTS + "\n").replace("\n", "\r\n")),
        ("train.tsv.gz", gzip.compress(b"\n" + FACTS.encode())),
    ],
    ids=[
        "txt",
        "tsv",
        "txt.gz",
        "tsv.gz",
        "txt.xz",
        "tsv.zst",
        "no last newline",
        "CRLF",
        "BOM",
        "blank",
        "blank CRLF",
        "blank gz",
    ],
)
def test_a_folder_of_triples_is_read(write_folder, file: str, content: str | bytes) -> None:
    graph = harmonium.load(write_folder({file: content}))
    assert graph.spell(graph.train) == SPELT
    assert graph.name == "graph"
    assert graph.notes == ()


def test_a_folder_brings_its_own_splits(write_folder) -> None:
    folder = write_folder({"train.txt": FACTS, "valid.tsv": "a\tr\tb\n", "test.txt.gz": gzip.compress(b"b\tr\ta\n")})
    graph = load(folder)
    assert graph.spell(graph.valid) == [("a", "r", "b")]
    assert graph.spell(graph.test) == [("b", "r", "a")]
    assert len(graph.train) == 2
    assert len(load(write_folder({"train.txt": FACTS}, "other")).test) == 0


def test_names_are_kept_as_they_are(write_folder) -> None:
    rows = [
        ('"quoted"', "it's", 'a "b" c'),
        ("'", "N/A", "null"),
        ("Zürich", "写于", "🇨🇭 España"),
        (" spaces ", "#comment", "1,5;x"),
        ("1e3", "007", "true"),
    ]
    graph = load(write_folder({"train.tsv": "".join("\t".join(row) + "\n" for row in rows)}))
    assert graph.spell(graph.train) == rows


def test_ids_are_in_order_of_first_appearance(write_folder) -> None:
    folder = write_folder({"train.txt": "c\ts\ta\na\tr\tb\n", "valid.txt": "e\tr\tc\n", "test.txt": "d\tq\ta\n"})
    graph = load(folder)
    assert graph.entities.ids == ["c", "a", "b", "e", "d"]
    assert graph.relations.ids == ["s", "r", "q"]
    assert graph.train.rows().tolist() == [[0, 0, 1], [1, 1, 2]]
    assert graph.valid.rows().tolist() == [[3, 1, 0]]
    assert graph.test.rows().tolist() == [[4, 2, 1]]


def test_names_files_give_labels(write_folder) -> None:
    files = {
        "train.txt": "Q72\tP17\tQ39\nQ90\tP17\tQ142\n",
        "entity_names.tsv": "Q39\tSwitzerland\nQ72\tZürich\nQ72\tsecond name\nQ64\tBerlin\n",
        "relation_names.tsv": "P17\tcountry\n",
    }
    graph = load(write_folder(files))
    assert graph.entities.ids == ["Q72", "Q39", "Q90", "Q142"]
    assert graph.entities.labels == ["Zürich", "Switzerland", "Q90", "Q142"]
    assert graph.spell(graph.train)[0] == ("Zürich", "country", "Switzerland")
    assert load(write_folder({"train.txt": FACTS}, "bare")).entities.labels is None


def test_repeated_triples_are_dropped_and_counted(write_folder) -> None:
    folder = write_folder({"train.txt": FACTS * 3 + "a\tr\tb\n", "valid.txt": "a\tr\tb\n", "test.txt": "b\tr\ta\n" * 2})
    graph = load(folder)
    assert graph.spell(graph.train) == [*SPELT, ("a", "r", "b")]
    assert graph.notes == (
        "train: dropped 4 repeated triples of 7",
        "valid: 1 of 1 triples are in train too (kept): its metrics flatter",
        "test: dropped 1 repeated triples of 2",
    )


BAD_TSV = {
    "two columns": ("a\tr\tb\nb\tr\n", ":2: found 2 columns, expected 3: head TAB relation TAB tail"),
    "four columns": ("a\tr\tb\n\nb\tr\tc\td\n", ":3: found 4 columns, expected 3: head TAB relation TAB tail"),
    "two columns from the start": ("a\tb\nb\tc\n", ":1: found 2 columns, expected 3: head TAB relation TAB tail"),
    "spaces": ("a r b\n", ":1: found 1 column, expected 3: head TAB relation TAB tail"),
    "CRLF": ("a\tr\tb\r\nb\tr\r\n", ":2: found 2 columns, expected 3: head TAB relation TAB tail"),
    "no head": ("a\tr\tb\n\tr\tb\n", ":2: the head is empty; expected head TAB relation TAB tail"),
    "no relation": ("a\t\tb\n", ":1: the relation is empty; expected head TAB relation TAB tail"),
    "no tail": ("a\tr\tb\na\tr\t\n", ":2: the tail is empty; expected head TAB relation TAB tail"),
    "empty": ("", ": no triples in it; fill it or remove it"),
    "only blank lines": ("\n\n\r\n", ": no triples in it; fill it or remove it"),
    "Latin-1": ("a\tr\tb\nZürich\tr\tb\n".encode("latin-1"), ":2: not UTF-8 text (byte 1); save the file as UTF-8"),
    "UTF-16": ("a\tr\tb\n".encode("utf-16"), ":1: not UTF-8 text (byte 0); save the file as UTF-8"),
}


@pytest.mark.parametrize(("content", "message"), BAD_TSV.values(), ids=BAD_TSV.keys())
def test_a_bad_line_is_named(write_folder, content: str | bytes, message: str) -> None:
    folder = write_folder({"train.txt": FACTS, "valid.txt": content})
    with pytest.raises(HarmoniumError) as caught:
        load(folder)
    assert str(caught.value) == f"{folder / 'valid.txt'}{message}"


@pytest.mark.parametrize("keep", [5, 11, -20])
def test_a_damaged_gz_is_named(write_folder, keep: int) -> None:
    folder = write_folder({"train.txt.gz": gzip.compress(FACTS.encode() * 500)[:keep]})
    with pytest.raises(HarmoniumError, match=r"train\.txt\.gz: cannot be read"):
        load(folder)


@pytest.mark.parametrize(("ending", "pack"), [("xz", lzma.compress), ("zst", zstd.compress)])
def test_a_damaged_xz_or_zst_is_named(write_folder, ending: str, pack) -> None:
    folder = write_folder({f"train.txt.{ending}": pack(FACTS.encode() * 500)[:-20]})
    with pytest.raises(HarmoniumError, match=rf"train\.txt\.{ending}: cannot be read"):
        load(folder)
    with pytest.raises(HarmoniumError, match=rf"valid\.txt\.{ending}: cannot be read"):
        load(write_folder({"train.txt": FACTS, f"valid.txt.{ending}": FACTS}, "other"))


def test_a_gz_with_a_changed_byte_is_refused(write_folder) -> None:
    content = bytearray(gzip.compress("".join(f"e{i * i}\tr\te{i}\n" for i in range(999)).encode()))
    content[12] ^= 0x55  # breaks the compression itself, not only the checksum
    folder = write_folder({"train.txt.gz": bytes(content)})
    with pytest.raises(HarmoniumError, match=r"train\.txt\.gz: cannot be read \(Error"):
        load(folder)


def test_a_names_file_is_checked_too(write_folder) -> None:
    folder = write_folder({"train.txt": FACTS, "entity_names.tsv": "Bern\tBern\nSwitzerland\n"})
    with pytest.raises(HarmoniumError, match=r"entity_names\.tsv:2: found 1 column, expected 2: identifier TAB name"):
        load(folder)


# Where a graph is ------------------------------------------------------------------------------------------------


def test_no_graph_there_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARMONIUM_DATA", raising=False)
    with pytest.raises(HarmoniumError) as caught:
        load("fb15k-239")
    assert str(caught.value) == (
        "no graph at 'fb15k-239'; give a folder with train.txt, a file of head TAB relation TAB tail lines, "
        "or a name: atlas, FB15K, WN18, FB15K-237, WN18RR, UMLS, Nations, Countries-S1, Countries-S2, Countries-S3"
    )
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path))
    with pytest.raises(HarmoniumError, match=re.escape(f"'fb15k-239' (nor in HARMONIUM_DATA={tmp_path});")):
        load("fb15k-239")
    with pytest.raises(HarmoniumError, match="missing: no such file or folder"):
        formats.read(tmp_path / "missing")


def test_a_folder_without_a_graph_says_what_is_in_it(write_folder) -> None:
    with pytest.raises(
        HarmoniumError, match="not a graph: expected train.txt, .tsv, .csv, .* found notes.md, valid.txt"
    ):
        load(write_folder({"valid.txt": FACTS, "notes.md": "hello"}))
    with pytest.raises(HarmoniumError, match="found nothing"):
        load(write_folder({}, "empty"))


def test_a_name_is_looked_up_on_the_shelf(write_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder({"train.txt": FACTS}, "swiss")
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path))
    assert load("swiss").spell(load("swiss").train) == SPELT
    monkeypatch.chdir(tmp_path)
    write_folder({"train.txt": "here\tis\tnearer\n"}, "here")
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path / "swiss"))
    assert load("here").entities.ids == ["here", "nearer"]


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
    assert graph.spell(graph.train) == [("Bern", "near", "New York"), ("Paris", "likes", "Bern")]
    assert graph.spell(graph.test) == [("New York", "likes", "Paris")]
    assert len(graph.valid) == 0


def test_openke_may_be_separated_by_spaces(write_folder) -> None:
    spaced = {file: text.replace("New York", "NY").replace("\t", " ") for file, text in OPENKE.items()}
    graph = load(write_folder(spaced))
    assert graph.spell(graph.train) == [("Bern", "near", "NY"), ("Paris", "likes", "Bern")]


def test_openke_takes_labels_and_drops_repeated_triples(write_folder) -> None:
    more = {"train2id.txt": "3\n0 2 1\n0 2 1\n1 0 0\n", "entity_names.tsv": "Bern\tBerne\n"}
    graph = load(write_folder(OPENKE | more))
    assert graph.notes == ("train: dropped 1 repeated triples of 3",)
    assert graph.entities.name(0) == "Berne"


BAD_OPENKE = {
    "too few": ("train2id.txt", "3\n0 2 1\n1 0 0\n", ":1: announces 3 lines, 2 follow; is the file complete?"),
    "too many": ("train2id.txt", "1\n0 2 1\n1 0 0\n", ":1: announces 1 lines, 2 follow; is the file complete?"),
    "no count": ("train2id.txt", "0 2 1\n1 0 0\n", ":1: expected the number of lines that follow"),
    "tail": ("train2id.txt", "2\n0 2 1\n1 3 0\n", ":3: tail 3 is not an id of the vocabulary (0 to 2)"),
    "relation": ("train2id.txt", "2\n0 1 2\n1 0 0\n", ":2: relation 2 is not an id of the vocabulary (0 to 1)"),
    "negative": ("test2id.txt", "1\n-1 1 1\n", ":2: head -1 is not an id of the vocabulary (0 to 2)"),
    "a word": ("train2id.txt", "2\n0 2 1\nBern 0 0\n", ":3: expected whole numbers for head tail relation"),
    "four columns": ("train2id.txt", "1\n0 2 1 0\n", ":2: found 4 columns, expected 3: head space tail space relation"),
    "a name twice": (
        "entity2id.txt",
        "3\na\t0\nb\t1\na\t2\n",
        ": 'a' has the ids 0 and 2; each name needs one, rename or merge",
    ),
    "an id twice": ("entity2id.txt", "3\na\t0\nb\t1\nc\t1\n", ": ids must be 0 to 2, each once"),
    "Latin-1": (
        "entity2id.txt",
        "3\nZürich\t0\nb\t1\nc\t2\n".encode("latin-1"),
        ":2: not UTF-8 text (byte 1); save the file as UTF-8",
    ),
}


@pytest.mark.parametrize(("file", "content", "message"), BAD_OPENKE.values(), ids=BAD_OPENKE.keys())
def test_a_bad_openke_line_is_named(write_folder, file: str, content: str | bytes, message: str) -> None:
    folder = write_folder(OPENKE | {file: content})
    with pytest.raises(HarmoniumError) as caught:
        load(folder)
    assert str(caught.value) == f"{folder / file}{message}"


def test_an_openke_folder_needs_its_vocabularies(write_folder) -> None:
    files = {file: text for file, text in OPENKE.items() if file != "relation2id.txt"}
    with pytest.raises(HarmoniumError, match=r"relation2id\.txt: missing; an OpenKE folder has it beside train2id"):
        load(write_folder(files))


# LibKGE ----------------------------------------------------------------------------------------------------------

LIBKGE = {
    "entity_ids.del": "0\tQ72\n1\tQ39\n2\tQ90\n",
    "relation_ids.del": "0\tP17\n1\tP47\n",
    "train.del": "0\t0\t1\n1\t1\t2\n",
    "test.del": "2\t1\t1\n",
}


def test_libkge_ids_are_head_relation_tail(write_folder) -> None:
    graph = load(write_folder(LIBKGE))
    assert graph.spell(graph.train) == [("Q72", "P17", "Q39"), ("Q39", "P47", "Q90")]
    assert graph.spell(graph.test) == [("Q90", "P47", "Q39")]
    assert len(graph.valid) == 0


@pytest.mark.parametrize("strings", ["Q39\tSwitzerland\nQ72\tBern\n", "1\tSwitzerland\n0\tBern\n7\tnobody\n"])
def test_libkge_strings_by_identifier_or_index(write_folder, strings: str) -> None:
    graph = load(write_folder(LIBKGE | {"entity_strings.del": strings, "relation_strings.del": "P17\tcountry\n"}))
    assert graph.entities.labels == ["Bern", "Switzerland", "Q90"]
    assert graph.relations.labels == ["country", "P47"]


BAD_LIBKGE = {
    "tail": ("train.del", "0\t0\t1\n1\t1\t3\n", ":2: tail 3 is not an id of the vocabulary (0 to 2)"),
    "a word": ("test.del", "0\tP17\t1\n", ":1: expected whole numbers for head relation tail"),
    "an id twice": ("entity_ids.del", "0\ta\n0\tb\n", ": ids must be 0 to 1, each once"),
    "a name twice": (
        "relation_ids.del",
        "0\ta\n1\ta\n",
        ": 'a' has the ids 0 and 1; each name needs one, rename or merge",
    ),
}


@pytest.mark.parametrize(("file", "content", "message"), BAD_LIBKGE.values(), ids=BAD_LIBKGE.keys())
def test_a_bad_libkge_line_is_named(write_folder, file: str, content: str, message: str) -> None:
    folder = write_folder(LIBKGE | {file: content})
    with pytest.raises(HarmoniumError) as caught:
        load(folder)
    assert str(caught.value) == f"{folder / file}{message}"


def test_a_libkge_folder_needs_its_vocabularies(write_folder) -> None:
    with pytest.raises(HarmoniumError, match=r"entity_ids\.del: cannot be read .*No such file"):
        load(write_folder({"train.del": LIBKGE["train.del"]}))


# One file and its split ------------------------------------------------------------------------------------------


def random_file(folder: Path, n_entities: int, n_relations: int, count: int, seed: int) -> Path:
    draw = random.Random(seed)
    rows = [(draw.randrange(n_entities), draw.randrange(n_relations), draw.randrange(n_entities)) for _ in range(count)]
    file = folder / "facts.tsv"
    file.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in rows), encoding="utf-8")
    return file


def spelt(graph: Graph) -> dict[str, set[tuple[str, str, str]]]:
    return {name: set(graph.spell(getattr(graph, name))) for name in SPLITS}


def test_one_file_is_split_by_its_seed(tmp_path: Path) -> None:
    file = random_file(tmp_path, 30, 3, 600, seed=1)
    first, again, other = load(file, seed=4), load(file, seed=4), load(file, seed=5)
    assert spelt(first) == spelt(again)
    assert spelt(first) != spelt(other)
    assert first.name == "facts"
    assert "split by seed 4: 0.05 valid, 0.05 test asked for; facts over the same pair kept together" in first.notes
    quarter = load(file, valid=0.1, test=0.25)
    assert len(quarter.test) == pytest.approx(0.25 * len(quarter.facts()), rel=0.25)
    assert len(quarter.valid) == pytest.approx(0.1 * len(quarter.facts()), rel=0.4)
    assert len(load(file, valid=0, test=0).train) == len(first.facts())


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
    parts = spelt(graph)
    assert sum(len(part) for part in parts.values()) == len(whole.train)
    assert set().union(*parts.values()) == set(whole.spell(whole.train))
    trained = {name for h, _, t in parts["train"] for name in (h, t)}
    assert trained == set(graph.entities.ids)
    assert {relation for _, relation, _ in parts["train"]} == set(graph.relations.ids)
    pairs = {name: {frozenset((h, t)) for h, _, t in part} for name, part in parts.items()}
    assert not (pairs["train"] & pairs["valid"] or pairs["train"] & pairs["test"] or pairs["valid"] & pairs["test"])


def test_a_fact_that_moves_back_to_train_takes_its_pair_along(write_folder) -> None:
    ring = "".join(f"e{i}\tnext\te{j}\n" for i in range(6) for j in range(6) if i != j)
    whole = load(write_folder({"train.txt": ring + "e0\trare\te1\n"}))
    asked = [split(whole, seed=seed, valid=0, test=0.45) for seed in range(20)]
    for graph in asked:
        train = set(graph.spell(graph.train))
        assert {("e0", "rare", "e1"), ("e0", "next", "e1"), ("e1", "next", "e0")} <= train
    assert sum(len(graph.test) for graph in asked) > 100


def test_a_split_leaves_room_for_train(tmp_path: Path) -> None:
    file = random_file(tmp_path, 9, 2, 20, seed=0)
    for valid, test in ((0.5, 0.5), (-0.1, 0.2), (float("nan"), 0.1)):
        with pytest.raises(HarmoniumError, match="fractions that leave room for train"):
            load(file, valid=valid, test=test)


def test_a_file_inside_a_folder_is_one_file(write_folder) -> None:
    folder = write_folder({"train.txt": "".join(f"a{i % 7}\tr\tb{i % 11}\n" for i in range(77)), "test.txt": FACTS})
    graph = load(folder / "train.txt", test=0.3)
    assert len(graph.facts()) == 77
    assert len(graph.test) > 0
    assert "Bern" not in graph.entities.ids


def test_a_hundred_thousand_triples_load_in_two_seconds(tmp_path: Path) -> None:
    file = random_file(tmp_path, 10_000, 40, 100_000, seed=2)
    started = time.perf_counter()
    graph = load(file)
    assert time.perf_counter() - started < 2
    assert len(graph.facts()) == len(set(file.read_text(encoding="utf-8").splitlines()))
    assert torch.cat([graph.train.head, graph.train.tail]).max() == graph.n_entities - 1
