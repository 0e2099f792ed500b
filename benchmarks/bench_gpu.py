"""Training steps, exact ranking and time to quality on one GPU: python benchmarks/bench_gpu.py OUT.json [options].

Needs torch, numpy, safetensors and Triton only. `--data` is a graph file (harmonium.graph_file) or folder of FB15K;
default: steps and ranking on a random graph of that shape, without time to quality.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from portable_command import portable_command

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.ranking import rank
from harmonium.kernels import dispatch
from harmonium.model.build import build_model
from harmonium.run.environment import environment
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.training.fit import fit
from harmonium.training.step import TrainingStep

SHAPE = {"n_entities": 14_951, "n_relations": 1_345, "triples": (483_142, 50_000, 59_071)}
PAPER = ["train.batch_size=512", "train.negatives=500", "train.learning_rate=0.001", "model.entity_dim=512"]
MODELS = {"hdistmult": ["model.composition=distmult"], "hhole": ["model.composition=hole"]}

SHORT = ["model.entity_dim=128", "train.negatives=100", "train.epochs=5", "train.evaluate_every=5"]
HHOLE_RECIPE = ["model.faithfulness=1.0", "train.learning_rate=0.003", "train.epochs=20", "train.evaluate_every=5"]
COMPLEX_RECIPE = [
    "model.composition=complex", "model.entity_dim=2000", "model.harmony=false", "model.normalise=false",
    "model.reciprocal=true", "train.loss=full", "train.optimiser=adagrad", "train.learning_rate=0.1",
    "train.batch_size=1000", "train.n3=0.005", "train.epochs=15", "train.evaluate_every=5",
]  # fmt: skip


def random_graph() -> Graph:
    """Of FB15K's shape: uniform entities, relations of Zipf frequency."""
    generator = torch.Generator().manual_seed(0)
    weights = 1 / torch.arange(1, SHAPE["n_relations"] + 1)
    parts = []
    for count in SHAPE["triples"]:
        entities = torch.randint(SHAPE["n_entities"], (2, count), generator=generator)
        parts.append(Triples(entities[0], weights.multinomial(count, True, generator=generator), entities[1]))
    names = (Vocabulary([f"{kind}{i}" for i in range(SHAPE[f"n_{kind}"])]) for kind in ("entities", "relations"))
    return Graph(*names, *parts, name="random graph of FB15K's shape")


def time_steps(graph: Graph, settings: list[str], backend: str, steps: int, base: list[str] = PAPER) -> float:
    """Milliseconds per training step, by CUDA events over `steps` after warm-up."""
    config = Config.read(None, base + settings)
    model = build_model(config.model, graph.n_entities, graph.n_relations).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    with dispatch.use(backend):
        take_step = TrainingStep(model, graph.train.to("cuda"), config.train, generator)
        order = take_step.arrange_batches(torch.randperm(len(graph.train), generator=generator, device="cuda"))
        batches = order.split(config.train.batch_size)
        for index in batches[:8]:
            take_step(index)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for index in batches[8 : 8 + steps]:
            take_step(index)
        end.record()
        torch.cuda.synchronize()
    return start.elapsed_time(end) / steps


def profile_step(graph: Graph, settings: list[str], base: list[str] = PAPER) -> str:
    """The kernels of one ordinary (not replayed) step, by device time."""
    config = Config.read(None, base + settings)
    model = build_model(config.model, graph.n_entities, graph.n_relations).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    take_step = TrainingStep(model, graph.train.to("cuda"), config.train, generator)
    take_step.replay = None
    order = take_step.arrange_batches(torch.randperm(len(graph.train), generator=generator, device="cuda"))
    batches = order.split(config.train.batch_size)
    for index in batches[:3]:
        take_step(index)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for index in batches[3:6]:
            take_step(index)
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.self_device_time_total > 0]
    events.sort(key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events) / 3000
    lines = [f"{e.self_device_time_total / 3000:7.3f} ms {e.count / 3:5.1f}x {e.key[:90]}" for e in events[:22]]
    return "\n".join([f"{total:.3f} ms in {sum(e.count for e in events) / 3:.0f} kernels", *lines])


def time_ranking(model, graph: Graph, check: int = 500) -> dict:
    """Seconds for both sides of the test split, filtered; ranks of a sample compared with the float64 reference."""
    model.cuda().eval()
    evaluate_scorer(model, graph, triples=graph.test[:2000], device="cuda")
    torch.cuda.synchronize()
    started = time.perf_counter()
    result = evaluate_scorer(model, graph, device="cuda")
    seconds = time.perf_counter() - started
    sample = graph.test[torch.randperm(len(graph.test), generator=torch.Generator().manual_seed(0))[:check]]
    measured = evaluate_scorer(model, graph, triples=sample, device="cuda").ranks
    scorer = model.scorer()
    with torch.no_grad():
        rank(scorer, sample.to("cuda"), Slot.TAIL)
    with dispatch.use("reference"), torch.no_grad():
        exact = evaluate_scorer(model.double(), graph, triples=sample, chunk=8, device="cuda").ranks
    model.float()
    return {
        "ranking_s": seconds,
        "queries": len(result.ranks),
        "skipped_by_bounds": scorer.pruner.skipped if scorer.form.core is not None else None,
        "directions_followed": scorer.pruner.followed if scorer.form.core is not None else None,
        "checked_queries": len(measured),
        "different_from_float64": int((measured.values() != exact.values()).sum()),
        "mrr": result.metrics["mrr"],
    }


