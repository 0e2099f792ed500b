"""What a training will take, before it is run: a few real steps and rankings are timed, the rest is multiplication.

Everything is built at its full size, so memory is what was really taken, plus what comes later. A training that would not
fit is not tried: its tables alone are counted, and the cost model (cost.py) says how many processes would do. Several
processes are not tried either: they are predicted.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.config import Config
from harmonium.cost import MACHINES, STATES, Cost, Work, cost, enough
from harmonium.datasets import load
from harmonium.evaluation import CHUNK_NUMBERS, Frequency, Scorer, evaluate
from harmonium.graph import Graph, Triples
from harmonium.harmony import Harmony
from harmonium.kernels.memory import keep_freed_memory
from harmonium.training import Training, _validation_sample, build_model, pick_device

WARM_UP = 4  # steps that are not timed: the first ones allocate, or capture a CUDA graph
GROWTH = 2  # chunks of queries differ: where only some are tried, the largest of all takes about twice their memory
STEPS_FOR, RANK_FOR = 0.8, 0.25  # seconds to time steps, and each of three rankings, for


@dataclass(frozen=True)
class Plan:
    """An estimate: seconds by what they go to, bytes by what they hold. Early stopping can only make it shorter."""

    graph: str
    device: str
    parameters: int
    epochs: int
    steps: int  # in an epoch
    fits: bool  # in the memory that is free; if not, nothing was timed
    step_seconds: float
    seconds: dict[str, float]
    memory: dict[str, int]  # of each process
    processes: int = 1
    enough: dict[str, float] | None = None  # where it does not fit: processes that would do, and what is predicted then

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def peak_memory(self) -> int:
        return sum(self.memory.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"total_seconds": self.total_seconds, "peak_memory": self.peak_memory}


def plan(
    config: Config | str | Path | None = None,
    data: Any = None,
    sets: Sequence[str] = (),
    clock: Callable[[], float] = time.perf_counter,
    processes: int = 1,
) -> Plan:
    """How long a training would take on this machine, and how much memory, by about two seconds of it.

    Of several processes, each on a machine such as this, time is predicted by the cost model.

    >>> harmonium.plan(data="FB15K-237", sets=["model.entity_dim=256"]).total_seconds
    """
    config = config if isinstance(config, Config) else Config.read(config, sets)
    graph, settings = load(config.data if data is None else data), config.train
    device = pick_device(settings.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    keep_freed_memory()

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return clock()

    start = now()
    parameters = count_parameters(config, graph)
    work = Work.of(config, graph.n_entities, graph.n_relations, len(graph.split("train")), processes)
    on_host = settings.table == "host" and device.type != "cpu"
    held = dict.fromkeys(work.tables, 0) if on_host else work.tables
    rest = 4 * (parameters - work.entities * work.dim)  # bytes of what lies in every process
    memory = {
        "program and graph": _resident(device),
        "model": int(rest + held["entity table"]),
        "best model, kept": int(rest + held["best model, kept"]) if len(graph.valid) else 0,
        "optimiser": int((STATES[settings.optimizer] or 1) * rest + held["optimiser"]),
        "gradients": int(rest + 4 * work.dim * work.moved),
    }
    steps = math.ceil(len(graph.split("train")) / settings.batch_size)
    about = (graph.name, str(device), parameters, settings.epochs, steps)
    free, machine = _available(device), MACHINES["h200" if device.type == "cuda" else "cpu"]
    if sum(memory.values()) - memory["program and graph"] > free:
        return Plan(*about, False, math.nan, {}, memory, processes, _told(enough(work, replace(machine, memory=free))))
    if processes > 1:
        found = cost(work, machine)
        return Plan(*about, True, found.step_seconds, {"steps": 3600 * found.hours}, memory, processes)
    model = build_model(config.model, graph.n_entities, graph.n_relations, settings.seed).place(device, settings.table)
    training = Training(model, graph.train.to(device), settings)
    building = now() - start
    one_step = _time_steps(training, now)
    memory["optimiser"] = _sizes(training.take_step.state_dict().values())
    memory["gradients"] = _sizes(p.grad for p in training.take_step.moved if p.grad is not None)
    start = now()
    training.check()
    checking = now() - start
    grown = _resident(device)
    memory["steps"] = grown - sum(memory.values()) + memory["best model, kept"]
    _roughen(model)
    sample, protocol = _validation_sample(graph, settings), config.evaluate
    final = (getattr(graph, protocol.split) if len(getattr(graph, protocol.split)) else graph.valid)[: protocol.sample]
    validations = math.ceil(settings.epochs / settings.evaluate_every) if sample is not None else 0

    def ranking(scorer: Scorer, triples: Triples | None, where: torch.device | str, **changes: Any) -> float:
        chosen = replace(protocol, **changes)
        if triples is None or not len(triples):
            return 0.0
        chunk = max(1, CHUNK_NUMBERS[torch.device(where).type] // graph.n_entities)
        return _time_ranking(lambda some: evaluate(scorer, graph, chosen, some, device=where), triples, chunk, now)

    validation = ranking(model, sample, device, split="valid", candidates="full", side="both", filtered=True)
    seconds = {
        "building": building,
        "steps": settings.epochs * steps * one_step,
        "checks": settings.epochs * checking,
        "validations": validations * validation,
        "final evaluation": ranking(model.cpu(), final, "cpu") + ranking(Frequency(graph), final, "cpu"),
    }
    all_tried = len(final) * graph.n_entities <= CHUNK_NUMBERS["cpu"]
    memory["evaluation"] = (1 if all_tried else GROWTH) * (_resident(device) - grown)
    return Plan(*about, True, one_step, seconds, {name: max(0, size) for name, size in memory.items()})


def count_parameters(config: Config, graph: Graph) -> int:
    """How many numbers the model learns; none of them is made."""
    with torch.device("meta"):
        model = build_model(replace(config.model, initialisation="paper"), graph.n_entities, graph.n_relations)
    return sum(p.numel() for p in model.parameters())


def _told(found: Cost | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"processes": found.work.processes, "memory": found.memory, "hours": found.hours}


def _time_steps(training: Training, now: Callable[[], float]) -> float:
    """The mean of real steps, the slowest tenth left out, as other programs may have run then."""
    batches, times, start = training.batches(), [], math.inf
    while len(times) < 3 or now() - start < STEPS_FOR:
        for _ in range(WARM_UP if not times else 0):
            training.move(batches[0])
        start = min(start, now())
        began = now()
        training.move(batches[len(times) % len(batches)])
        times.append(now() - began)
    kept = sorted(times)[: math.ceil(0.9 * len(times))]
    return sum(kept) / len(kept)


def _time_ranking(run: Callable[[Triples], Any], triples: Triples, chunk: int, now: Callable[[], float]) -> float:
    """The seconds of ranking all triples: what one takes, and more for each of a chunk, or as many as can be timed."""

    def timed(count: int) -> float:
        began = now()
        run(triples[torch.linspace(0, len(triples) - 1, count).long()])
        return now() - began

    count, _, first = min(chunk, len(triples)), timed(1), timed(1)
    taken = timed(count)
    while taken < RANK_FOR and count < len(triples):
        count = min(4 * count, len(triples))
        taken = timed(count)
    return first + max(0.0, taken - first) / max(1, count - 1) * (len(triples) - 1)


@torch.no_grad()
def _roughen(model: Any) -> None:
    """Give W directions of many sizes, as training does: how fast ranks are found depends on them."""
    if isinstance(form := model.form, Harmony):
        noise = torch.randn(form.free.shape, generator=torch.Generator().manual_seed(0)).to(form.free.device)
        form.free.add_(noise * form.free.norm() / noise.norm())


def _sizes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _resident(device: torch.device) -> int:
    """Bytes that this process holds; freed memory is kept (`keep_freed_memory`), so this is also the most it held."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # only Linux tells; what is counted stays
        return 0


def _available(device: torch.device) -> float:
    """Bytes that could still be had."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return 1024 * int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    except OSError:
        return math.inf
