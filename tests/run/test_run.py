"""Run folders: saved and opened without loss, damage noticed, never half-written."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium
from harmonium.config.settings import Config
from harmonium.data.graph import SPLITS, Note
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_with_baselines
from harmonium.evaluation.metrics import METRICS
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from harmonium.runtime import storage, tensor_file
from small import make_graph

FILES = {"run.json", "config.toml", "data.graph", "model.safetensors", "history.jsonl", "metrics.json"}


def make_run(seed: int = 0, labels: bool = True) -> Run:
    """An untrained run with everything that could get lost."""
    config = Config.read(
        None, ["model.composition=complex", "model.entity_dim=4", "model.rank=2", f"train.seed={seed}"]
    )
    graph = make_graph()
    names = [f"Zürich “{i}” 🇨🇭" for i in range(graph.n_entities)]
    entities = Vocabulary(graph.entities.ids, names if labels else None, "entity")
    graph = replace(graph, entities=entities, notes=(Note("dropped 1 of 41", "repeated", "train", 1),))
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed)
    rows = [{"epoch": 1, "loss": 0.1 + 0.2, "seconds": 1.5}, {"epoch": 2, "loss": 1e-9, "seconds": 2.0}]
    rows[1]["valid"] = dict.fromkeys(METRICS, 1 / 3)
    history = History(rows, 2, "interrupted in epoch 3", "torch")
    return Run(config, graph, model, history, evaluate_with_baselines(model, graph, config.evaluate))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return make_run().save(tmp_path / "runs" / "mine")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    run = make_run()
    folder = run.save(tmp_path / "mine")
    assert {file.name for file in folder.iterdir()} == FILES
    opened = Run.load(folder)
    assert opened.path == folder
    for name in ("config", "history", "evaluation", "environment", "metrics", "fingerprint"):
        assert getattr(opened, name) == getattr(run, name), name
    assert run.metrics["mrr"] == harmonium.evaluate(folder).metrics["mrr"]
    assert repr(opened.graph) == repr(run.graph)
    assert opened.graph.notes == run.graph.notes
    for split in SPLITS:
        assert opened.graph.splits[split].to_rows().equal(run.graph.splits[split].to_rows())
    for kind in ("entities", "relations"):
        one, other = getattr(opened.graph, kind), getattr(run.graph, kind)
        assert (list(one.ids), one.labels, one.kind) == (list(other.ids), other.labels, other.kind)
    for slot in Slot:
        assert torch.equal(opened.model.score_slot(slot, run.graph.test), run.model.score_slot(slot, run.graph.test))
    assert Run.load(make_run(labels=False).save(tmp_path / "bare")).graph.entities.labels is None


def test_the_fingerprint_is_of_the_model_and_the_graph(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, opened = make_run(), Run.load(saved)
    assert replace(run, history=History()).fingerprint == run.fingerprint
    assert replace(run, graph=replace(run.graph, name="other")).fingerprint != run.fingerprint
    assert replace(run, model=make_run(seed=1).model).fingerprint != run.fingerprint
    monkeypatch.setattr(tensor_file, "parts", None)  # nothing is hashed again
    assert opened.fingerprint == run.fingerprint


def test_a_large_run_is_mapped_and_the_file_never_changes(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "MIN_MAPPED_BYTES", 0)
    before, opened = contents(saved), Run.load(saved)
    with open("/proc/self/maps") as maps:
        assert {Path(line.split()[-1]).name for line in maps} >= {"data.graph", "model.safetensors"}
    assert opened.model.entity.requires_grad
    with torch.no_grad():
        opened.model.entity.add_(1)  # as training does
    assert contents(saved) == before
    copy = contents(Run.load(saved).save(saved.with_name("copy")))
    assert {name for name in FILES if copy[name] != before[name]} <= {"run.json"}  # which says when it was made


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_changed_byte_a_cut_or_a_missing_file_is_noticed(saved: Path, file: str) -> None:
    good = (saved / file).read_bytes()
    damaged = [good[: int(share * len(good))] for share in (0, 0.5, 0.99)]
    for position in (0, len(good) // 2, len(good) - 2):
        damaged.append(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
    for content in damaged:
        (saved / file).write_bytes(content)
        with pytest.raises(HarmoniumError, match=f"{re.escape(str(saved / file))}: (its contents changed|damaged)"):
            Run.load(saved)
    (saved / file).unlink()
    with pytest.raises(HarmoniumError, match=f"no {file} in it" if file == "run.json" else f"{file}: No such file"):
        Run.load(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"format": 1}', "run format 1; .* reads format 4. Use the version that wrote it, or train again"),
        (b'{"format": 5}', "run format 5; .* reads format 4"),
        (b'{"format": true}', "run format True"),
        (b"[1]", "run format None"),
        (storage.manifest_bytes({"format": 4}), r"cannot be read \(backend is missing\)"),
        (b"nonsense", r"damaged \("),
        (b"\xff\xfe", r"damaged \("),
    ],
)
def test_another_format_is_refused(saved: Path, text: bytes, message: str) -> None:
    (saved / "run.json").write_bytes(text)
    with pytest.raises(HarmoniumError, match=f"{saved}.*{message}"):
        Run.load(saved)


# Writing -------------------------------------------------------------------------------------------------------------


def test_a_run_is_replaced_only_with_overwrite(saved: Path) -> None:
    before = contents(saved)
    with pytest.raises(HarmoniumError, match="mine exists; .*--overwrite"):
        make_run(seed=1).save(saved)
    assert contents(saved) == before
    (saved / "report.html").write_text("made of the earlier run")
    make_run(seed=1).save(saved, overwrite=True)
    assert Run.load(saved).config.train.seed == 1
    assert {file.name for file in saved.iterdir()} == FILES
    assert [file.name for file in saved.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["notes.md", "train.py", ".env", "figures/one.png", "checkpoints/model.pt"])
def test_files_of_others_in_a_run_folder_are_named_and_kept(saved: Path, name: str) -> None:
    precious = saved / name
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("do not lose me")
    for write in (
        lambda: make_run(seed=1).save(saved, overwrite=True),
        lambda: harmonium.train(make_graph(), "paper", out=saved, overwrite=True),
    ):
        with pytest.raises(HarmoniumError, match=f"{saved}/{name.split('/')[0]}.*: not written by harmonium"):
            write()
        assert precious.read_text() == "do not lose me"
        assert Run.load(saved).config.train.seed == 0


def test_a_folder_that_is_not_a_run_is_never_replaced(tmp_path: Path) -> None:
    chapter, file = tmp_path / "thesis" / "chapter.txt", tmp_path / "file"
    chapter.parent.mkdir()
    for precious, out in ((chapter, chapter.parent), (file, file)):
        precious.write_text("do not lose me")
        with pytest.raises(HarmoniumError, match="is not a run folder, so it will not be replaced"):
            make_run().save(out, overwrite=True)
        assert precious.read_text() == "do not lose me"
    (tmp_path / "thesis" / "run.json").write_text('{"format": 2, "files": {"chapter.txt": ""}}')  # of another program
    with pytest.raises(HarmoniumError, match="chapter.txt: not written by harmonium"):
        make_run().save(chapter.parent, overwrite=True)
    assert chapter.read_text() == "do not lose me"
    (tmp_path / "empty").mkdir()
    assert Run.load(make_run().save(tmp_path / "empty", overwrite=True)).graph.n_entities == 12


def fail_at(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fails with a full disk from the `number`th call on."""
    calls = iter(range(number))

    def call(*arguments: object) -> object:
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*arguments)

    return call


@pytest.mark.parametrize("syncs", range(2 * len(FILES) + 1))
def test_a_full_disk_changes_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch, syncs: int) -> None:
    before, fsync = contents(saved), os.fsync
    for name in ("new", "mine"):
        monkeypatch.setattr(os, "fsync", fail_at(syncs, fsync))
        with pytest.raises(HarmoniumError, match=rf"{name}: cannot be written \(No space left on device\)"):
            make_run(seed=1).save(saved.with_name(name), overwrite=True)
    assert contents(saved) == before
    assert [file.name for file in saved.parent.iterdir()] == ["mine"]


def test_leftovers_of_killed_processes_are_removed(saved: Path) -> None:
    dead, alive = ".mine.999999999.draft", f".mine.{os.getppid()}.draft"
    others = {alive, ".mine.draft", ".other.999999999.draft", ".mine.5x"}
    for name in {dead, *others}:
        (saved.parent / name).mkdir()
    make_run(seed=1).save(saved, overwrite=True)
    assert {file.name for file in saved.parent.iterdir()} == {"mine", *others}


# Environment ---------------------------------------------------------------------------------------------------------
