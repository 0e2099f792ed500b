"""Training steps beside busy processes, with OpenMP's threads spinning (its default) and asleep (ours) while they wait.

    python benchmarks/bench_busy.py OUT.json

Each policy is a process that stays loaded; steps of one, then of the other, in turns. First without neighbours: many short
rounds, of which those with the least other work on the machine count. Then with neighbours: as many processes that only
compute as there are cores. Medians over rounds of wall-clock and CPU milliseconds per step, and of the ratio of wall-clock
times within a round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET_ROUNDS, KEPT, BUSY_ROUNDS, STEPS = 300, 10, 4, 2
SECONDS = 25  # for the rounds of one condition
POLICIES = ("spinning", "asleep")
MODELS = {
    "ComplEx against all entities, d = 256": "fast model.entity_dim=256 train.batch_size=113 model.harmony=false",
    "HHolE against 32 negatives, d = 128": "paper model.entity_dim=128 train.negatives=32",
}


def work(policy: str, recipe: str, *settings: str) -> None:
    """A program: for each line of input, take steps and print the wall-clock and CPU milliseconds of each."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    if policy == "spinning":
        import torch  # loaded first, with OpenMP's default
    import harmonium  # noqa: F401, I001  # threads wait asleep unless torch is loaded
    import torch

    from harmonium.data.datasets import load
    from harmonium.model.build import build_model
    from harmonium.runtime.allocator import keep_freed_memory
    from harmonium.config.settings import Config
    from harmonium.training.step import TrainingStep

    keep_freed_memory()
    graph, config = load("atlas"), Config.read(recipe, settings)
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    take_step = TrainingStep(model, graph.train, config.train, torch.Generator().manual_seed(0))
    batches = torch.randperm(len(graph.train)).split(config.train.batch_size)[:-1]
    for line in sys.stdin:
        first, wall, cpu = int(line), time.perf_counter(), time.process_time()
        for step in range(first, first + STEPS):
            take_step(batches[step % len(batches)])
        spent = time.perf_counter() - wall, time.process_time() - cpu
        print(*(1000 * seconds / STEPS for seconds in spent), flush=True)


@dataclass(frozen=True)
class Turn:
    """Some steps of one program."""

    wall_ms: float  # per step
    cpu_ms: float
    others: float  # share of the machine's cores that other processes used meanwhile


def busy_seconds() -> float:
    """Seconds for which the cores of this machine have worked."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def take_turn(program: subprocess.Popen[str], first: int) -> Turn:
    assert program.stdin is not None and program.stdout is not None
    before, begun = busy_seconds(), time.perf_counter()
    program.stdin.write(f"{first}\n")
    wall, cpu = map(float, program.stdout.readline().split())
    elapsed = time.perf_counter() - begun
    others = (busy_seconds() - before - cpu * STEPS / 1000) / (elapsed * (os.cpu_count() or 1))
    return Turn(wall, cpu, max(others, 0.0))


def measure(settings: str) -> dict[str, Any]:
    """The times of the steps of one model, without and with neighbours."""
    dropped = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    pipe = subprocess.PIPE
    programs = {
        policy: subprocess.Popen(
            [sys.executable, __file__, "--work", policy, *settings.split()],
            stdin=pipe, stdout=pipe, text=True, bufsize=1, env=environment,
        )
        for policy in POLICIES
    }  # fmt: skip

    def rounds(count: int) -> list[dict[str, Turn]]:
        """So many rounds, or as many as fit the time."""
        turns: list[dict[str, Turn]] = []
        end = time.monotonic() + SECONDS
        while len(turns) < count and (len(turns) < BUSY_ROUNDS or time.monotonic() < end):
            first = STEPS * len(turns)
            turns.append({name: take_turn(program, first) for name, program in programs.items()})
        return turns

    rounds(1)  # warms up
    quiet = sorted(rounds(QUIET_ROUNDS), key=lambda turns: max(turn.others for turn in turns.values()))[:KEPT]
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        busy = rounds(BUSY_ROUNDS)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    for program in programs.values():
        program.communicate()
    return {"quiet": summarise(quiet), "busy": summarise(busy)}


def summarise(rounds: list[dict[str, Turn]]) -> dict[str, Any]:
    """Medians of wall-clock and CPU milliseconds, and of the ratio of wall-clock times, asleep to spinning."""
    medians = {
        policy: {
            name: statistics.median(getattr(turns[policy], name) for turns in rounds)
            for name in ("wall_ms", "cpu_ms", "others")
        }
        for policy in POLICIES
    }
    return medians | {"ratio": statistics.median(t["asleep"].wall_ms / t["spinning"].wall_ms for t in rounds)}


def main(out: str) -> None:
    load_before = os.getloadavg()[0]
    result = {
        "command": "python benchmarks/bench_busy.py results/busy.json",
        "device": f"CPU, {os.cpu_count()} cores",
        "graph": "atlas",
        "rounds": {"quiet": KEPT, "busy": BUSY_ROUNDS},
        "steps": STEPS,
        "seconds": SECONDS,
        "load_before": load_before,
        "models": {name: measure(settings) for name, settings in MODELS.items()},
    }
    Path(out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["models"], indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(*sys.argv[2:])
    else:
        main(sys.argv[1])
