"""Memory and time at a million entities: python benchmarks/bench_memory.py results/memory.json.

Each optimiser trains a few steps, validates twice and keeps its best model, in a fresh process that reports its peak
memory above that of program and graph, and the size of tables and optimiser state. Steps at 10,000 and 1,000,000
entities are timed in CPU seconds of one thread, so that other programs matter little. Random triples, d = 64, batch 512,
32 negatives per side, HHolE with W of rank 8.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.ranking import rank
from harmonium.model.build import build_model
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.training.fit import fit
from harmonium.training.step import TrainingStep

ENTITIES, RELATIONS, TRAIN, VALID = 1_000_000, 200, 5_120, 50
SETTINGS = ["model.entity_dim=64", "model.rank=8", "train.negatives=32", "train.epochs=2", "train.evaluate_every=1"]
CASES = {
    "adam": [],
    "adagrad": ["train.optimiser=adagrad"],
    "row-adagrad": ["train.optimiser=row-adagrad"],
    "row-adagrad, 64 share negatives": ["train.optimiser=row-adagrad", "train.negative_group_size=64"],
}


def random_triples(entities: int, count: int, seed: int) -> Triples:
    generator = torch.Generator().manual_seed(seed)
    return Triples(*(torch.randint(n, (count,), generator=generator) for n in (entities, RELATIONS, entities)))


def graph_of(entities: int) -> Graph:
    names = (
        Vocabulary([f"e{i}" for i in range(entities)]),
        Vocabulary([f"r{i}" for i in range(RELATIONS)], kind="relation"),
    )
    return Graph(*names, *(random_triples(entities, count, seed) for seed, count in enumerate((TRAIN, VALID, 10))))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def memory(case: str) -> dict[str, float]:
    """Bytes, in this process."""
    keep_freed_memory()
    config = Config.read(None, [*SETTINGS, *CASES[case]])
    fit(build_model(config.model, 2000, RELATIONS), graph_of(2000), config)  # lazy imports
    graph = graph_of(ENTITIES)
    before = resident()
    model = build_model(config.model, ENTITIES, RELATIONS)
    table, numbers = model.entity.numel(), {"adam": 2, "adagrad": 1}.get(config.train.optimiser)
    remembered = numbers * table if numbers else ENTITIES  # what is not of entities is next to nothing
    held = 4 * (sum(p.numel() for p in model.parameters()) + remembered)
    fit(model, graph, config)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"tables_and_optimiser": held, "peak": peak - before, "ratio": (peak - before) / held}


def step_milliseconds(entities: int, overrides: list[str], steps: int = 20) -> float:
    """The median processor time of a step after five to warm up."""
    config = Config.read(None, [*SETTINGS, *overrides])
    train, generator = random_triples(entities, 200_000, 0), torch.Generator().manual_seed(0)
    take_step = TrainingStep(build_model(config.model, entities, RELATIONS), train, config.train, generator)
    for state in take_step.state_dict().values():
        state.zero_()  # its memory is there, as it is after the first epoch
    times = []
    for index in torch.randint(len(train), (steps + 5, 512), generator=generator):
        began = time.process_time()
        take_step(index)
        times.append(time.process_time() - began)
    return 1000 * statistics.median(times[5:])


def rank_milliseconds(entities: int, queries: int = 512) -> float:
    """Processor time of ranking one query among all entities exactly, by a chunk of them."""
    model, facts = (
        build_model(Config.read(None, SETTINGS).model, entities, RELATIONS),
        random_triples(entities, queries, 1),
    )
    rank(model, facts[:8], Slot.TAIL)
    began = time.process_time()
    rank(model, facts, Slot.TAIL)
    return 1000 * (time.process_time() - began) / queries


def main(out: str) -> None:
    torch.set_num_threads(1)
    measured = {"memory": {}, "step_milliseconds": {}, "rank_milliseconds": {}}
    for case, overrides in CASES.items():
        text = subprocess.run([sys.executable, __file__, "--memory", case], capture_output=True, text=True, check=True)
        measured["memory"][case] = json.loads(text.stdout.splitlines()[-1])
        measured["step_milliseconds"][case] = {n: step_milliseconds(n, overrides) for n in (10_000, 1_000_000)}
        print(case, measured["memory"][case], measured["step_milliseconds"][case], flush=True)
    measured["rank_milliseconds"] = {n: rank_milliseconds(n) for n in (15_000, 150_000, 1_000_000)}
    print(measured["rank_milliseconds"])
    about = {
        "command": "python benchmarks/bench_memory.py",
        "settings": SETTINGS,
        "threads": 1,
        "environment": environment(),
    }
    Path(out).write_text(json.dumps(about | measured, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--memory":
        torch.set_num_threads(1)
        print(json.dumps(memory(sys.argv[2])))
    else:
        main(*sys.argv[1:])
