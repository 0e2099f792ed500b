"""A graph in one binary file, and the cache of larger graphs."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from harmonium import datasets, folder, formats, graph_file, tensor_file
from harmonium.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Triples, Vocabulary
from harmonium.texts import Texts
from small import make_graph
from test_tensor_file import anonymous

FACTS = "Q72\tP17\tQ39\nQ39\tP47\tQ142\nQ72\tP17\tQ39\n"


def everything(graph: Graph) -> tuple:
    names = [(list(v.ids), v.labels and list(v.labels), v.kind) for v in (graph.entities, graph.relations)]
    return names, [getattr(graph, split).rows().tolist() for split in SPLITS], graph.name, graph.notes


@pytest.mark.parametrize("labels", [None, [f"Zürich 🇨🇭 {i}" for i in range(12)]])
def test_a_graph_file_gives_the_graph_again(tmp_path: Path, labels: list[str] | None) -> None:
    graph = make_graph(sizes=(30, 0, 4))
    entities = Vocabulary(graph.entities.ids, labels, "entity")
    graph = dataclasses.replace(graph, entities=entities, name="a name", notes=("one", "two “three”"))
    file = tmp_path / "some.graph"
    file.write_bytes(graph_file.to_bytes(graph))
    assert everything(load(file)) == everything(graph)
    assert all(graph_file.to_bytes(graph) == file.read_bytes() for _ in range(8))  # the same bytes each time


def test_a_folder_may_end_like_a_graph_file(write_folder) -> None:
    assert load(write_folder({"train.txt": FACTS}, "my.graph")).n_entities == 3


def old_bytes(graph: Graph) -> bytes:
    """As it was written before: rows of int32, lines of identifier TAB name."""
    tensors = {split: getattr(graph, split).rows().int() for split in SPLITS}
    for kind in ("entities", "relations"):
        names = getattr(graph, kind)
        text = "".join(f"{name}\t{names.name(i)}\n" for i, name in enumerate(names.ids))
        tensors[kind] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return safetensors.torch.save(tensors, {"about": json.dumps({"name": graph.name, "notes": graph.notes})})


@pytest.mark.parametrize("labels", [None, [f"Zürich 🇨🇭 {i}" for i in range(12)]])
def test_a_file_of_rows_is_read(tmp_path: Path, labels: list[str] | None) -> None:
    graph = make_graph(sizes=(30, 0, 4))
    graph = dataclasses.replace(graph, entities=Vocabulary(graph.entities.ids, labels), notes=("one",))
    (tmp_path / "old.graph").write_bytes(old_bytes(graph))
    assert everything(load(tmp_path / "old.graph")) == everything(graph)


def test_a_large_graph_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns and names are views of the file: nothing of its size is made."""
    monkeypatch.setattr(tensor_file, "MAPPED", 1 << 20)
    graph, file = make_graph(n_entities=300, sizes=(9, 0, 10)), tmp_path / "large.graph"
    train = Triples(*(torch.randint(size, (2_000_000,)) for size in (300, 3, 300)))  # 48 MB
    graph = dataclasses.replace(graph, train=train)
    assert folder.write(file, graph_file.parts(graph)) == folder.digest(file.read_bytes())
    load(file)
    before = anonymous()
    found = load(file)
    assert anonymous() - before < file.stat().st_size / 8
    assert torch.equal(found.train.rows(), graph.train.rows())
    assert found.entities.index("e299") == 299
    assert b"".join(map(bytes, graph_file.parts(found))) == file.read_bytes()


def spoilt(change: Callable[[dict[str, Tensor]], object]) -> bytes:
    tensors = safetensors.torch.load(graph_file.to_bytes(make_graph()))
    change(tensors)
    return safetensors.torch.save(tensors, {"about": json.dumps({"name": "x", "notes": []})})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"train.head": t["train.head"][1:].clone()}), "train is not three columns of ids"),
        (lambda t: t.update({"train.tail": t["train.tail"].int()}), "train is not three columns of ids"),
        (lambda t: t["test.tail"].__setitem__(3, 12), "test has an id without a name"),
        (lambda t: t["valid.relation"].__setitem__(0, -1), "valid has an id without a name"),
        (lambda t: t["entities.offsets"].__setitem__(0, 1), "entities is no list of texts"),
        (lambda t: t["entities.offsets"].__setitem__(4, 99), "entities is no list of texts"),
        (lambda t: t.update({"entities.order": t["entities.order"][1:].clone()}), "entities is no list of texts"),
        (lambda t: t["relations.order"].__setitem__(0, 3), "relations has no sound index"),
        (lambda t: t["relations.hashes"].__setitem__(0, -1), "relations has no sound index"),
        (lambda t: t["entities.content"].__setitem__(0, 0x80), "can't decode byte 0x80"),
        (lambda t: t["entities.content"].__setitem__(0, 10), "entities has a text that is cut or broken into lines"),
        (lambda t: t["entities.content"][1:3].copy_(torch.tensor([0xC3, 0xBC])), "cut or broken into lines"),
        (lambda t: t.update(named(["a"])), "12 entities have 1 names"),
        (lambda t: t.pop("relations.content"), "'relations.content'"),
    ],
)  # fmt: skip
def test_what_could_not_be_used_is_refused(tmp_path: Path, change: Callable, message: str) -> None:
    file = tmp_path / "some.graph"
    file.write_bytes(spoilt(lambda tensors: None))
    assert load(file).n_entities == 12
    file.write_bytes(spoilt(change))
    with pytest.raises(HarmoniumError) as caught:
        load(file)
    assert message in str(caught.value)


