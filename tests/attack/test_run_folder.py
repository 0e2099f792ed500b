"""Attacks on run folders: every file damaged, and a fault at every operation on a file.

After damage a run gives the right answers or a HarmoniumError; after a fault nothing that was finished is lost, and the
same commands lead to the same results. ATTACK=n makes n times as many attacks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium
from attack.damage import (
    FAULTS,
    REPLACEMENTS,
    SCALE,
    Ending,
    Refused,
    attempt,
    damaged_contents,
    encode,
    leftovers,
    replace_file,
    seal,
    with_faults,
    wrong_leaves,
)
from harmonium.answers.calibration import conformal, fact_probability
from harmonium.answers.open_run import open_run
from harmonium.config.settings import Config
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import storage, tensor_file
from harmonium.runtime.folders import is_unfinished
from harmonium.training.state import Progress
from harmonium.training.train import resume, train
from kills import outcome, signal_at
from small import make_graph

GRAPH = make_graph(12, 2, (80, 30, 20))
SETTINGS = [
    "model.composition=hole", "model.entity_dim=4", "model.rank=2", "train.batch_size=10", "train.negatives=3",
    "train.epochs=2", "train.evaluate_every=1", "train.checkpoint_every=5", "train.threads=1", "train.device=cpu",
]  # fmt: skip
STEPS = 16
KEPT = ("conformal.json", "fact_calibration.json")
FILES = ("run.json", "config.toml", "data.graph", "model.safetensors", "history.jsonl", "metrics.json", *KEPT)
CHECKPOINT = ("training.json", "data.graph", "000002.json", "000002.safetensors", "000003.json", "000003.safetensors")


def config(*changes: str) -> Config:
    return Config.read(None, [*SETTINGS, *changes])


def forget() -> None:
    """Forget what this process has fitted, as a new process would."""
    manifest._computed.clear()


def answers(folder: Path) -> dict[str, Any]:
    """What a run says, by everything that is kept in its folder; NaN, which equals nothing, as text."""
    forget()
    run = Run.load(folder)
    triples = run.graph.test[:5]
    sets = open_run(run).answer_sets()
    return {
        "scores": run.model.score(triples).tolist(),
        "probabilities": str(open_run(run).probabilities(triples)),
        "sizes": [sets.sizes(run.model, run.graph, slot, triples, 0.8)[0].tolist() for slot in sets.slots],
        "facts": repr(open_run(run).fact_calibration()),
        "info": json.dumps(harmonium.info(run) | {"run": None}),
        "metrics": json.dumps(run.metrics),
        "history": [row["loss"] for row in run.history.rows],
        "graph": repr([run.graph.names_of(triples), list(run.graph.entities.ids)]),
        "settings": run.config.to_toml(),
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with everything that is ever kept in its folder."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(GRAPH, config(), folder)
    answers(folder)
    assert {file.name for file in folder.iterdir()} == set(FILES)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with two checkpoints."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(harmonium.errors.Interrupted):
        train(GRAPH, config(), folder, progress=signal_at(12))
    return folder


@pytest.fixture(scope="module")
def expected(finished: Path) -> dict[str, Any]:
    return answers(finished)


@pytest.fixture(scope="module")
def fits(expected: dict[str, Any]) -> tuple[Any, ...]:
    """What fits of the finished run give."""
    kept = {name: content for (_, name), content in manifest._computed.items()}
    return kept["conformal.json"].answer_sets, kept["fact_calibration.json"].calibration


@pytest.fixture
def quick_fits(fits: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit in no time, with the result of the real fit, so that many attacks on what is kept of it can be made."""
    sets, calibration = fits
    monkeypatch.setattr(conformal, "fit_answer_sets", lambda *_: sets)
    monkeypatch.setattr(fact_probability, "fit_fact_calibration", lambda *_: calibration)


