"""Small measurements that the docs quote, on a CPU: python benchmarks/experiments_cpu.py results/experiments-cpu.json.

`--parts demo gain` measures these again and leaves the others as they are. `gain` and `checkpoint_size` want FB15K
(HARMONIUM_DATA); `spectrum` wants a run of it, `--run FOLDER`, made by the command it records.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harmonium import load
from harmonium.analysis.neighbours import entity_neighbours
from harmonium.analysis.statistics import spearman
from harmonium.cli.demo import SETTINGS
from harmonium.config.settings import Config, ModelConfig
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.paper.density import density as density_of
from harmonium.paper.gain import gain as measure_gain
from harmonium.paper.reproduce import reproduce
from harmonium.run import checkpoint
from harmonium.run.environment import environment
from harmonium.run.run import History, Run
from harmonium.training.fit import fit
from harmonium.training.train import train

FB15K_RUN = "python benchmarks/reproduce.py table1 --dataset FB15K --rows hhole-1 --variant calibrated --seeds 0"


def demo(chosen: argparse.Namespace) -> dict[str, Any]:
    """The demo's run: density, constant and spread of scores, share decided by bounds, entity tokens by ridge."""
    run = train("atlas", Config.read(None, SETTINGS))
    density, scorer, facts = density_of(run).to_json(), run.model.scorer(), run.graph.test
    evaluate_scorer(scorer, run.graph)
    scores = run.model.score(run.graph.facts())
    ridges = {}
    for ridge in (1e-6, 1e-4, 1e-2, 1.0):
        measured = [entity_neighbours(run.model, run.graph, facts[i : i + 1], ridge=ridge).token for i in range(200)]
        ridges[f"{ridge:g}"] = sum(n.true for near in measured for n in near) / len(measured)
    return {
        "density": {kind: density[kind] for kind in ("positives", "negatives")},
        "constant": run.model.harmony.fold().constant.item(),
        "scores_of_facts": {"5%": scores.quantile(0.05).item(), "95%": scores.quantile(0.95).item()},
        "skipped_by_bounds": scorer.pruner.skipped,
        "facts_among_5_neighbours_of_entity_tokens_by_ridge": ridges,
    }


def gain(chosen: argparse.Namespace) -> dict[str, Any]:
    """An untrained HHolE: does its gain go with its ranks, and with what optimisation does to them?"""
    by_start = {}
    for name, dim, start in (("atlas", 64, "calibrated"), ("atlas", 64, "paper"), ("FB15K", 512, "calibrated")):
        graph = load(name)
        model = build_model(ModelConfig("hole", dim, initialisation=start), graph.n_entities, graph.n_relations, 0)
        run = Run(Config(), graph, model, History())
        measured = measure_gain(run, limit=2000, device="cpu")
        by_start[f"{name}, d = {dim}, {start} start"] = {
            candidates: {
                "queries": len(measured.gain),
                "unchanged_ranks": (change.raw == 0).double().mean().item(),
                "spearman_of_gain_with_1/rank": spearman(measured.gain, 1 / change.after).rho,
                "spearman_of_gain_with_change_of_1/rank": _number(spearman(measured.gain, change.reciprocal).rho),
            }
            for candidates, change in measured.changes.items()
        }
    return by_start


def _number(value: float) -> float | None:
    return None if value != value else value


def cap(chosen: argparse.Namespace) -> dict[str, Any]:
    """HDistMult, lambda = 50, calibrated, on `atlas` (small): the recipe's cap and the paper's."""
    measured = {}
    for name, overrides in (("37.5", []), ("49.75", ["model.cap=49.75"])):
        with tempfile.TemporaryDirectory() as folder:
            (record,) = reproduce(
                "table1", "atlas", ["hdistmult-50"], "calibrated", scale="small", overrides=overrides, runs=folder
            )
        measured[name] = {"mrr": record["mrr"], "full_mrr": record["full"]["mrr"], "command": record["command"]}
    return measured


def spectrum(chosen: argparse.Namespace) -> dict[str, Any]:
    """The shares of |W|^2 in its strongest directions, after training on FB15K."""
    if chosen.run is None:
        raise SystemExit(f"spectrum needs --run FOLDER, from {FB15K_RUN}")
    energy = torch.linalg.eigvalsh(Run.load(chosen.run).model.harmony.matrix().double()).square()
    share = energy.sort(descending=True).values.cumsum(0) / energy.sum()
    return {"run": FB15K_RUN, "share_of_energy": {str(k): share[k - 1].item() for k in (1, 2, 3, 8)}}


def checkpoints(chosen: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds of two epochs on `atlas` without checkpoints, with the defaults, and with many; five rounds."""
    policies = {"none": [], "defaults": [], "every 20 steps": ["train.checkpoint_every=20"]}
    seconds: dict[str, list[float]] = {policy: [] for policy in policies}
    settings, graph = [*SETTINGS, "train.epochs=2", "train.threads=1"], load("atlas")
    for _ in range(5):
        for policy, more in policies.items():
            with tempfile.TemporaryDirectory() as folder:
                started = time.process_time()
                train(overrides=[*settings, *more], data=graph, out=None if policy == "none" else f"{folder}/run")
                seconds[policy].append(time.process_time() - started)
    return {
        "settings": settings,
        "cpu_seconds": {policy: median(times) for policy, times in seconds.items()},
        "each": seconds,
    }


def checkpoint_size(chosen: argparse.Namespace) -> dict[str, Any]:
    """One checkpoint of HHolE, d = 512, on FB15K: bytes and seconds. Two steps with few negatives fill all its state."""
    graph = load("FB15K")
    graph = replace(graph, train=graph.train[:128])
    overrides = ["model.entity_dim=512", "train.batch_size=64", "train.negatives=4", "train.epochs=1"]
    config = Config.read(None, [*overrides, "train.validation_triples=64"])
    with (
        tempfile.TemporaryDirectory() as folder,
        checkpoint.begin(Path(folder) / "run", False, config, graph, "cpu") as saved,
    ):
        sizes, seconds, save = [], [], saved.save

        def measured(training: Any) -> None:
            started = time.perf_counter()
            save(training)
            seconds.append(time.perf_counter() - started)
            sizes.append(sum(file.stat().st_size for file in saved.folder.glob("*.safetensors")))

        saved.save = measured
        fit(build_model(config.model, graph.n_entities, graph.n_relations), graph, config, checkpoints=saved)
    return {"megabytes": sizes[0] / 1e6, "seconds": seconds[0]}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    part.__name__: part for part in (demo, gain, cap, spectrum, checkpoints, checkpoint_size)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--run")
    chosen = parser.parse_args()
    measured = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {}
    measured |= {
        "command": f"python benchmarks/experiments_cpu.py {chosen.out} --run FB15K-RUN",
        "environment": environment(),
    }
    for name in chosen.parts:
        started = time.perf_counter()
        made = {
            "what": " ".join(PARTS[name].__doc__.split()),
            "commit": environment().get("commit"),
            "load": os.getloadavg()[0],
        }
        measured[name] = made | PARTS[name](chosen) | {"wall_seconds": round(time.perf_counter() - started, 1)}
        print(name, json.dumps(measured[name], indent=1), flush=True)
        chosen.out.write_text(json.dumps(measured, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
