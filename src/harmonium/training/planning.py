"""plan(): what a training will take, estimated from a few real steps and rankings.

Everything is built at full size, so memory is measured. Where the tables alone would not fit, nothing is tried.
"""

import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.candidates import MAX_SCORES
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import Scorer
from harmonium.runtime.config import Config, EvaluateConfig
from harmonium.runtime.device import pick_device
from harmonium.training.fit import validation_sample
from harmonium.training.state import TrainingState
from harmonium.training.train import load_graph, read_settings

WARM_UP = 4  # steps that are not timed: the first ones allocate, or capture a CUDA graph
GROWTH = 2  # where only some chunks of queries are tried, the largest of all takes about twice their memory
STEP_SECONDS, RANKING_SECONDS = 0.8, 0.25  # time spent on timing steps, and on each of three rankings


@dataclass(frozen=True)
class Plan:
    """An estimate: seconds by what takes them, bytes by what they hold. Early stopping can only make it shorter."""

    graph: str
    device: str
    parameters: int
    epochs: int
    steps: int  # per epoch
    fits: bool  # whether tables and optimiser state fit in free memory; if not, nothing was timed
    step_seconds: float
    seconds: dict[str, float]
    memory: dict[str, int]

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
    data: str | Graph | None = None,
    overrides: Sequence[str] = (),
) -> Plan:
    """How long a training would take on this machine, and how much memory, from about two seconds of it.

    >>> harmonium.plan(data="FB15K-237", overrides=["model.entity_dim=256"]).total_seconds
    """
    config, graph = load_graph(read_settings(config, overrides), data)
    settings, device = config.train, pick_device(config.train.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    parameters = count_parameters(config, graph)
    steps = math.ceil(len(graph.split("train")) / settings.batch_size)
    header = (graph.name, str(device), parameters, settings.epochs, steps)
    tables = _count_tables(config, graph, parameters, device)
    memory = {"program and graph": _resident_memory(device)} | tables
    if sum(tables.values()) > _free_memory(device):
        return Plan(*header, False, math.nan, {}, memory)
    return Plan(*header, True, *_measure(config, graph, device, memory))


def count_parameters(config: Config, graph: Graph) -> int:
    """Number of parameters; nothing is allocated."""
    with torch.device("meta"):
        model = build_model(config.model, graph.n_entities, graph.n_relations, seed=None)
    return sum(parameter.numel() for parameter in model.parameters())


def _count_tables(config: Config, graph: Graph, parameters: int, device: torch.device) -> dict[str, int]:
    """Bytes on the device: 4 per parameter, 2 in a bfloat16 entity table, and 4 per number of optimiser state.

    Adam keeps two numbers per parameter, Adagrad one, row-wise Adagrad one per entity. The best model is a copy.
    """
    entities, dim, optimiser = graph.n_entities, config.model.entity_dim, config.train.optimiser
    dense = parameters - entities * dim  # relations, W and b
    if config.train.entity_storage == "host" and device.type != "cpu":
        entities = 0
    model = 4 * dense + (2 if config.model.entity_dtype == "bfloat16" else 4) * entities * dim
    state = {"adam": 2 * (dense + entities * dim), "adagrad": dense + entities * dim, "row-adagrad": dense + entities}
    return {"model": model, "best model": model if len(graph.valid) else 0, "optimiser": 4 * state[optimiser]}


def _measure(
    config: Config, graph: Graph, device: torch.device, memory: dict[str, int]
) -> tuple[float, dict[str, float], dict[str, int]]:
    """Seconds of a step, seconds of a training by what takes them, and bytes by what they hold."""
    settings, protocol, start = config.train, config.evaluate, _now()
    model = build_model(config.model, graph.n_entities, graph.n_relations, settings.seed)
    state = TrainingState(model.move_to(device, settings.entity_storage), graph.train.to(device), settings)
    step, building = state.training_step, _now() - start
    step_seconds = _time_steps(state)
    start = _now()
    state.check()
    check_seconds = _now() - start
    after_steps = _resident_memory(device)
    memory = memory | {
        "optimiser": _total_bytes(step.state_dict().values()),
        "gradients": _total_bytes(p.grad for p in step.dense_parameters if p.grad is not None),
    }
    memory["steps"] = after_steps - sum(memory.values()) + memory["best model"]
    _roughen(model)
    valid, test = validation_sample(graph, settings), graph.splits[protocol.split]
    test = (test if len(test) else graph.valid)[: protocol.sample]
    validation = _time_ranking(model, graph, EvaluateConfig(split="valid"), valid, device)
    scorers, cpu = (model.cpu(), Frequency(graph)), torch.device("cpu")
    seconds = {
        "building": building,
        "steps": step.n_steps * step_seconds,
        "checks": settings.epochs * check_seconds,
        "validations": math.ceil(settings.epochs / settings.evaluate_every) * validation,
        "final evaluation": sum(_time_ranking(scorer, graph, protocol, test, cpu) for scorer in scorers),
    }
    growth = 1 if len(test) * graph.n_entities <= MAX_SCORES["cpu"] else GROWTH
    memory["evaluation"] = growth * (_resident_memory(device) - after_steps)
    return step_seconds, seconds, {name: max(0, size) for name, size in memory.items()}


def _time_steps(state: TrainingState) -> float:
    """The mean time of real steps without the slowest tenth, when other programs may have run."""
    batches = state.batches()
    for _ in range(WARM_UP):
        state.training_step(batches[0])
    times: list[float] = []
    start = _now()
    while len(times) < 3 or _now() - start < STEP_SECONDS:
        step_start = _now()
        state.training_step(batches[len(times) % len(batches)])
        times.append(_now() - step_start)
    kept = sorted(times)[: math.ceil(0.9 * len(times))]
    return sum(kept) / len(kept)


def _time_ranking(
    scorer: Scorer, graph: Graph, protocol: EvaluateConfig, triples: Triples | None, device: torch.device
) -> float:
    """The time to rank all triples: that of one, and what each further one of a chunk or more adds."""
    if triples is None or not len(triples):
        return 0.0

    def timed(count: int) -> float:
        start = _now()
        part = triples[torch.linspace(0, len(triples) - 1, count).long()]
        evaluate_scorer(scorer, graph, protocol, part, device=device)
        return _now() - start

    timed(1)  # warm-up
    first = timed(1)
    count = min(max(1, MAX_SCORES[device.type] // graph.n_entities), len(triples))
    seconds = timed(count)
    while seconds < RANKING_SECONDS and count < len(triples):
        count = min(4 * count, len(triples))
        seconds = timed(count)
    return first + max(0.0, seconds - first) / max(1, count - 1) * (len(triples) - 1)


def _now() -> float:
    """Seconds, when all that was started on a GPU has ended."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


@torch.no_grad()
def _roughen(model: GradientGraph) -> None:
    """Add noise to W, as training does: how fast ranks are computed depends on its spectrum."""
    if isinstance(model.form, Harmony):
        free = model.form.free
        noise = torch.randn(free.shape, generator=torch.Generator().manual_seed(0)).to(free.device)
        free.add_(noise * free.norm() / noise.norm())


def _total_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _resident_memory(device: torch.device) -> int:
    """Bytes that this process holds now; in the command line, which keeps freed memory, also the most it held."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: only the counted tables are known
        return 0


def _free_memory(device: torch.device) -> float:
    """Bytes that can still be allocated."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    except OSError:
        match = None
    return 1024 * int(match[1]) if match else math.inf
