"""A large graph on one GPU: python benchmarks/bench_large_gpu.py OUT.json [options].

Five million entities of dimension 256, 20 million triples with power-law entities and relations, generated on the device.
The same steps with the table on the device or in host memory, in 32 or 16 bits, and with different optimisers. Needs
torch, numpy, scipy, safetensors and Triton only; `--device cpu` with small sizes is a dry run.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from harmonium.config.settings import Config
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.ranking import rank
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.training.entity_store import HostStore
from harmonium.training.step import TrainingStep

MODELS = {
    "distmult": ["model.harmony=false"],
    "hdistmult, rank 16": ["model.rank=16"],
    "hdistmult": [],
}
ADAGRAD = ["train.optimiser=row-adagrad", "train.learning_rate=0.1"]
TABLES = {
    "device, float32, adam": [],
    "device, float32, row-adagrad": ADAGRAD,
    "device, bfloat16, row-adagrad": [*ADAGRAD, "model.entity_dtype=bfloat16"],
    "host, float32, row-adagrad": [*ADAGRAD, "train.entity_storage=host"],
    "host, float32, row-adagrad, prefetch": [*ADAGRAD, "train.entity_storage=host"],
    "host, bfloat16, row-adagrad, prefetch": [*ADAGRAD, "train.entity_storage=host", "model.entity_dtype=bfloat16"],
}
SHARED = 64  # triples that share negatives
WARM_UP, LEAST = 2, 4  # untimed steps, and the least number of timed ones
QUERIES = 64


def power_law(n: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Ids with Zipf frequencies (the k-th is drawn about 1/k as often), frequent ids scattered over the range."""
    order = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    ids = (n**order).long().clamp_(max=n) - 1
    return ids * 2_654_435_761 % n


def make_triples(options: argparse.Namespace) -> Triples:
    generator = torch.Generator(options.device).manual_seed(0)
    sizes = (options.entities, options.relations, options.entities)
    return Triples(*(power_law(size, options.triples, generator) for size in sizes))


def make_model(config: Config, options: argparse.Namespace) -> GradientGraph:
    """A calibrated model of few entities, extended to all of them on the device, which is faster."""
    model = build_model(config.model, min(options.entities, 1000), options.relations).move_to(options.device)
    generator = torch.Generator(options.device).manual_seed(0)
    shape = (options.entities, config.model.entity_dim)
    table = torch.empty(shape, device=options.device, dtype=model.entity.dtype)
    for part in table.split(1 << 20):
        part.copy_(torch.randn(part.shape, generator=generator, device=options.device).div_(shape[1] ** 0.5))
    model.n_entities, model.local_rows = options.entities, slice(0, options.entities)
    model.entity = torch.nn.Parameter(table)
    return model.move_to(options.device, config.train.entity_storage)


def size(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def measure(train: Triples, name: str, settings: list[str], options: argparse.Namespace) -> dict:
    gpu = options.device == "cuda"
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    base = ["model.composition=distmult", f"model.entity_dim={options.dim}", f"train.batch_size={options.batch}"]
    config = Config.read(None, [*base, f"train.negatives={options.negatives}", "train.schedule=constant", *settings])
    model = make_model(config, options)
    generator = torch.Generator(options.device).manual_seed(0)
    take_step = TrainingStep(model, train, config.train, generator)
    count = options.batch * (WARM_UP + options.most + 1)
    batches = torch.randint(len(train), (count,), generator=generator, device=options.device).split(options.batch)
    losses, start = [], None
    for step in range(WARM_UP + options.most):
        if step == WARM_UP:
            _ = torch.cuda.synchronize() if gpu else None
            start = time.perf_counter()
        losses.append(take_step(batches[step], batches[step + 1] if "prefetch" in name else None).clone())
        if step >= WARM_UP + LEAST - 1 and time.perf_counter() - start > options.seconds:
            break
    _ = torch.cuda.synchronize() if gpu else None
    steps = len(losses) - WARM_UP
    seconds = (time.perf_counter() - start) / steps
    losses = torch.stack(losses).tolist()
    measured = {"triples_per_s": options.batch / seconds, "ms_per_step": 1000 * seconds, "steps": steps}
    measured |= {
        "first_loss": losses[0],
        "loss_after_6": losses[5],
        "last_loss": losses[-1],
        "backend": take_step.backend(),
    }
    optimiser = take_step.row_optimiser  # None if a step uses most entities: only in a dry run with small sizes
    measured["table_bytes"] = size(model.entity)
    measured["optimiser_bytes"] = size(*optimiser.state_dict().values()) if optimiser else 0
    store = take_step.entity_store
    if isinstance(store, HostStore):
        pinned = size(store.row_buffer.memory, store.gradient_buffer.memory)
        measured["host_bytes"] = measured["table_bytes"] + measured["optimiser_bytes"] + pinned
    if gpu:
        measured["device_bytes"] = torch.cuda.max_memory_allocated() - held
    if options.rank:
        start = time.perf_counter()
        with torch.no_grad():
            ranks = rank(model.scorer(), train[:QUERIES], Slot.TAIL)
        measured["mean_rank"] = ranks.better.double().mean().item()
        measured["ms_per_ranked_query"] = 1000 * (time.perf_counter() - start) / QUERIES
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    for name, size in (
        ("entities", 5_000_000), ("dim", 256), ("relations", 1_000), ("triples", 20_000_000),
        ("batch", 4096), ("negatives", 256), ("most", 60),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--seconds", type=float, default=1.0, help="time budget of one case")
    parser.add_argument("--budget", type=float, default=72, help="seconds in total; later cases are skipped")
    options = parser.parse_args()
    keep_freed_memory()
    began = time.perf_counter()
    result = {"command": "python " + " ".join(["benchmarks/bench_large_gpu.py", *sys.argv[1:]])}
    result |= {
        "environment": environment(options.device),
        "sizes": {k: v for k, v in vars(options).items() if k != "out"},
        "cases": {},
    }
    result["sizes"]["shared"] = SHARED
    train = make_triples(options)
    few = ["device, float32, adam", "device, bfloat16, row-adagrad", "host, float32, row-adagrad, prefetch"]
    cases = [("hdistmult, rank 16", table, True) for table in TABLES]
    cases += [(model, table, True) for model in ("distmult", "hdistmult") for table in few]
    cases += [(model, few[0], False) for model in MODELS]
    cases += [("hdistmult, rank 16", table, False) for table in list(TABLES)[1:5]]
    for model, table, shared in cases:
        name = f"{model}; {table}; {'shared' if shared else 'separate'} negatives"
        if time.perf_counter() - began > options.budget:
            result.setdefault("skipped", []).append(name)
            continue
        options.rank = shared and model == "hdistmult, rank 16"
        settings = [*MODELS[model], *TABLES[table], *([f"train.negative_group_size={SHARED}"] if shared else [])]
        try:
            measured = result["cases"][name] = measure(train, table, settings, options)
            print(f"{name}: {measured['triples_per_s']:,.0f} triples/s, {measured['ms_per_step']:.1f} ms", flush=True)
        except Exception:
            traceback.print_exc()
            result.setdefault("failed", {})[name] = traceback.format_exc(limit=3)
        result["seconds"] = time.perf_counter() - began
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['seconds']:.0f} s in total")


if __name__ == "__main__":
    main()
