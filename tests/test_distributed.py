"""Several processes under torchrun: the result of one, rows dealt, checkpoints for any number, lost ones replaced."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium
from harmonium import Run, commands, completion
from harmonium.config import Config
from harmonium.datasets import load
from harmonium.distributed import World, one_by_one
from harmonium.errors import HarmoniumError, Together
from harmonium.graph import Slot
from harmonium.model import DRAWN_ROWS, draw_rows
from harmonium.stepping import own_part
from harmonium.tables import Dealt
from harmonium.training import Training, build_model

SETS = ["model.entity_dim=12", "train.epochs=2", "train.batch_size=64", "train.negatives=4", "train.evaluate_every=1"]
LONGER = [*SETS, "train.epochs=4", "train.checkpoint_every=20"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def start(*arguments, processes=2, restarts=0, launcher=("--standalone",), inside=(), env=None):
    """`torchrun -m harmonium ...`, as a user would say it."""
    launch = [*inside, sys.executable, "-m", "torch.distributed.run", *launcher, f"--nproc-per-node={processes}"]
    command = [*launch, f"--max-restarts={restarts}", "--monitor-interval=0.1", "-m", "harmonium", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | ONE_THREAD | (env or {}), **pipes)


def train(folder, settings, **options):
    return start("train", "--data", "atlas", *(w for s in settings for w in ("--set", s)), "--out", folder, **options)


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, f"{out}\n{err}"
    return out, err


def wait_for(found, process, seconds=120):
    end = time.monotonic() + seconds
    while not (result := found()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return result


def worker(launcher, rank):
    """The process of a rank, among the children of torchrun."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"PPid:\s+(\d+)", (place / "status").read_text())[1]
            if int(parent) == launcher.pid and f"\0RANK={rank}\0".encode() in (place / "environ").read_bytes():
                return int(place.name)
        except OSError:
            continue
    return None


def one_process(folder, settings):
    return harmonium.train(data="atlas", sets=[*settings, "train.threads=1"], out=folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run by two processes, and what they said."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, *finish(train(folder, LONGER))


@pytest.fixture(scope="module")
def whole(undisturbed):
    return undisturbed[0]


def test_two_processes_end_like_one_and_the_first_speaks(tmp_path, undisturbed):
    folder, out, err = undisturbed
    assert out.count("Link prediction on atlas") == 1
    assert err.count("training 100%") == 1
    assert not (folder / "checkpoints").exists()
    two, one = Run.load(folder), one_process(tmp_path / "one", LONGER)
    losses = [[row["loss"] for row in run.history.rows] for run in (two, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert two.metrics["metrics"] == pytest.approx(one.metrics["metrics"], rel=1e-3)
    torch.testing.assert_close(two.model.state_dict(), one.model.state_dict(), rtol=1e-3, atol=1e-3)


def test_a_killed_worker_is_replaced_and_training_goes_on_from_the_checkpoint_to_the_byte(tmp_path, whole):
    process = train(tmp_path / "run", LONGER, restarts=1)
    wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("0*.json")), process)
    os.kill(worker(process, rank=1), signal.SIGKILL)
    finish(process)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_what_two_processes_saved_one_or_three_go_on_with(tmp_path, whole):
    process = train(tmp_path / "run", LONGER)
    wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("0*.json")), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "harmonium resume" in err
    assert not (tmp_path / "run" / "run.json").exists()
    steps = re.search(r"goes on from step ([\d,]+)", err)[1]
    assert int(steps.replace(",", "")) > 0
    subprocess.run(["cp", "-r", tmp_path / "run", tmp_path / "three"], check=True)
    finish(start("resume", tmp_path / "three", processes=3))
    alone, expected = harmonium.resume(tmp_path / "run"), Run.load(whole)
    for run in (alone, Run.load(tmp_path / "three")):
        torch.testing.assert_close(run.model.state_dict(), expected.model.state_dict(), rtol=1e-3, atol=1e-3)
        assert len(run.history.rows) == 4


def test_what_one_process_saved_two_go_on_with(tmp_path, whole):
    settings = [word for text in LONGER for word in ("--set", text)]
    command = [sys.executable, "-m", "harmonium", "train", "--data", "atlas", *settings, "--out", tmp_path / "run"]
    process = subprocess.Popen(command, env=os.environ | ONE_THREAD, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("0*.json")), process)
    process.kill()
    process.communicate()
    finish(start("resume", tmp_path / "run"))
    torch.testing.assert_close(
        Run.load(tmp_path / "run").model.state_dict(), Run.load(whole).model.state_dict(), rtol=1e-3, atol=1e-3
    )


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def beside(port, rank, *arguments):
    """A process of two, as another launcher than torchrun would start it."""
    env = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "LOCAL_RANK": "0",
    }
    command = [sys.executable, "-m", "harmonium", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | ONE_THREAD | env, **pipes)


