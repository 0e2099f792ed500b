"""Full disks, read-only folders, damaged files, numbers that blow up, memory that runs out: what happens is defined."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import harmonium
from harmonium import commands, evaluation, folder
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples
from harmonium.training import Progress, Training
from kills import GRAPH, KINDS, config, outcome
from small import family
from test_checkpoint import checkpoints, stop

FILES = ["training.json", "data.graph", "000001.json", "000001.safetensors", "000002.json", "000002.safetensors"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a training ends with that nothing happened to."""
    path = tmp_path_factory.mktemp("faults") / "whole"
    commands.train(config(KINDS[0]), GRAPH, path)
    return outcome(path)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A training with checkpoints of steps 3 and 5."""
    stop(KINDS[0], tmp_path / "mine", 5)
    return tmp_path / "mine"


# Disks -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to write more into one file, as when the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_stops_no_training_but_saving_it(
    tmp_path: Path, whole: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mine"

    def watch(now: Progress) -> None:
        if now.step == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))

    with largest_file(1 << 30), pytest.raises(HarmoniumError) as caught:
        commands.train(config(KINDS[0]), GRAPH, path, watch=watch)
    assert str(caught.value) == f"{path}: cannot be written (File too large); `harmonium resume {path}` tries again"
    assert caplog.messages[0] == f"{path}: no checkpoint at step 12 (File too large); training goes on"
    assert checkpoints(path)[-1] == "000003.safetensors"
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
    assert not list((path / "checkpoints").glob("*.draft"))
    harmonium.resume(path)
    assert outcome(path) == whole


def test_a_disk_full_from_the_start_is_told_before_any_work(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with (
        largest_file(2000),
        pytest.raises(HarmoniumError, match=r"mine: cannot be written \(File too large\); make room"),
    ):
        commands.train(config(KINDS[0]), GRAPH, tmp_path / "mine", watch=seen.append)
    assert seen == []
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """A root user may write anywhere, so be someone else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_folder_is_told_before_any_work(whole: dict[str, str]) -> None:
    seen: list[Progress] = []
    with tempfile.TemporaryDirectory() as place:
        stop(KINDS[0], Path(place) / "begun", 5)
        for path in (Path(place) / "begun", Path(place) / "begun" / "checkpoints", Path(place)):
            path.chmod(0o555)
        with ordinary_user():
            for start in (
                lambda: commands.train(config(KINDS[0]), GRAPH, Path(place) / "new", watch=seen.append),
                lambda: harmonium.resume(Path(place) / "begun", watch=seen.append),
            ):
                with pytest.raises(
                    HarmoniumError, match=r"cannot be written (to; choose|\(Permission denied\); make room)"
                ):
                    start()
        for path in (Path(place), Path(place) / "begun", Path(place) / "begun" / "checkpoints"):
            path.chmod(0o755)
        assert seen == []
        assert [entry.name for entry in Path(place).iterdir()] == ["begun"]
        harmonium.resume(Path(place) / "begun")
        assert outcome(Path(place) / "begun") == whole


