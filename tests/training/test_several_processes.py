"""Several processes under torchrun: the result of one, checkpoints for any number, lost processes replaced."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium
from harmonium import Run
from harmonium.data.triples import Triples
from harmonium.model.gradient_graph import ROWS_PER_DRAW, draw_rows
from harmonium.runtime.distributed import World
from small import family

SETS = ["model.entity_dim=12", "train.epochs=2", "train.batch_size=128", "train.negatives=4", "train.evaluate_every=2"]
LONGER = [*SETS, "train.epochs=4", "train.checkpoint_every=20"]
Process = subprocess.Popen[str]


def spawn(command: Sequence[object], env: Mapping[str, str] | None = None) -> Process:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict(env or {})
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(word) for word in command], env=environment, **pipes)


def torchrun(
    *arguments: object,
    processes: int = 2,
    restarts: int = 0,
    launcher: Sequence[str] = ("--standalone",),
    env: Mapping[str, str] | None = None,
) -> Process:
    """`torchrun -m harmonium ...`."""
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, f"--nproc-per-node={processes}"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1", "-m", "harmonium"]
    return spawn([*command, *arguments], env)


def train_command(folder: Path, settings: Sequence[str]) -> list[object]:
    return [
        "train",
        "--preset",
        "paper",
        "--data",
        "atlas",
        *(word for text in settings for word in ("--set", text)),
        "--out",
        folder,
    ]


def finish(process: Process, code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=500)
    assert process.returncode == code, f"{out}\n{err}"
    return out, err


def wait_for_checkpoint(folder: Path, process: Process) -> None:
    end = time.monotonic() + 120
    while not list((folder / "checkpoints").glob("0*.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "no checkpoint was written"
        time.sleep(0.02)


def worker(launcher: Process, rank: int) -> int:
    """The process id of a rank, among the children of torchrun."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"PPid:\s+(\d+)", (folder / "status").read_text())[1]
            if int(parent) == launcher.pid and f"\0RANK={rank}\0".encode() in (folder / "environ").read_bytes():
                return int(folder.name)
        except OSError:
            continue
    raise LookupError(f"no process of rank {rank}")


def assert_same_model(one: Run, other: Run) -> None:
    torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), rtol=1e-3, atol=1e-3)


def with_processes(test: Callable[..., None]) -> Callable[..., None]:
    """The marks of a test that starts several processes."""
    return pytest.mark.slow(pytest.mark.network(test))


# With processes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run by two processes, and their output."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, *finish(torchrun(*train_command(folder, LONGER)))


@pytest.fixture(scope="module")
def whole(two_processes: tuple[Path, str, str]) -> Path:
    return two_processes[0]


