from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium import folder as folder_module
from harmonium import run, tensor_file
from harmonium.config import Config
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Slot, Vocabulary
from harmonium.run import Run, environment, reserve
from harmonium.training import History
from small import make_graph

FILES = {"run.json", "config.toml", "data.graph", "model.safetensors", "history.jsonl", "metrics.json"}


def some_run(seed: int = 0, labels: bool = True) -> Run:
    """Not trained: what matters here is that it comes back."""
    config = Config.read(
        None, ["model.composition=complex", "model.entity_dim=4", "model.rank=2", f"train.seed={seed}"]
    )
    graph = make_graph()
    names = [f"Zürich “{i}” 🇨🇭" for i in range(graph.n_entities)]
    entities = Vocabulary(graph.entities.ids, names if labels else None, "entity")
    graph = dataclasses.replace(graph, entities=entities, notes=("train: dropped 1 repeated triples of 41",))
    model = harmonium.build_model(config.model, graph.n_entities, graph.n_relations, seed)
    rows = [{"epoch": 1, "loss": 0.1 + 0.2, "seconds": 1.5}, {"epoch": 2, "loss": 1e-9, "valid": {"mrr": 1 / 3}}]
    metrics = {"metrics": harmonium.evaluate(Run(config, graph, model, History(), {})).metrics}
    return Run(config, graph, model, History(rows, 2, "interrupted in epoch 3"), metrics)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return some_run().save(tmp_path / "runs" / "mine")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    run = some_run()
    folder = run.save(tmp_path / "mine")
    assert {file.name for file in folder.iterdir()} == FILES
    back = Run.load(folder)
    assert back.config == run.config
    assert back.history == run.history
    assert back.metrics == run.metrics
    assert back.path == folder
    assert repr(back.graph) == repr(run.graph)
    assert back.graph.notes == run.graph.notes
    for split in SPLITS:
        assert getattr(back.graph, split).rows().tolist() == getattr(run.graph, split).rows().tolist()
    for kind in ("entities", "relations"):
        one, other = getattr(back.graph, kind), getattr(run.graph, kind)
        assert (list(one.ids), one.labels, one.kind) == (list(other.ids), other.labels, other.kind)
    for slot in Slot:
        assert torch.equal(back.model.score_slot(slot, run.graph.test), run.model.score_slot(slot, run.graph.test))
    assert harmonium.evaluate(folder).metrics == run.metrics["metrics"]


def test_a_large_run_is_mapped_and_stays_as_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = some_run()
    place = run.save(tmp_path / "mine")
    monkeypatch.setattr(tensor_file, "MAPPED", 0)
    before, back = contents(place), Run.load(place)
    with open("/proc/self/maps") as maps:
        assert {Path(line.split()[-1]).name for line in maps} >= {"data.graph", "model.safetensors"}
    assert torch.equal(
        back.model.score_slot(Slot.TAIL, run.graph.test), run.model.score_slot(Slot.TAIL, run.graph.test)
    )
    assert back.model.entity.requires_grad
    with torch.no_grad():
        back.model.entity.add_(1)  # as training does
    assert contents(place) == before
    assert torch.equal(Run.load(place).model.entity, run.model.entity)
    assert contents(Run.load(place).save(tmp_path / "copy")).keys() == before.keys()
    assert {n: (tmp_path / "copy" / n).read_bytes() for n in before if n != "run.json"} == {
        n: content for n, content in before.items() if n != "run.json"
    }


def test_a_run_without_labels_has_none_when_it_comes_back(tmp_path: Path) -> None:
    assert Run.load(some_run(labels=False).save(tmp_path / "bare")).graph.entities.labels is None


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_missing_file_is_named(saved: Path, file: str) -> None:
    (saved / file).unlink()
    expected = "no run.json in it" if file == "run.json" else f"{file}: No such file or directory; the run folder is"
    with pytest.raises(HarmoniumError, match=expected):
        Run.load(saved)


