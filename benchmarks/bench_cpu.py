"""harmonium against PyKEEN, in one run: python benchmarks/bench_cpu.py results/bench-cpu.json [--data FOLDER].

Each measurement is a separate process, the two libraries in turn, with the same threads: FB15K-237, d = 128. Sampled
training is measured in five rounds, the rest in one; the median of the per-round ratios is reported.
  sampled training     batch 512, 64 negatives per triple (ours: 32 heads and 32 tails), Adam; triples per second
  all-entity training  queries scored against all entities per second, PyKEEN at its better batch size (32)
  ranking              filtered, both sides, building the filter included; queries per second
Without --data the graph is random, of FB15K-237's shape.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / ".venv-pykeen" / "bin" / "python"
TASKS = ("sampled", "all-entity", "ranking")
MODELS = ("distmult", "hole")
ROUNDS = {"sampled": 5, "all-entity": 1, "ranking": 1}
BATCH = {"sampled": "512", "all-entity": "32", "ranking": "512"}  # PyKEEN's; of 32 and 512 it is faster with 32 there
HARMONIC = {"h": [], "h_rank8": ["model.rank=8"]}  # full W, and W of rank 8


def measure(task: str, model: str, data: str, seconds: float, threads: int, extra: list[str]) -> dict:
    """One of our measurements, in this process."""
    import torch

    from harmonium.config.settings import Config
    from harmonium.data.datasets import load
    from harmonium.evaluation.evaluation import evaluate_scorer
    from harmonium.model.build import build_model
    from harmonium.runtime.allocator import keep_freed_memory
    from harmonium.training.step import TrainingStep

    keep_freed_memory()
    torch.set_num_threads(threads)
    graph = load(data)
    loss = ["train.loss=full"] if task == "all-entity" else ["train.negatives=32"]
    config = Config.read(None, [f"model.composition={model}", "model.entity_dim=128", *loss, *extra])
    network = build_model(config.model, graph.n_entities, graph.n_relations)
    if task == "ranking":
        began, cpu = time.perf_counter(), time.process_time()
        done, unit = len(evaluate_scorer(network, graph).ranks), "queries/s"
    else:
        take_step = TrainingStep(network, graph.train, config.train, torch.Generator().manual_seed(0))
        batches = torch.randperm(len(graph.train)).split(config.train.batch_size)
        for index in batches[:3]:
            take_step(index)
        began, cpu, done = time.perf_counter(), time.process_time(), 0
        for index in batches[3:-1]:
            take_step(index)
            done += len(index)
            if time.perf_counter() - began > seconds:
                break
        unit = "triples/s"
        if task == "all-entity":
            done, unit = 2 * done, "queries/s"
    wall = time.perf_counter() - began
    return {
        "task": task, "model": model, "throughput": done / wall, "unit": unit, "n": done, "seconds": wall,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cpu_per_wall": (time.process_time() - cpu) / wall, "threads": threads,
    }  # fmt: skip


def child(command: list[str], threads: int) -> dict:
    """Run a measurement in a separate process and read the JSON it prints last."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{") :])


def random_folder(folder: Path) -> Path:
    """Triples of FB15K-237's shape with Zipf relations, as files both libraries read."""
    import torch

    generator = torch.Generator().manual_seed(0)
    weights = 1 / torch.arange(1, 238)
    for split, count in (("train", 272_115), ("valid", 17_535), ("test", 20_466)):
        heads, tails = torch.randint(14_541, (2, count), generator=generator).tolist()
        relations = weights.multinomial(count, True, generator=generator).tolist()
        lines = (f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(heads, relations, tails, strict=True))
        (folder / f"{split}.txt").write_text("".join(lines))
    return folder


