"""Compare programs by alternating training steps, since a machine's speed varies by more than they differ.

    python benchmarks/bench_turns.py OUT.json DATA NAME=SOURCE:SETTING,... NAME=SOURCE:SETTING,...

Each is a process that stays loaded, with the package of its SOURCE folder (src, or that of another commit), at
FB15K-237's benchmark sizes; fifteen steps of one, then of the next. Ratios are relative to the first, per round.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS, STEPS = 12, 15
SIZES = ["model.entity_dim=128", "train.negatives=32"]


def work(source: str, data: str, settings: list[str]) -> None:
    """A program: for each line of input, take steps and print the milliseconds per step."""
    sys.path.insert(0, source)
    import torch

    from harmonium.config.settings import Config
    from harmonium.data.datasets import load
    from harmonium.model.build import build_model
    from harmonium.runtime.allocator import keep_freed_memory
    from harmonium.training.step import TrainingStep

    keep_freed_memory()  # as the command line does
    graph, config = load(data), Config.read(None, [*SIZES, *settings])
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    take_step = TrainingStep(model, graph.train, config.train, torch.Generator().manual_seed(0))
    batches = torch.randperm(len(graph.train)).split(config.train.batch_size)[:-1]
    for line in sys.stdin:
        begun, first = time.perf_counter(), int(line)
        for step in range(first, first + STEPS):
            take_step(batches[step % len(batches)])
        print(1000 * (time.perf_counter() - begun) / STEPS, flush=True)


def main(out: str, data: str, *programs: str) -> None:
    running, measured = {}, {}
    for program in programs:
        name, _, how = program.partition("=")
        command = [sys.executable, __file__, "--work", data, *how.split(":")]
        pipe = subprocess.PIPE
        running[name], measured[name] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1), []
    for turn in range(ROUNDS + 1):
        for name, process in running.items():
            process.stdin.write(f"{turn * STEPS}\n")
            measured[name].append(float(process.stdout.readline()))
    first = measured[next(iter(measured))][1:]
    result = {}
    for name, process in running.items():
        process.stdin.close()
        process.wait()
        times = measured[name][1:]  # the first round warms up
        ratio = statistics.median(ours / base for ours, base in zip(times, first, strict=True))
        result[name] = {"ms": times, "median_ms": statistics.median(times), "relative_time": ratio}
        print(f"{name:16}{statistics.median(times):8.2f} ms, {ratio:.2f} x the first", flush=True)
    about = {"command": "python benchmarks/bench_turns.py results/turns.json FB15K-237 " + " ".join(programs)}
    about |= {"device": "CPU", "rounds": ROUNDS, "steps": STEPS, "settings": SIZES, "programs": result}
    Path(out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[3], sys.argv[2], sys.argv[4].split(","))
    else:
        main(*sys.argv[1:])