@with_processes
def test_two_processes_give_the_result_of_one_and_the_main_one_prints(tmp_path, two_processes) -> None:
    folder, out, err = two_processes
    assert out.count("Link prediction on atlas") == 1
    assert err.count("training 100%") == 1
    assert not (folder / "checkpoints").exists()
    two, one = Run.load(folder), harmonium.train("atlas", "paper", overrides=[*LONGER, "train.threads=1"])
    losses = [[row["loss"] for row in run.history.rows] for run in (two, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert two.evaluation.metrics == pytest.approx(one.evaluation.metrics, rel=1e-3)
    assert_same_model(two, one)


@with_processes
def test_a_killed_worker_is_replaced_and_training_continues_to_the_byte(tmp_path: Path, whole: Path) -> None:
    process = torchrun(*train_command(tmp_path / "run", LONGER), restarts=1)
    wait_for_checkpoint(tmp_path / "run", process)
    os.kill(worker(process, rank=1), signal.SIGKILL)
    finish(process)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@with_processes
def test_one_or_three_processes_resume_the_checkpoint_of_two(tmp_path: Path, whole: Path) -> None:
    process = torchrun(*train_command(tmp_path / "run", LONGER))
    wait_for_checkpoint(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=500)
    assert re.search(r"harmonium resume .* step [1-9]", err)
    assert not (tmp_path / "run" / "run.json").exists()
    shutil.copytree(tmp_path / "run", tmp_path / "three")
    finish(torchrun("resume", tmp_path / "three", processes=3))
    for run in (harmonium.resume(tmp_path / "run"), Run.load(tmp_path / "three")):
        assert_same_model(run, Run.load(whole))
        assert len(run.history.rows) == 4


@with_processes
def test_ranking_with_several_processes_gives_the_result_of_one(whole: Path) -> None:
    out, _ = finish(torchrun("evaluate", whole, "--json"))
    assert json.loads(out) == json.loads(json.dumps(harmonium.evaluate(whole).to_json()))


@with_processes
def test_the_default_gives_the_settings_constraints_and_answers_of_one_process(tmp_path: Path) -> None:
    """Search, a softmax over sharded entities, constraints, the last training, and the list of missing facts."""
    graph = replace(family(60), name="family")
    graph = replace(graph, train=graph.train[:100], valid=Triples.cat([graph.train[100:], graph.valid]))
    harmonium.convert(graph, tmp_path / "family", to="tsv")
    sizes = [
        "train.epochs=5",
        "model.entity_dim=16",
        "train.batch_size=20",
        "train.n3=0.01",
        "model.composition=complex",
    ]
    sizes += ["train.relation_prediction=0", "model.reciprocal=true"]
    arguments = ["train", tmp_path / "family", "--minutes", "1", "--out", tmp_path / "two"]
    finish(torchrun(*arguments, *(word for text in sizes for word in ("--set", text))))
    one = harmonium.train(tmp_path / "family", overrides=[*sizes, "train.threads=1"], minutes=1)
    two = Run.load(tmp_path / "two")
    assert one.selection.settings | {"train.threads": None} == two.selection.settings | {"train.threads": None}
    assert [trial.mrr for trial in one.selection.trials] == pytest.approx([trial.mrr for trial in two.selection.trials])
    assert len(one.grammar.rules) > 0
    for name, tensor in one.grammar.rules.to_tensors().items():
        torch.testing.assert_close(two.grammar.rules.to_tensors()[name], tensor)
    torch.testing.assert_close(two.grammar.weights.by_slot, one.grammar.weights.by_slot, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(two.final.entity, one.final.entity, rtol=1e-2, atol=1e-2)
    assert two.evaluation.metrics == pytest.approx(one.evaluation.metrics, rel=1e-3)
    out, _ = finish(torchrun("complete", tmp_path / "two", "--top", "5", "--format", "jsonl"))
    listed = [json.loads(line) for line in out.splitlines()]
    alone = harmonium.complete(two, top=5)
    assert [(row["head"], row["relation"], row["tail"]) for row in listed] == [
        (fact.head, fact.relation, fact.tail) for fact in alone
    ]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def one_of_two(port: int, rank: int, *arguments: object) -> Process:
    """A process of two, as another launcher than torchrun would start it."""
    env = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return spawn([sys.executable, "-m", "harmonium", *arguments], env)


@with_processes
def test_processes_with_different_settings_are_refused(tmp_path: Path) -> None:
    port = free_port()
    both = [
        one_of_two(port, rank, *train_command(tmp_path / "run", [f"model.entity_dim={8 + rank}"])) for rank in (0, 1)
    ]
    errors = [finish(process, code=2)[1] for process in both]
    assert re.search(r"process 1 .* settings", errors[0])
    assert not (tmp_path / "run").exists()


# Without processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, ROWS_PER_DRAW, 2 * ROWS_PER_DRAW + 5])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("is_xavier", [False, True])
def test_initial_vectors_do_not_depend_on_the_number_of_processes(n: int, size: int, is_xavier: bool) -> None:
    whole, generator = torch.empty(n, 3), torch.Generator().manual_seed(1)
    if is_xavier:
        torch.nn.init.xavier_uniform_(whole, generator=generator)
    else:
        whole.normal_(generator=generator).div_(3**0.5)
    shards = []
    for rank in range(size):
        rows = World(rank, size).shard(n)
        shards.append(torch.empty(rows.stop - rows.start, 3))
        draw_rows(shards[-1], n, rows, torch.Generator().manual_seed(1), is_xavier=is_xavier)
    assert torch.equal(torch.cat(shards), whole)