@pytest.mark.parametrize("file", sorted(FILES - {"run.json"}))
def test_a_changed_byte_anywhere_is_noticed(saved: Path, file: str) -> None:
    good = (saved / file).read_bytes()
    for at in (0, len(good) // 2, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 1
        (saved / file).write_bytes(bad)
        with pytest.raises(HarmoniumError) as caught:
            Run.load(saved)
        assert str(caught.value).startswith(f"{saved / file}: its contents changed since the run was written; restore")
    (saved / file).write_bytes(good)
    assert Run.load(saved).metrics


@pytest.mark.parametrize("file", sorted(FILES))
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_file_is_named(saved: Path, file: str, share: float) -> None:
    content = (saved / file).read_bytes()
    (saved / file).write_bytes(content[: int(share * len(content))])
    with pytest.raises(HarmoniumError, match=f"{file}: (its contents changed|damaged)"):
        Run.load(saved)


def test_a_flipped_bit_of_the_manifest_is_noticed(saved: Path) -> None:
    file = saved / "run.json"
    good = file.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        file.write_bytes(bad)
        with pytest.raises(HarmoniumError) as caught:
            Run.load(saved)
        assert str(saved) in str(caught.value)
        assert "train again" in str(caught.value)


def test_a_run_of_the_first_format_is_read(saved: Path) -> None:
    """It had no checksum of the manifest itself."""
    manifest = json.loads((saved / "run.json").read_bytes())
    del manifest["sha256"]
    (saved / "run.json").write_text(json.dumps(manifest | {"format": 1}))
    assert Run.load(saved).metrics == some_run().metrics
    (saved / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(HarmoniumError, match="its contents changed"):
        Run.load(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 3}', "run format 3; this version of harmonium reads format 2. Use the version that wrote it"),
        ('{"format": true}', "run format True; this version of harmonium reads format 2"),
        ("{}", "run format None; this version of harmonium reads format 2"),
        ("[1]", "run format None"),
        ('{"format": 1}', "not a run that this version can read ('files'); train it again"),
        ("nonsense", "damaged (Expecting value"),
        (b"\xff\xfe", "damaged ("),
    ],
)
def test_another_format_is_refused(saved: Path, text: str | bytes, message: str) -> None:
    (saved / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HarmoniumError) as caught:
        Run.load(saved)
    assert message in str(caught.value)
    assert str(saved) in str(caught.value)


def test_what_is_not_a_run_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=r"gone: no such run folder; `harmonium train --out .*gone` makes one"):
        Run.load(tmp_path / "gone")
    with pytest.raises(HarmoniumError, match="no run.json in it, so it is not a"):
        Run.load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(HarmoniumError, match="file: no such run folder"):
        Run.load(tmp_path / "file")


