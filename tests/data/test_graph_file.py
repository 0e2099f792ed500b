"""A graph in one binary file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import safetensors.torch
import torch
from torch import Tensor

from graph_checks import everything, graph_bytes, memory_growth
from harmonium.data import graph_file
from harmonium.data.datasets import load
from harmonium.data.graph import Note
from harmonium.data.name_column import NameColumn
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.runtime import storage, tensor_file
from small import make_graph


@pytest.mark.parametrize("labels", [None, [f"Zürich 🇨🇭 {i}" for i in range(12)]])
def test_a_graph_file_gives_the_graph_again(tmp_path: Path, labels: list[str] | None) -> None:
    graph = make_graph(sizes=(30, 0, 4))
    entities = Vocabulary(graph.entities.ids, labels, "entity")
    graph = dataclasses.replace(
        graph, entities=entities, name="a name", notes=(Note("one"), Note("two “three”", "repeated", "test", 3))
    )
    file = tmp_path / "facts.graph"
    file.write_bytes(graph_bytes(graph))
    assert everything(load(file)) == everything(graph)
    assert all(graph_bytes(graph) == file.read_bytes() for _ in range(8))  # the same bytes each time


def test_a_large_graph_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns and names are views of the file: nothing of its size is made."""
    monkeypatch.setattr(tensor_file, "MIN_MAPPED_BYTES", 1 << 20)
    graph, file = make_graph(n_entities=300, sizes=(9, 0, 10)), tmp_path / "large.graph"
    train = Triples(*(torch.randint(size, (2_000_000,)) for size in (300, 3, 300)))  # 48 MB
    graph = dataclasses.replace(graph, train=train)
    assert storage.write(file, graph_file.parts(graph)).sha256 == storage.digest(file.read_bytes())
    preparation = f"""
from harmonium.data.datasets import load
from harmonium.runtime import tensor_file
tensor_file.MIN_MAPPED_BYTES = 1 << 20
load({str(file)!r})
"""
    assert memory_growth(preparation, f"loaded = load({str(file)!r})") < file.stat().st_size / 8
    loaded = load(file)
    assert torch.equal(loaded.train.to_rows(), graph.train.to_rows())
    assert loaded.entities.index("e299") == 299
    assert graph_bytes(loaded) == file.read_bytes()


def spoilt(change: Callable[[dict[str, Tensor]], object]) -> bytes:
    tensors = safetensors.torch.load(graph_bytes(make_graph()))
    change(tensors)
    about = json.dumps({"name": "x", "notes": []})
    return safetensors.torch.save(tensors, {"about": about, "sha256": graph_file._checksum(tensors, about)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"train.head": t["train.head"][1:].clone()}), "train is not three columns of ids"),
        (lambda t: t.update({"train.tail": t["train.tail"].int()}), "train is not three columns of ids"),
        (lambda t: t["test.tail"].__setitem__(3, 12), "test has an id without a name"),
        (lambda t: t["valid.relation"].__setitem__(0, -1), "valid has an id without a name"),
        (lambda t: t["entities.offsets"].__setitem__(0, 1), "entities is not a list of names"),
        (lambda t: t["entities.offsets"].__setitem__(4, 99), "entities is not a list of names"),
        (lambda t: t.update({"entities.order": t["entities.order"][1:].clone()}), "entities is not a list of names"),
        (lambda t: t["relations.order"].__setitem__(0, 3), "relations has no sound index"),
        (lambda t: t["relations.hashes"].__setitem__(0, -1), "relations has no sound index"),
        (lambda t: t["entities.content"].__setitem__(0, 0x80), "can't decode byte 0x80"),
        (lambda t: t["entities.content"].__setitem__(0, 10), "that is cut or has a tab or line break"),
        (lambda t: t["entities.content"][1:3].copy_(torch.tensor([0xC3, 0xBC])), "that is cut or has a tab or line break"),
        (lambda t: t.update(named(["a"])), "12 entities have 1 names"),
        (lambda t: t.pop("relations.content"), "'relations.content'"),
    ],
)  # fmt: skip
def test_what_could_not_be_used_is_refused(tmp_path: Path, change: Callable, message: str) -> None:
    file = tmp_path / "facts.graph"
    file.write_bytes(spoilt(lambda tensors: None))
    assert load(file).n_entities == 12
    file.write_bytes(spoilt(change))
    with pytest.raises(HarmoniumError) as caught:
        load(file)
    assert message in str(caught.value)


def test_a_changed_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    """Every byte of the tensors and of the header, but for the blanks that pad it."""
    file, good = tmp_path / "facts.graph", graph_bytes(make_graph())
    start = 8 + int.from_bytes(good[:8], "little")
    positions = [i for i in range(len(good)) if i >= start or good[i : i + 1] != b" "]
    random = Random(0)
    for position in random.sample(positions, 300):
        changed = bytearray(good)
        changed[position] ^= 1 << random.randrange(8)
        file.write_bytes(changed)
        try:
            assert everything(load(file)) == everything(make_graph()), f"byte {position}"  # the same graph in JSON
        except HarmoniumError:
            continue


def named(names: list[str]) -> dict[str, Tensor]:
    return {f"entities.names.{column}": tensor for column, tensor in NameColumn.of(names).columns().items()}
