"""Graphs by name and path, and the cache of large graphs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from graph_checks import everything, facts
from harmonium.data import datasets, graph_file
from harmonium.data.datasets import load
from harmonium.data.formats import registry
from harmonium.errors import HarmoniumError

FACTS = "Q72\tP17\tQ39\nQ39\tP47\tQ142\nQ72\tP17\tQ39\n"


def test_no_graph_there_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARMONIUM_DATA", raising=False)
    with pytest.raises(HarmoniumError, match="no graph at 'fb15k-239'.*: atlas, FB15K, .*, Countries-S3"):
        load("fb15k-239")
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path))
    with pytest.raises(HarmoniumError, match=re.escape(f"'fb15k-239' (nor in HARMONIUM_DATA={tmp_path});")):
        load("fb15k-239")


def test_a_name_is_looked_up_in_harmonium_data(write_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder({"train.txt": FACTS}, "swiss")
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path))
    assert facts(load("swiss")) == [("Q72", "P17", "Q39"), ("Q39", "P47", "Q142")]
    monkeypatch.chdir(tmp_path)
    write_folder({"train.txt": "here\tis\tnearer\n"}, "here")
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path / "swiss"))
    assert load("here").entities.ids == ["here", "nearer"]


# The cache ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that takes graphs of any size."""
    monkeypatch.setenv("HARMONIUM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "MIN_CACHED_FACTS", 1)
    return tmp_path / "cache"


def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "read", lambda *_: pytest.fail("read although it is cached"))


def test_a_cached_graph_is_the_same_without_reading_it(write_folder, cache: Path, monkeypatch) -> None:
    folder = write_folder({"train.txt": FACTS, "test.txt": "Q142\tP47\tQ39\n", "entity_names.tsv": "Q72\tZürich\n"})
    first = load(folder)
    assert [file.suffix for file in cache.iterdir()] == [".graph"]
    assert [(note.kind, note.count) for note in first.notes] == [("repeated", 1)]
    no_reading(monkeypatch)
    assert everything(load(folder)) == everything(first)


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


def test_a_damaged_cache_is_made_again(write_folder, cache: Path) -> None:
    folder = write_folder({"train.txt": FACTS})
    first = load(folder)
    (file,) = cache.iterdir()
    good = file.read_bytes()
    for bad in (b"", good[:100], good[:-100]):
        file.write_bytes(bad)
        assert everything(load(folder)) == everything(first)
        assert everything(graph_file.load(file)) == everything(first)