def test_processes_that_differ_are_told_in_what(tmp_path):
    port, common = free_port(), ["train", "--data", "atlas", "--out", tmp_path / "run"]
    both = [beside(port, rank, *common, "--set", f"model.entity_dim={8 + rank}") for rank in (0, 1)]
    (_, told), (_, other) = (finish(process, code=2) for process in both)
    assert "process 1 has another settings" in told
    assert "give all the same program, data and settings" in told + other
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_is_said_in_words(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        _, err = finish(beside(port, 0, "train", "--data", "atlas", "--out", tmp_path / "run"), code=2)
    assert f"port {port} is in use" in err
    assert "--master-port" in err
    assert "Traceback" not in err


@pytest.fixture
def hosts():
    """Two network namespaces joined by a cable, where they can be made: (command to run there, address, device)."""
    names = [f"harmonium{os.getpid()}{side}" for side in "ab"]
    cable = [f"hm{os.getpid() % 10**6}{side}" for side in "ab"]

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for number, (name, end) in enumerate(zip(names, cable, strict=True), start=1):
            ip("link", "set", end, "netns", name)
            for words in (f"addr add 10.77.0.{number}/24 dev {end}", f"link set {end} up", "link set lo up"):
                ip("-n", name, *words.split())
        yield [
            (["ip", "netns", "exec", name], f"10.77.0.{i}", end)
            for i, (name, end) in enumerate(zip(names, cable, strict=True), 1)
        ]
    except (OSError, subprocess.CalledProcessError):
        yield [([], "127.0.0.1", "lo")] * 2  # not allowed here: two launchers on one machine, over TCP
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_two_hosts_train_together(tmp_path, hosts):
    meet, running = f"--rdzv-endpoint={hosts[0][1]}:{free_port()}", []
    for number, (inside, address, device) in enumerate(hosts):
        launcher = [meet, "--rdzv-backend=c10d", "--nnodes=2", f"--local-addr={address}"]
        launcher += [f"--rdzv-conf=is_host={int(number == 0)}"]
        options = {"launcher": launcher, "inside": inside, "env": {"GLOO_SOCKET_IFNAME": device}}
        running.append(train(tmp_path / "run", [*SETS, "train.epochs=1"], processes=1, **options))
    for process in running:
        finish(process)
    assert len(Run.load(tmp_path / "run").history.rows) == 1


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("negatives", [2, 64])  # by rows; all rows at once
def test_a_process_of_two_holds_about_half(optimizer, negatives):
    graph = load("atlas")
    sets = ["model.initialisation=paper", f"train.optimizer={optimizer}", f"train.negatives={negatives}"]
    config = Config.read(None, [*sets, "train.batch_size=64"])

    def held(world):
        model = build_model(config.model, graph.n_entities, graph.n_relations, 0, world)
        at = Training(model, graph.train, config.train)
        if at.take_step.rows is None:  # what an optimiser of all rows makes at its first step
            model.entity.grad = torch.zeros_like(model.entity)
            at.take_step.optimizer.step()
        tensors = (
            at.pack()[0]
            if world is None
            else {"model.entity": model.entity} | {f"optimiser.{k}": v for k, v in at.take_step.state_dict().items()}
        )
        return sum(tensors[name].numel() for name in at.dealt), at.dealt

    (all_of_it, names), (half, same) = held(None), held(World(1, 2))
    assert names == same
    assert len(names) == {"adam": 3, "adagrad": 2}[optimizer]
    assert half <= 0.6 * all_of_it


@pytest.mark.parametrize("n", [1, 7, DRAWN_ROWS, 2 * DRAWN_ROWS + 5])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_are_drawn_alike_whoever_holds_them(n, size):
    whole = torch.empty(n, 3)
    whole.normal_(generator=torch.Generator().manual_seed(1)).div_(3**0.5)
    parts = []
    for rank in range(size):
        held = World(rank, size).rows(n)
        parts.append(torch.empty(held.stop - held.start, 3))
        draw_rows(parts[-1], n, held, torch.Generator().manual_seed(1))
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 4, 5, 17])
def test_a_batch_is_dealt_whole_and_shares_add_up(n, size):
    batch, negatives = load("atlas").train[:n], {Slot.TAIL: torch.arange(n)[:, None]}
    parts = [own_part(World(rank, size), batch, negatives) for rank in range(size)]
    assert sum(share for share, _, _ in parts) == pytest.approx(1)
    assert torch.cat([ids[Slot.TAIL][:, 0] for share, _, ids in parts if share]).tolist() == list(range(n))
    assert all(len(part) == len(ids[Slot.TAIL]) > 0 for _, part, ids in parts)