def named(names: list[str]) -> dict[str, Tensor]:
    return {f"entities.names.{column}": tensor for column, tensor in Texts.of(names).columns().items()}


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    graph = dataclasses.replace(make_graph(n_entities=2, sizes=(3, 0, 0)), entities=Vocabulary(["a", "a"]))
    (tmp_path / "some.graph").write_bytes(graph_file.to_bytes(graph))
    with pytest.raises(HarmoniumError, match="the same entity twice"):
        load(tmp_path / "some.graph")


@pytest.mark.parametrize("damage", ["half", "empty", "text", "no tabs"])
def test_a_damaged_graph_file_is_named(tmp_path: Path, damage: str) -> None:
    good, file = old_bytes(make_graph()), tmp_path / "some.graph"
    bad = {"half": good[: len(good) // 2], "empty": b"", "text": FACTS.encode(), "no tabs": good.replace(b"\t", b" ")}
    file.write_bytes(bad[damage])
    with pytest.raises(HarmoniumError, match=r"some\.graph: not a graph file that can be read .*; make it again"):
        load(file)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that takes graphs of any size."""
    monkeypatch.setenv("HARMONIUM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "WORTH_CACHING", 1)
    return tmp_path / "cache"


def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was read although it is cached")

    monkeypatch.setattr(formats, "read", refuse)


def test_a_cached_graph_is_the_same_without_reading_it(write_folder, cache: Path, monkeypatch) -> None:
    folder = write_folder({"train.txt": FACTS, "test.txt": "Q142\tP47\tQ39\n", "entity_names.tsv": "Q72\tZürich\n"})
    first = load(folder)
    assert [file.suffix for file in cache.iterdir()] == [".graph"]
    assert first.notes == ("train: dropped 1 repeated triples of 3",)
    no_reading(monkeypatch)
    assert everything(load(folder)) == everything(first)


def test_one_cached_file_is_split_by_any_seed(write_folder, cache: Path, monkeypatch) -> None:
    file = write_folder({"facts.tsv": "".join(f"a{i % 13}\tr\tb{i % 17}\n" for i in range(200))}) / "facts.tsv"
    first, other = load(file, seed=1, test=0.2), load(file, seed=2, test=0.2)
    assert len(list(cache.iterdir())) == 1
    no_reading(monkeypatch)
    assert everything(load(file, seed=1, test=0.2)) == everything(first)
    assert everything(load(file, seed=2, test=0.2)) == everything(other) != everything(first)


def test_a_changed_file_is_read_again(write_folder, cache: Path) -> None:
    folder = write_folder({"train.txt": FACTS})
    assert load(folder).n_entities == 3
    write_folder({"train.txt": FACTS + "Q183\tP47\tQ39\n"})
    assert load(folder).n_entities == 4
    write_folder({"valid.txt": "Q40\tP47\tQ39\n"})
    assert load(folder).n_entities == 5
    same_size = (folder / "train.txt").read_text().replace("Q183", "Q184")
    (folder / "train.txt").write_text(same_size)
    os.utime(folder / "train.txt", ns=(0, 12345))
    assert "Q184" in load(folder).entities.ids


def test_new_names_beside_one_file_are_seen(write_folder, cache: Path) -> None:
    file = write_folder({"facts.tsv": FACTS}) / "facts.tsv"
    assert load(file).entities.labels is None
    write_folder({"entity_names.tsv": "Q72\tZürich\n"})
    assert load(file).entities.name(0) == "Zürich"


def test_a_damaged_cache_is_made_again(write_folder, cache: Path) -> None:
    folder = write_folder({"train.txt": FACTS})
    first = load(folder)
    (file,) = cache.iterdir()
    good = file.read_bytes()
    for bad in (b"", good[:100], good[:-100]):
        file.write_bytes(bad)
        assert everything(load(folder)) == everything(first)
        assert everything(graph_file.load(file)) == everything(first)


def test_a_cache_that_cannot_be_written_is_no_error(write_folder, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("HARMONIUM_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(datasets, "WORTH_CACHING", 1)
    assert load(write_folder({"train.txt": FACTS})).n_entities == 3


def test_small_graphs_are_not_cached(write_folder, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HARMONIUM_CACHE", str(tmp_path / "cache"))
    load(write_folder({"train.txt": FACTS}))
    assert not (tmp_path / "cache").exists()