def compare(data: str, seconds: float, threads: int) -> dict:
    """All measurements, ours and PyKEEN's in turn, and their ratios: medians over the rounds."""
    ours, peer, ratios, slower = {}, {}, {}, {}
    common = ["--seconds", str(seconds), "--threads", str(threads)]
    for task in TASKS:
        for model in MODELS:
            our_command = [sys.executable, __file__, "-", "--ours", task, model, "--data", data, *common]
            theirs = [
                str(PEER),
                str(HERE / "peer_pykeen.py"),
                "--data",
                data,
                "--model",
                model,
                "--task",
                task,
                *common,
            ]
            commands = {
                model: our_command,
                "pykeen": [*theirs, "--dim", "128", "--negatives", "64", "--batch", BATCH[task]],
            }
            if task != "all-entity":
                commands |= {f"{name}{model}": [*our_command, "--harmony", *extra] for name, extra in HARMONIC.items()}
            measured = in_turns(commands, threads, ROUNDS[task])
            peer[f"{task}/{model}"] = middle(measured["pykeen"])
            for name, runs in measured.items():
                if name != "pykeen":
                    ours[f"{task}/{name}"] = middle(runs)
                    print(f"{task:12}{name:18}{middle(runs)['throughput']:12,.0f} {runs[0]['unit']}", flush=True)
                if name not in ("pykeen", model):
                    slower.setdefault(task, {})[name] = times(measured[model], runs)
            ratios.setdefault(task, {})[model] = times(measured[model], measured["pykeen"])
            print_row(task, model, ours[f"{task}/{model}"], ratios[task][model], peer[f"{task}/{model}"])
    names = {"sampled": "sampled_training", "all-entity": "all_entity_training", "ranking": "ranking"}
    return {
        "ratio_to_pykeen": {names[task]: by_model for task, by_model in ratios.items()},
        "times_slower_than_plain": slower,
        "peak_rss_mb": {key: {"ours": ours[key]["peak_rss_mb"], "pykeen": peer[key]["peak_rss_mb"]} for key in peer},
        "ours": ours,
        "pykeen": peer,
    }


def in_turns(commands: dict[str, list[str]], threads: int, rounds: int) -> dict[str, list[dict]]:
    """Each command once a round, so that other load on the machine affects all of them."""
    measured = [{name: child(command, threads) for name, command in commands.items()} for _ in range(rounds)]
    return {name: [one[name] for one in measured] for name in commands}


def speed(run: dict) -> float:
    return run.get("detail", {}).get("queries_per_s", run["throughput"])


def times(runs: list[dict], others: list[dict]) -> float:
    """How much faster the first are than the others: the median over rounds."""
    return statistics.median(speed(one) / speed(other) for one, other in zip(runs, others, strict=True))


def middle(runs: list[dict]) -> dict:
    """The run of median speed, with the speeds of all."""
    return sorted(runs, key=speed)[len(runs) // 2] | {"speeds": [speed(run) for run in runs]}


def print_row(task: str, model: str, ours: dict, ratio: float, pykeen: dict) -> None:
    memory = f"{ours['peak_rss_mb']:6,.0f} MB against {pykeen['peak_rss_mb']:6,.0f}"
    print(
        f"{task:12}{model:10}{ours['throughput']:12,.0f} {ours['unit']}, PyKEEN {speed(pykeen):8,.0f}: "
        f"{ratio:6.1f} x, {memory}, "
        f"cpu/wall {ours['cpu_per_wall']:.2f} and {pykeen['cpu_per_wall']:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--data")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ours", nargs=2, metavar=("TASK", "MODEL"))
    parser.add_argument("--harmony", nargs="*", default=None, help="our harmonic model, with these settings")
    options = parser.parse_args()
    if options.ours:
        extra = ["model.harmony=false"] if options.harmony is None else options.harmony
        measured = measure(*options.ours, options.data, options.seconds, options.threads, extra)
        print(json.dumps(measured))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or str(random_folder(Path(folder)))
        result = {
            "command": "make bench",
            "data": Path(options.data).name if options.data else "random, of FB15K-237's shape",
            "protocol": " ".join(__doc__.split()),
            "device": f"CPU, {options.threads} threads",
            "load_before": os.getloadavg()[0],
            **compare(data, options.seconds, options.threads),
        }
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
