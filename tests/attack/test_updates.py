"""Attacks on updates of runs: damaged logs, wrong values with right checksums, faults at every operation, several at once.

After damage a run opens as it was, or not at all; what is undone is the run before, byte by byte. ATTACK=n makes n times
as many attacks.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import harmonium
from attack.damage import (
    FAULTS,
    SCALE,
    Ending,
    Refused,
    attempt,
    damaged_contents,
    leftovers,
    with_faults,
)
from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.run import run as run_module
from harmonium.run.run import Run
from harmonium.training.refit import local_refit
from harmonium.training.train import train
from small import make_graph

GRAPH = make_graph(12, 2, (80, 30, 20))
SETTINGS = [
    "model.composition=hole", "model.entity_dim=4", "model.rank=2", "train.epochs=1", "train.threads=1", "train.device=cpu",
]  # fmt: skip
LOG, TENSORS = "updates.jsonl", "update.0002.safetensors"
FILES = (LOG, "update.0001.safetensors", TENSORS)


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Few steps for each update: what they find does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_refit, "REFIT_STEPS", 2)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(GRAPH, Config.read(None, SETTINGS), folder)
    return folder


@pytest.fixture(scope="module")
def once(trained: Path) -> Path:
    folder = trained.with_name("once")
    harmonium.update(trained, add=[("new", "r0", "e1"), ("e0", "r new", "new")], out=folder)
    return folder


@pytest.fixture(scope="module")
def twice(once: Path) -> Path:
    """A run with two updates, the second of which removes facts."""
    folder = once.with_name("twice")
    harmonium.update(once, remove=GRAPH.names_of(GRAPH.train[:3]), out=folder)
    return folder


def history(folder: Path) -> tuple[str, str]:
    """The run in a folder and the one before its last update, after everything that shows its updates was called."""
    run = Run.load(folder)
    for update in run.updates:
        assert len(str(update)) + len(repr(update.summary())) + len(update._repr_html_()) > 0
        run.graph.names_of(update.added)
        run.graph.names_of(update.removed)
    return run.fingerprint, harmonium.update(run, undo=True).fingerprint


@pytest.fixture
def copy(twice: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(twice, tmp_path / "copy"))


# Damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_update_is_refused(file: str, twice: Path, copy: Path) -> None:
    content = (twice / file).read_bytes()
    for attack, damaged in damaged_contents(content, 2 * SCALE, seed=len(file)):
        if damaged != content:
            (copy / file).write_bytes(damaged)
            assert isinstance(attempt(lambda: history(copy), f"{file}, {attack}"), Refused), f"{file}, {attack}"


# Faults at every operation --------------------------------------------------------------------------------------------


def fact(head: str, relation: str, tail: str) -> Graph:
    """One fact as a graph: polars, which reads other facts, does not survive a fork."""
    none, names = Triples.from_rows([]), Vocabulary([head, tail])
    return Graph(names, Vocabulary([relation], kind="relation"), Triples.from_rows([[0, 0, 1]]), none, none, "a fact")


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "add": lambda folder, out: harmonium.update(folder, add=fact("e0", "r0", "newer"), out=out, overwrite=True),
    "remove": lambda folder, out: harmonium.update(folder, remove=fact("new", "r0", "e1"), out=out, overwrite=True),
    "undo": lambda folder, out: harmonium.update(folder, undo=True, out=out, overwrite=True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("change", CHANGES)
def test_an_update_in_place_with_a_fault_is_made_or_not(change: str, fault: str, twice: Path, tmp_path: Path) -> None:
    """The run is the one before or the one afterwards, and the same command again leads to the latter."""
    after = tmp_path / "after"
    CHANGES[change](twice, after)
    old, new = Run.load(twice).fingerprint, Run.load(after).fingerprint

    def check(folder: Path, ending: Ending, attack: str) -> None:
        now = Run.load(folder).fingerprint
        assert now == new or (now == old and (ending.killed or ending.message)), attack
        if now == old:
            CHANGES[change](folder, folder)
        assert Run.load(folder).fingerprint == new, attack
        assert leftovers(folder) == [], attack

    def job(folder: Path) -> None:
        CHANGES[change](folder, folder)

    with_faults(job, lambda folder: shutil.copytree(twice, folder), check, tmp_path, fault, 2 * SCALE)


# Several at once ------------------------------------------------------------------------------------------------------


def update_often(folder: Path, process: int, times: int) -> list[str]:
    """The entities that this process added; another process may have been quicker."""
    added = []
    for number in range(times):
        name = f"process {process}, {number}"
        try:
            harmonium.update(folder, add=fact(name, "r0", "e1"), out=folder, overwrite=True)
            added.append(name)
        except HarmoniumError as error:
            assert "was changed by another process meanwhile" in str(error)
    return added


def test_no_update_is_lost_when_several_processes_update_a_run_in_place(trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        added = pool.starmap(update_often, [(folder, process, 3 * SCALE) for process in range(3)])
    run = Run.load(folder)
    names = [name for update in run.updates for name in update.record.new_entities]
    assert sorted(names) == sorted(name for each in added for name in each)
    assert leftovers(folder) == []


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(
    trained: Path, twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the graph of one run could meet the model of another."""
    folder, read_model = Path(shutil.copytree(trained, tmp_path / "run")), run_module._read_model

    def replace_first(*arguments: object) -> object:
        monkeypatch.setattr(run_module, "_read_model", read_model)
        Run.load(twice).save(folder, overwrite=True)
        return read_model(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "_read_model", replace_first)
    run = Run.load(folder)
    assert (run.fingerprint, run.graph.n_entities) == (Run.load(twice).fingerprint, GRAPH.n_entities + 1)
