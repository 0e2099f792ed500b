"""What a training costs on this machine: the time of a step, the memory of its tables."""

import math
import re
import time
from pathlib import Path

import torch

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.model.build import build_model
from harmonium.training.state import TrainingState

WARM_UP = 4  # steps that are not timed: the first ones allocate, or capture a CUDA graph
SECONDS = 0.8  # time spent on timing steps


def time_steps(state: TrainingState, seconds: float = SECONDS) -> float:
    """The mean time of real steps without the slowest tenth, when other programs may have run."""
    batches = state.batches()
    for _ in range(WARM_UP):
        state.training_step(batches[0])
    times: list[float] = []
    start = now()
    while len(times) < 3 or now() - start < seconds:
        step_start = now()
        state.training_step(batches[len(times) % len(batches)])
        times.append(now() - step_start)
    kept = sorted(times)[: math.ceil(0.9 * len(times))]
    return sum(kept) / len(kept)


def now() -> float:
    """Seconds, when all that was started on a GPU has ended."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def count_parameters(config: Config, graph: Graph) -> int:
    """Number of parameters; nothing is allocated."""
    with torch.device("meta"):
        model = build_model(config.model, graph.n_entities, graph.n_relations, seed=None)
    return sum(parameter.numel() for parameter in model.parameters())


def count_tables(config: Config, graph: Graph, parameters: int, device: torch.device) -> dict[str, int]:
    """Bytes on the device: 4 per parameter, 2 in a bfloat16 entity table, and 4 per number of optimiser state.

    Adam keeps two numbers per parameter, Adagrad one, row-wise Adagrad one per entity. The best model is a copy.
    """
    entities, dim, optimiser = graph.n_entities, config.model.entity_dim, config.train.optimiser
    dense = parameters - entities * dim  # relations, W and b
    if config.train.entity_storage == "host" and device.type != "cpu":
        entities = 0
    model = 4 * dense + (2 if config.model.entity_dtype == "bfloat16" else 4) * entities * dim
    state = {"adam": 2 * (dense + entities * dim), "adagrad": dense + entities * dim, "row-adagrad": dense + entities}
    best = model if len(graph.valid) else 0
    return {"model": model, "best model": best, "optimiser": 4 * state[optimiser]}


def free_memory(device: torch.device) -> float:
    """Bytes that can still be allocated."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _memory("MemAvailable")


def total_memory(device: torch.device) -> float:
    """Bytes of memory, whoever uses them now."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else _memory("MemTotal")


def _memory(name: str) -> float:
    """Bytes of main memory by a name of Linux; infinite on other systems."""
    try:
        match = re.search(rf"{name}:\s+(\d+)", Path("/proc/meminfo").read_text())
    except OSError:
        match = None
    return 1024 * int(match[1]) if match else math.inf