@pytest.fixture
def copy_of(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Make fresh copies of a run folder, one at a time."""
    target = tmp_path / "copy"

    def copy(folder: Path) -> Path:
        shutil.rmtree(target, ignore_errors=True)
        return Path(shutil.copytree(folder, target))

    yield copy
    shutil.rmtree(target, ignore_errors=True)


Copy = Callable[[Path], Path]


# Damage to a finished run ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_fits")
@pytest.mark.parametrize("file", FILES)
def test_damaged_contents_never_change_an_answer(
    file: str, finished: Path, expected: dict[str, Any], copy_of: Copy
) -> None:
    folder, content = copy_of(finished), (finished / file).read_bytes()
    manifest = (finished / "run.json").read_bytes()
    for attack, damaged in damaged_contents(content, 2 * SCALE, seed=len(file)):
        if damaged == content:
            continue
        (folder / "run.json").write_bytes(manifest)
        (folder / file).write_bytes(damaged)
        result = attempt(lambda: answers(folder), f"{file}, {attack}")
        assert isinstance(result, Refused) or result == expected, f"{file}, {attack}"
        assert isinstance(result, Refused) or file in ("run.json", *KEPT), f"{file}, {attack}"
        (folder / file).write_bytes(content)


def encode_manifest(value: Any) -> bytes:
    """With a right checksum of itself, if it is an object."""
    if isinstance(value, dict):
        value = value | {"sha256": storage.digest(storage.to_json(value, errors="replace"))}
    return encode(value)


@pytest.mark.usefixtures("quick_fits")
@pytest.mark.parametrize("file", [file for file in FILES if ".json" in file])
def test_wrong_values_with_a_right_checksum_are_refused_or_harmless(
    file: str, finished: Path, expected: dict[str, Any], copy_of: Copy
) -> None:
    """Whoever writes right checksums can change answers, but tracebacks and numbers that are not finite do not come out."""
    folder, content = copy_of(finished), (finished / file).read_bytes()
    manifest = (finished / "run.json").read_bytes()
    value = [json.loads(line) for line in content.splitlines()] if file.endswith("l") else json.loads(content)
    if file == "run.json":
        value.pop("sha256")
    for attack, changed in wrong_leaves(value, 15 * SCALE, seed=len(file)):
        (folder / "run.json").write_bytes(manifest)
        if file == "run.json":
            (folder / file).write_bytes(encode_manifest(changed))
        else:
            lines = file.endswith("l") and isinstance(changed, list)
            (folder / file).write_bytes(b"\n".join(map(encode, changed)) if lines else encode(changed))
            seal(folder, file)
        result = attempt(lambda: answers(folder), f"{file}, {attack}")
        if not isinstance(result, Refused):
            assert result["scores"] == expected["scores"], f"{file}, {attack}"
            assert not re.search(r"\b(nan|inf)\b", result["probabilities"]), f"{file}, {attack}"
        for kept in KEPT:
            shutil.copy(finished / kept, folder / kept)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("file", ["model.safetensors", "data.graph"])
def test_tensors_of_other_values_types_or_shapes_are_refused(
    file: str, number: str, finished: Path, copy_of: Copy
) -> None:
    folder = copy_of(finished)
    tensors, metadata = tensor_file.read(finished / file)
    for name, tensor in tensors.items():
        changes = [tensor.to(torch.int32), tensor[:-1], tensor[None], tensor.flatten()[:0]]
        if tensor.is_floating_point() and tensor.numel():
            broken = tensor.clone()
            broken.view(-1)[-1] = float(number)
            changes.append(broken)
        for position, changed in enumerate(changes):
            (folder / file).write_bytes(b"".join(tensor_file.parts(tensors | {name: changed}, metadata)))
            seal(folder, file)
            result = attempt(lambda: answers(folder), f"{name}, {position}")
            unchanged = changed.shape == tensor.shape and changed.dtype == tensor.dtype and changed.equal(tensor)
            assert isinstance(result, Refused) != unchanged, f"{name}, {position}"


# Damage to an unfinished training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [*CHECKPOINT, "lock", "reserve"])
def test_a_damaged_checkpoint_never_changes_the_result(file: str, stopped: Path, finished: Path, copy_of: Copy) -> None:
    whole = {name: text for name, text in outcome(finished).items() if name not in KEPT}
    path, content = stopped / "checkpoints" / file, (stopped / "checkpoints" / file).read_bytes()[: 1 << 20]
    attacks: list[tuple[str, Callable[[Path], object]]] = [
        (attack, lambda path, text=text: path.write_bytes(text))
        for attack, text in damaged_contents(content, SCALE, seed=len(file))
        if text != content
    ]
    attacks += [(name, lambda path, name=name: replace_file(path, name)) for name in REPLACEMENTS]
    for attack, apply in attacks:
        folder = copy_of(stopped)
        apply(folder / path.relative_to(stopped))
        result = attempt(partial(resume, folder), f"{file}, {attack}")
        assert isinstance(result, Refused) or comparable(folder) == whole_of(whole), f"{file}, {attack}"


def whole_of(contents: dict[str, str]) -> dict[str, str]:
    """The contents of a run without the names of kept files in its manifest."""
    manifest = json.loads(contents["run.json"])
    manifest["files"] = {name: record for name, record in manifest["files"].items() if name not in KEPT}
    return contents | {"run.json": json.dumps(manifest)}


def comparable(folder: Path) -> dict[str, str]:
    """The contents of a run but for times and kept files."""
    contents = outcome(folder)
    return whole_of({name: text for name, text in contents.items() if name not in KEPT})


# Faults at every operation --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(finished: Path) -> dict[str, str]:
    """What an undisturbed training writes."""
    return comparable(finished)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are written that cannot be written to their folder."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("HARMONIUM_CACHE", str(folder / "cache"))
    return folder


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("earlier", ["nothing", "stopped", "finished"])
def test_a_training_with_a_fault_ends_the_same_and_loses_nothing(
    fault: str,
    earlier: str,
    finished: Path,
    stopped: Path,
    whole: dict[str, str],
    tmp_path: Path,
    elsewhere: Path,
) -> None:
    """A new training, one that is resumed, and one that replaces a finished run."""
    steps = tmp_path / "steps"

    def prepare(folder: Path) -> None:
        steps.touch()
        os.utime(steps, (0, 0))
        if earlier == "stopped":
            shutil.copytree(stopped, folder)
        elif earlier == "finished":
            train(GRAPH, config("train.seed=5", "train.epochs=1"), folder)

    def progress(now: Progress) -> None:
        if now.step == STEPS:
            os.utime(steps)  # the training is finished; no operation that counts

    def job(folder: Path) -> None:
        if earlier == "stopped":
            resume(folder, progress=progress)
        else:
            train(GRAPH, config(), folder, overwrite=earlier == "finished", progress=progress)

    def check(folder: Path, ending: Ending, attack: str) -> None:
        elsewhere_match = re.search(r"was written to (\S+) instead", ending.message or "")
        if elsewhere_match:
            assert comparable(Path(elsewhere_match[1])) == whole, attack
            shutil.rmtree(elsewhere_match[1])
        elif ending.message and steps.stat().st_mtime > 0 and fault == "error":
            done: list[Progress] = []
            resume(folder, progress=done.append)
            again = [now for now in done if now.stage == "training"]
            assert again == [], f"{attack}: the finished training is done again"
        if earlier == "finished":
            assert Run.load(folder).config.train.seed in (0, 5), attack
        if earlier == "finished" and not is_unfinished(folder) and Run.load(folder).config.train.seed == 5:
            train(GRAPH, config(), folder, overwrite=True)  # it failed before it began
        elif is_unfinished(folder) or (folder / "run.json").exists():
            resume(folder)
        else:
            assert earlier != "stopped", f"{attack}: the checkpoints are gone"
            train(GRAPH, config(), folder)
        assert comparable(folder) == whole, attack
        assert leftovers(folder) == [], attack
        assert list(elsewhere.rglob("run.json")) == [], attack

    with_faults(job, prepare, check, tmp_path, fault, 4 * SCALE)
