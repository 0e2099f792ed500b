"""All-entity training steps on one GPU: bench_all_entity.py OUT.json BENCH_GPU.json FB237.graph WN18RR.graph [--profile].

Steps of ComplEx, d = 2000, reciprocal, N3, Adagrad are timed by CUDA events as they are trained, replayed as a CUDA graph.
The step times go into the second file too, under `all_entity_step_ms`. Then equal short trainings with bfloat16 operands
and in float32 are compared over three seeds, d = 512; `--precision-only` adds this comparison to an OUT.json with step
times, `--steps-only` leaves it out. Needs torch, numpy, safetensors and Triton only.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from bench_gpu import profile_step, time_steps
from portable_command import portable_command

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.run.environment import environment
from harmonium.training.fit import fit

COMPLEX = [
    "model.composition=complex", "model.harmony=false", "model.normalise=false", "model.reciprocal=true",
    "model.initial_spread=0.001", "model.entity_dim=2000", "train.loss=full", "train.optimiser=adagrad",
    "train.learning_rate=0.1", "train.epochs=20", "train.evaluate_every=20",
]  # fmt: skip
COMPARED = ["model.entity_dim=512", "train.epochs=15", "train.evaluate_every=15"]  # trainings in both precisions
FB15K237, WN18RR = ["train.batch_size=500", "train.n3=0.05"], ["train.batch_size=250", "train.n3=0.1"]
STEPS = {  # name: which graph, settings
    "fb15k237": (0, FB15K237),
    "wn18rr": (1, WN18RR),
    "fb15k237_relation_prediction": (0, [*FB15K237, "train.relation_prediction=4"]),
    "fb15k237_rank8": (0, [*FB15K237, "model.harmony=true", "model.rank=8"]),
}


def floor_ms(graph: Graph, settings: list[str], dim: int = 2000) -> dict[str, float]:
    """The least time: products at 790 TFLOP/s, and the optimiser's traffic (3 reads, 2 writes) at 4.8 TB/s."""
    config = Config.read(None, COMPLEX + settings)
    vectors = 1 + (config.model.rank or 0) * config.model.harmony
    flops = 3 * 2 * (2 * config.train.batch_size) * vectors * graph.n_entities * dim
    return {"products": flops / 790e9, "optimiser": 5 * 4 * graph.n_entities * dim / 4.8e9}


def compare_precision(graph: Graph, settings: list[str]) -> dict[str, list[float]]:
    """Validation MRR of three seeds, by train.precision."""
    measured: dict[str, list[float]] = {"high": [], "highest": []}
    for precision, values in measured.items():
        for seed in range(3):
            overrides = [*COMPLEX, *COMPARED, *settings, f"train.precision={precision}", f"train.seed={seed}"]
            config = Config.read(None, overrides)
            model = build_model(config.model, graph.n_entities, graph.n_relations, seed)
            fit(model, graph, config)
            protocol = EvaluateConfig(split="valid")
            values.append(evaluate_scorer(model, graph, protocol, device="cuda").metrics["mrr"])
    return measured


def measure_steps(graphs: list[Graph], out: Path) -> dict:
    """The milliseconds of a step of each kind, and their floors; written after each."""
    result: dict = {
        "command": portable_command("bench_all_entity.py"), "environment": environment("cuda"), "settings": COMPLEX,
        "all_entity_step_ms": {}, "floor_ms": {},
    }  # fmt: skip
    for name, (number, settings) in STEPS.items():
        result["all_entity_step_ms"][name] = time_steps(graphs[number], settings, "triton", 150, COMPLEX)
        result["floor_ms"][name] = floor_ms(graphs[number], settings)
        print(name, result["all_entity_step_ms"][name], result["floor_ms"][name], flush=True)
        if "--profile" in sys.argv:
            print(profile_step(graphs[number], settings, COMPLEX), flush=True)
        torch.cuda.empty_cache()
        out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    out, bench_gpu, *paths = (Path(argument) for argument in sys.argv[1:] if not argument.startswith("--"))
    graphs = [graph_file.load(path) for path in paths]
    if "--precision-only" in sys.argv:
        result = json.loads(out.read_text())
    else:
        result = measure_steps(graphs, out)
        content = json.loads(bench_gpu.read_text())
        content["all_entity_step_ms"] = result["all_entity_step_ms"]
        bench_gpu.write_text(json.dumps(content, indent=1) + "\n")
    if "--steps-only" not in sys.argv:
        began = time.perf_counter()
        result["precision"] = {
            "command": portable_command("bench_all_entity.py"), "settings": COMPARED + FB15K237,
            "valid_mrr": {"fb15k237": compare_precision(graphs[0], FB15K237)},
        }  # fmt: skip
        print(result["precision"]["valid_mrr"], f"{time.perf_counter() - began:.0f} s", flush=True)
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