def test_an_unknown_composition_says_how_to_bring_it(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harmonium.composition import Composition

    monkeypatch.delitem(Composition.registry, "complex")
    with pytest.raises(HarmoniumError, match=r"no composition 'complex'.*must be imported first \(--plugin FILE.py\)"):
        Run.load(saved)


def test_a_run_is_replaced_only_when_told(saved: Path) -> None:
    before = contents(saved)
    with pytest.raises(HarmoniumError, match="mine exists; choose another --out, or say --overwrite to replace it"):
        some_run(seed=1).save(saved)
    assert contents(saved) == before
    (saved / "extra.png").write_text("old")
    some_run(seed=1).save(saved, overwrite=True)
    assert Run.load(saved).config.train.seed == 1
    assert {file.name for file in saved.iterdir()} == FILES
    assert [file.name for file in saved.parent.iterdir()] == ["mine"]


def test_what_is_not_a_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("do not lose me")
    (tmp_path / "file").write_text("nor me")
    for name in ("thesis", "file"):
        with pytest.raises(HarmoniumError, match="is not a run folder, so it will not be replaced"):
            some_run().save(tmp_path / name, overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "do not lose me"
    assert (tmp_path / "file").read_text() == "nor me"
    (tmp_path / "empty").mkdir()
    assert Run.load(some_run().save(tmp_path / "empty", overwrite=True)).graph.n_entities == 12


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def fail_at(number: int, works):
    """A function that does its work and fails the `number`th time."""
    calls = iter(range(number))

    def call(*arguments: object) -> object:
        return disk_full() if next(calls, None) is None else works(*arguments)

    return call


@pytest.mark.parametrize("writes", range(len(FILES)))
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    monkeypatch.setattr(folder_module, "write", fail_at(writes, folder_module.write))
    with pytest.raises(HarmoniumError, match=r"new: cannot be written \(No space left on device\); nothing was left"):
        some_run().save(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("syncs", range(2 * len(FILES) + 1))
def test_a_full_disk_leaves_the_old_run_whole(saved: Path, monkeypatch: pytest.MonkeyPatch, syncs: int) -> None:
    before = contents(saved)
    monkeypatch.setattr(os, "fsync", fail_at(syncs, os.fsync))
    with pytest.raises(HarmoniumError, match=r"mine: cannot be written \(No space left on device\)"):
        some_run(seed=1).save(saved, overwrite=True)
    assert contents(saved) == before
    assert [file.name for file in saved.parent.iterdir()] == ["mine"]
    assert Run.load(saved).config.train.seed == 0


@pytest.mark.parametrize("renames", [0, 1])
def test_a_rename_that_fails_leaves_the_old_run(saved: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    """Where the system cannot exchange two folders in one step."""
    before, rename = contents(saved), Path.rename
    fails = fail_at(renames, rename)
    seen = []

    def once(path: Path, target: Path) -> object:
        seen.append(target)
        return fails(path, target) if len(seen) <= renames + 1 else rename(path, target)

    monkeypatch.setattr(sys, "platform", "elsewhere")
    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(HarmoniumError, match="mine: cannot be written"):
        some_run(seed=1).save(saved, overwrite=True)
    assert contents(saved) == before
    assert [file.name for file in saved.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("platform", ["linux", "elsewhere"])
def test_folders_are_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    folder_module.exchange(tmp_path / "one", tmp_path / "other")
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["other"]
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["one"]


def test_drafts_of_the_dead_are_swept_away(saved: Path) -> None:
    names = {
        ".mine.999999999.draft",
        f".mine.{os.getppid()}.draft",
        ".mine.draft",
        ".other.999999999.draft",
        ".mine.5x",
    }
    for name in names:
        (saved.parent / name).mkdir()
    some_run(seed=1).save(saved, overwrite=True)
    assert {file.name for file in saved.parent.iterdir()} == {"mine", *names} - {".mine.999999999.draft"}


def test_a_place_that_cannot_be_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(HarmoniumError, match=r"file/inside: cannot be made \(Not a directory\); choose another --out"):
        reserve(tmp_path / "file" / "inside" / "run")
    with pytest.raises(HarmoniumError, match="choose another --out"):
        some_run().save(tmp_path / "file" / "run")
    with pytest.raises(HarmoniumError, match="choose another --out"):
        harmonium.train(data=make_graph(), out=tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "x"


def test_a_run_can_be_moved(saved: Path, tmp_path: Path) -> None:
    moved = shutil.move(saved, tmp_path / "elsewhere")
    assert harmonium.Run.load(moved).metrics == some_run().metrics


def test_the_manifest_says_where_and_how_it_was_made(saved: Path) -> None:
    manifest = json.loads((saved / "run.json").read_text(encoding="utf-8"))
    assert manifest["environment"]["harmonium"] == harmonium.__version__
    assert manifest["environment"]["torch"] == torch.__version__
    assert {"python", "numpy", "platform", "device"} < manifest["environment"].keys()
    assert (manifest["best_epoch"], manifest["stopped"]) == (2, "interrupted in epoch 3")
    assert set(manifest["files"]) == FILES - {"run.json"}


def test_the_environment_says_threads_and_the_commit_of_a_source_tree(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for count, words in ((1, "CPU, 1 thread"), (3, "CPU, 3 threads")):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        assert environment()["device"] == words
    for place, found in (
        (tmp_path / "src" / "harmonium", ""),
        (tmp_path / "tree" / "src" / "harmonium", r"[0-9a-f]{40}"),
    ):
        tree = place.parent.parent
        if found:
            (tree / "src").mkdir(parents=True)
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
                subprocess.run(["git", "-C", tree, *words], check=True)
        run._commit.cache_clear()
        monkeypatch.setattr(run, "__file__", str(place / "run.py"))
        assert re.fullmatch(found, environment().get("commit", ""))
    run._commit.cache_clear()