# Damaged files ---------------------------------------------------------------------------------------------------


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def cut(path: Path, share: float) -> None:
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("harm", "share"), [(flip, 0), (flip, 0.4), (flip, 1), (cut, 0), (cut, 0.9)])
def test_a_damaged_checkpoint_is_passed_over(
    stopped: Path, whole: dict[str, str], file: str, harm, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The one before it is used; without the settings or the graph nothing can be."""
    place = stopped / "checkpoints" / file
    caplog.clear()
    harm(place, share)
    if file in ("training.json", "data.graph"):
        with pytest.raises(HarmoniumError) as caught:
            harmonium.resume(stopped)
        assert str(stopped / "checkpoints") in str(caught.value)
        assert "train again" in str(caught.value)
        return
    harmonium.resume(stopped)
    assert outcome(stopped) == whole
    told = [
        text for text in caplog.messages if text.endswith("going on from the checkpoint before it, or the beginning")
    ]
    assert len(told) == len(caplog.messages) == file.startswith("000002")


def test_a_missing_part_of_a_checkpoint_is_passed_over(stopped: Path, whole: dict[str, str]) -> None:
    (stopped / "checkpoints" / "000002.safetensors").unlink()
    harmonium.resume(stopped)
    assert outcome(stopped) == whole


def test_without_a_sound_checkpoint_training_starts_from_the_beginning(stopped: Path, whole: dict[str, str]) -> None:
    seen: list[Progress] = []
    for file in ("000001.json", "000002.safetensors"):
        flip(stopped / "checkpoints" / file, 0.5)
    harmonium.resume(stopped, watch=seen.append)
    assert seen[0].step == 1
    assert outcome(stopped) == whole


@pytest.mark.parametrize("file", ["training.json", "000002.json"])
def test_a_training_of_a_newer_format_is_left_alone(stopped: Path, whole: dict[str, str], file: str) -> None:
    place = stopped / "checkpoints" / file
    facts = json.loads(place.read_bytes())
    del facts["sha256"]
    place.write_bytes(folder.seal(facts | {"format": 3}))
    if file == "training.json":
        with pytest.raises(HarmoniumError, match="run format 3; .* reads format 2. Use the version that wrote it"):
            harmonium.resume(stopped)
        assert place.exists()
    else:
        harmonium.resume(stopped)
        assert outcome(stopped) == whole


def test_a_checkpoint_that_does_not_fit_is_told(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Training, "unpack", lambda *_: {}["moved"])
    with pytest.raises(
        HarmoniumError, match=r"000002.json: of no use to this version or device \('moved'\); train again"
    ):
        harmonium.resume(stopped)
    assert len(checkpoints(stopped)) == 4


# Numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["entity", "relation"])
def test_broken_numbers_stop_training_and_keep_the_last_good_checkpoint(
    value: float, where: str, tmp_path: Path, whole: dict[str, str]
) -> None:
    path, taken = tmp_path / "mine", []
    take = Training.move

    def move(training: Training, index: Tensor, following: Tensor | None) -> None:
        take(training, index, following)
        taken.append(index)
        if len(taken) == 6:
            with torch.no_grad():
                getattr(training.model, where)[0] = value

    with pytest.MonkeyPatch.context() as patch, pytest.raises(HarmoniumError) as caught:
        patch.setattr(Training, "move", move)
        commands.train(config(KINDS[0]), GRAPH, path)
    assert "in epoch 1; lower train.learning_rate (0.003)" in str(caught.value)
    assert f"`harmonium resume {path} --set KEY=VALUE` goes on from step 3" in str(caught.value)
    assert len(taken) == 6  # noticed before the checkpoint of that step was written
    harmonium.resume(path)
    assert outcome(path) == whole


def test_numbers_broken_before_the_first_checkpoint_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=r"lower train.learning_rate \(1e\+38\)$"):
        commands.train(config("train.learning_rate=1e38 train.checkpoint_every=none"), GRAPH, tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


# Memory ----------------------------------------------------------------------------------------------------------


class Hungry:
    """A scorer that has memory for so many queries at once."""

    def __init__(self, model: harmonium.GradientGraph, room: int, error: Exception) -> None:
        self.model, self.room, self.error, self.asked = model, room, error, []

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        self.asked.append(len(queries))
        if len(queries) > self.room:
            raise self.error
        return self.model.score_slot(slot, queries)


FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    ),
    RuntimeError("MPS backend out of memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", FULL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("room", [1, 3])
def test_ranking_goes_on_with_half_the_queries_when_memory_runs_out(error: Exception, room: int) -> None:
    graph = family()
    model = harmonium.build_model(config("").model, graph.n_entities, graph.n_relations)
    hungry, told = Hungry(model, room, error), []
    found = evaluation.rank(hungry, graph.train, Slot.TAIL, graph.answers(Slot.TAIL), chunk=12, watch=told.append)
    expected = evaluation.rank(Hungry(model, 999, error), graph.train, Slot.TAIL, graph.answers(Slot.TAIL))
    assert torch.equal(found.values(), expected.values())
    assert sum(told) == len(graph.train)
    assert hungry.asked[:3] == [12, 6, 3]
    assert max(hungry.asked[5:]) <= max(room, 2)


def test_memory_for_not_even_one_query_says_what_to_do() -> None:
    graph = family()
    model = harmonium.build_model(config("").model, graph.n_entities, graph.n_relations)
    hungry = Hungry(model, 1, FULL[0])
    evaluation.rank(hungry, graph.test, Slot.TAIL)
    hungry.score_slot = lambda slot, queries: (
        model.score_slot(slot, queries) if not hungry.asked.pop() else Hungry.score_slot(hungry, slot, queries)
    )
    hungry.room, hungry.asked = 0, [1] * 50 + [0]
    with pytest.raises(
        HarmoniumError, match=r"out of memory \(CUDA out of memory.*; choose a smaller model, or a device"
    ):
        evaluation.rank(hungry, graph.test, Slot.TAIL)


def test_another_error_while_ranking_is_no_lack_of_memory() -> None:
    graph = family()
    model = harmonium.build_model(config("").model, graph.n_entities, graph.n_relations)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        evaluation.rank(Hungry(model, 1, RuntimeError("a mistake of ours")), graph.test, Slot.TAIL)