def test_all_entities_at_once_are_refused_where_they_are_dealt():
    graph = load("atlas")
    config = Config.read(None, ["train.loss=full", "model.initialisation=paper"])
    model = build_model(config.model, graph.n_entities, graph.n_relations, 0, World(0, 2))
    with pytest.raises(HarmoniumError, match="train.loss=full needs all entities together, not several processes"):
        Training(model, graph.train, config.train)


def test_rows_asked_for_are_sent_and_gradients_come_back_summed():
    class Alone(World):
        def deal(self, rows, given=None, taken=None):
            assert given is None or sum(given) == len(rows)
            return rows.clone()  # everything asked of oneself

    table = torch.nn.Parameter(torch.arange(12.0).view(6, 2))
    dealt = Dealt(table, 6, None, Alone(0, 1))
    assert torch.equal(dealt.fetch(torch.tensor([1, 4])), table[[1, 4]])
    dealt.move(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert table.grad.tolist() == [[0, 0], [1, 2], [0, 0], [0, 0], [3, 4], [0, 0]]


def test_ranking_and_completing_are_spread_over_processes(whole):
    out, _ = finish(start("evaluate", whole, "--json"))
    assert json.loads(out) == json.loads(json.dumps(harmonium.evaluate(whole).to_json()))
    out, _ = finish(start("complete", whole, "--all-relations", "--top", 40, "--json", processes=3))
    assert [(row["head"], row["relation"], row["tail"]) for row in json.loads(out)] == [
        (row["head"], row["relation"], row["tail"]) for row in harmonium.complete(whole, top=40)
    ]


def test_vectors_to_start_from_reach_the_process_that_holds_their_entity(tmp_path):
    graph = load("atlas")
    config = Config.read(None, ["model.initialisation=paper", "model.entity_dim=4"])
    names = [graph.entities.ids[i] for i in (0, graph.n_entities - 1)]
    vectors = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.savez(tmp_path / "start.npz", entity_names=np.array(names), entity_vectors=vectors)
    for rank, row in ((0, 0), (1, -1)):
        model = build_model(config.model, graph.n_entities, graph.n_relations, 0, World(rank, 2))
        before = model.entity.detach().clone()
        harmonium.import_embeddings(model, graph, tmp_path / "start.npz")
        assert model.entity[row].tolist() == vectors[rank].tolist()
        before[row] = model.entity[row].detach()
        assert torch.equal(model.entity, before)


def test_torchrun_goes_on_only_with_the_very_training_it_began(tmp_path):
    config = Config.read(None, [*SETS, "train.epochs=1"])
    assert not commands._begun(tmp_path / "nothing", config)
    harmonium.train(config, data="atlas", out=tmp_path / "run")
    assert commands._begun(tmp_path / "run", config)  # finished, and not to be refused
    assert not commands._begun(tmp_path / "run", Config.read(None, SETS))


def test_no_process_is_left_without_heads_to_ask_for(whole, monkeypatch):
    """More processes than a relation has heads: those without one find nothing, and say so."""
    run = Run.load(whole)
    monkeypatch.setattr(World, "collect", lambda self, value: [value])
    everyone = completion.complete(run.model, run.graph, top=5)
    parts = [completion.complete(run.model, run.graph, top=5, world=World(rank, 4000)) for rank in (0, 3999)]
    assert len(everyone) == 5
    assert len(parts[0]) > 0 == len(parts[1])


def test_the_first_process_of_a_machine_goes_first(monkeypatch):
    told = []

    class Two(World):
        def any(self, here):
            told.append(list(here))
            return [failed]

    failed = False
    for local, expected in (("0", ["work", [False]]), ("1", [[False], "work"])):
        monkeypatch.setenv("LOCAL_RANK", local)
        told.clear()
        with one_by_one(Two(int(local), 2)):
            told.append("work")
        assert told == expected
    failed = True
    with pytest.raises(Together), one_by_one(Two(1, 2)):
        pytest.fail("it must not try")