def accuracy(graph: Graph, seeds: int = 3) -> dict[str, dict[str, list[float]]]:
    """Validation MRR after equal short training of a smaller model, by the bf16 kernels and by plain PyTorch (TF32)."""
    measured = {}
    for name, settings in MODELS.items():
        measured[name] = {"triton": [], "torch": []}
        for seed in range(seeds):
            config = Config.read(None, [*settings, *SHORT, f"train.seed={seed}"])
            for backend, scores in measured[name].items():
                model = build_model(config.model, graph.n_entities, graph.n_relations, seed)
                with dispatch.use(backend):
                    fit(model, graph, config)
                scores.append(
                    evaluate_scorer(model, graph, EvaluateConfig(split="valid"), device="cuda").metrics["mrr"]
                )
        print("accuracy", name, measured[name], flush=True)
    return {"settings": SHORT, "valid_mrr": measured}


def time_to_quality(graph: Graph, settings: list[str], protocol: EvaluateConfig, goal: float) -> tuple[dict, object]:
    """Train, evaluate on the test split after every validation, and report when the goal was first reached.

    Seconds count training and the validations for early stopping, not the additional evaluation on the test split.
    """
    config = Config.read(None, settings)
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    curve, evaluating = [], 0.0

    def evaluate_test(row: dict) -> None:
        nonlocal evaluating
        began = time.perf_counter()
        metrics = evaluate_scorer(model, graph, protocol, device="cuda").metrics
        curve.append({"epoch": row["epoch"], "seconds": row["seconds"] - evaluating, **metrics})
        evaluating += time.perf_counter() - began
        point = curve[-1]
        print(
            f"  epoch {point['epoch']} {point['seconds']:.1f} s mrr {point['mrr']:.4f} loss {row['loss']:.4f}",
            flush=True,
        )

    history = fit(model, graph, config, on_validation=evaluate_test)
    reached = next((point["seconds"] for point in curve if point["mrr"] >= goal), None)
    return {
        "settings": settings, "goal": goal, "protocol": vars(protocol), "reached_after_s": reached,
        "stopped": history.stopped, "curve": curve,
    }, model  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--parts", default="steps,accuracy,ranking,complex,hhole")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--hhole", default="", help="extra settings, separated by spaces")
    parser.add_argument("--complex", default="")
    options = parser.parse_args()
    keep_freed_memory()
    graph = load(options.data) if options.data else random_graph()
    parts = options.parts.split(",")
    result = {"command": portable_command("bench_gpu.py"), "environment": environment("cuda"), "graph": graph.name}

    def attempt(name: str, work) -> None:
        began = time.perf_counter()
        try:
            work()
        except Exception:
            traceback.print_exc()
            result.setdefault("failed", {})[name] = traceback.format_exc(limit=3)
        print(f"[{name}: {time.perf_counter() - began:.1f} s]", flush=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")

    def steps() -> None:
        for backend, key, count in (("triton", "step_ms", options.steps), ("torch", "reference_step_ms", 20)):
            result[key] = {}
            for name, settings in MODELS.items():
                try:
                    result[key][name] = time_steps(graph, settings, backend, count)
                except Exception:
                    traceback.print_exc()
                print(key, name, result[key].get(name), flush=True)

    def quality(key: str, settings: list[str], protocol: EvaluateConfig, goal: float) -> None:
        measured, model = time_to_quality(graph, settings, protocol, goal)
        result.setdefault("time_to_quality", {})[key] = measured
        result.setdefault("time_to_quality_s", {})[key] = measured["reached_after_s"]
        result.setdefault("ranking", {})[key] = time_ranking(model, graph)
        print(key, "reached", measured["reached_after_s"], result["ranking"][key], flush=True)

    def ranking() -> None:
        config = replace(Config.read(None, PAPER + MODELS["hhole"]))
        model = build_model(config.model, graph.n_entities, graph.n_relations)
        result.setdefault("ranking", {})["hhole_untrained"] = time_ranking(model, graph)
        print("ranking", result["ranking"], flush=True)

    if "profile" in parts:
        for name, settings in MODELS.items():
            attempt(f"profile {name}", lambda settings=settings: print(profile_step(graph, settings)))
        attempt("profile complex", lambda: print(profile_step(graph, COMPLEX_RECIPE, [])))
    if "steps" in parts:
        attempt("steps", steps)
    if "ranking" in parts:
        attempt("ranking", ranking)
    if "accuracy" in parts:
        attempt("accuracy", lambda: result.update(accuracy=accuracy(graph)))
    if "complex" in parts:
        recipe = [*COMPLEX_RECIPE, *options.complex.split()]
        attempt("complex", lambda: quality("complex", recipe, EvaluateConfig(), 0.84))
    if "hhole" in parts:
        recipe = [*PAPER, *MODELS["hhole"], *HHOLE_RECIPE, *options.hhole.split()]
        protocol = EvaluateConfig(candidates="typed-all", ties="pessimistic")
        attempt("hhole", lambda: quality("hhole", recipe, protocol, 0.796))
    if "hhole" in result.get("ranking", {}):
        result["ranking_s"] = result["ranking"]["hhole"]["ranking_s"]
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    summary = {k: result.get(k) for k in ("step_ms", "reference_step_ms", "ranking_s", "time_to_quality_s")}
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
