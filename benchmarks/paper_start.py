"""Which part of the authors' start and step matters: paper_start.py OUT.json GRAPH [--rows ...] [--starts ...].

Each cell is a row of the paper's Table 1 with one of STARTS, trained until hits@10 of validation facts falls or its seconds
are over, with a curve of validation metrics. OUT.json keeps the cells of earlier calls. Needs torch, numpy and safetensors.
`--entities 1000` keeps the facts between the 1,000 entities with the most training facts, for a CPU.

    PYTHONPATH=src python benchmarks/paper_start.py results/paper-start.json FB15K.graph --seconds 100
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import describe_protocol, draw_facts, evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.run.environment import environment
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit
from harmonium.training.state import Progress

ROWS = ("hhole-1", "hdistmult-inf")
STARTS: dict[str, tuple[str, ...]] = {  # parts of the authors' program, added to the faithful recipe
    "faithful": (),
    "tables": ("tables",),
    "W": ("W",),
    "sum": ("sum",),
    "two steps": ("two steps",),
    "authors": ("tables", "W", "sum", "two steps"),
    "authors but tables": ("W", "sum", "two steps"),
    "authors but W": ("tables", "sum", "two steps"),
    "authors but sum": ("tables", "W", "two steps"),
    "authors but two steps": ("tables", "W", "sum"),
}
METRICS = ("mrr", "hits@1", "hits@10")
TYPED = EvaluateConfig(candidates="typed-all", ties="pessimistic")  # the paper's protocol
CURVE_FACTS = 2000  # validation facts ranked by typed candidates along the curve


def frequent_part(graph: Graph, n_entities: int) -> Graph:
    """The facts between the entities with the most training facts, numbered in the order of their training facts."""
    degree = torch.cat([graph.train.head, graph.train.tail]).bincount(minlength=graph.n_entities)
    is_kept = torch.zeros(graph.n_entities, dtype=torch.bool)
    is_kept[degree.argsort(descending=True, stable=True)[:n_entities]] = True
    parts = [facts[is_kept[facts.head] & is_kept[facts.tail]] for facts in graph.splits.values()]
    rows = [part.to_rows().tolist() for part in parts]
    entities = {old: new for new, old in enumerate(dict.fromkeys(end for h, _, t in chain(*rows) for end in (h, t)))}
    relations = {old: new for new, old in enumerate(dict.fromkeys(relation for _, relation, _ in chain(*rows)))}
    splits = [Triples.from_rows([[entities[h], relations[r], entities[t]] for h, r, t in part]) for part in rows]
    names = Vocabulary([graph.entities.ids[old] for old in entities])
    relation_names = Vocabulary([graph.relations.ids[old] for old in relations], None, "relation")
    return Graph(names, relation_names, *splits, f"{graph.name}-{n_entities}")


def cell_config(row: str, parts: Sequence[str], overrides: Sequence[str], seed: int, device: str) -> Config:
    settings = []
    if "sum" in parts:
        settings.append("train.reduction=sum")
    if "two steps" in parts:
        settings.append("train.alternate_sides=true")
    if "tables" in parts:
        settings.append("model.initialisation=xavier")
    every = ["train.evaluate_every=2", f"train.seed={seed}", f"train.device={device}"]
    return Config.read(f"paper/FB15K/{row}", [*settings, *every, *overrides])


def start_form(model: GradientGraph, parts: Sequence[str], seed: int) -> None:
    """Give W and b their own start: Xavier's, or the small one of the faithful recipe."""
    if isinstance(model.form, Harmony):
        model.form.initialise(torch.Generator().manual_seed(seed), is_xavier="W" in parts)


def run_cell(
    row: str, start: str, graph: Graph, seconds: float, overrides: Sequence[str], seed: int, device: str
) -> dict[str, Any]:
    config = cell_config(row, STARTS[start], overrides, seed, device)
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed)
    start_form(model, STARTS[start], seed)
    curve: list[dict[str, Any]] = []
    facts = draw_facts(graph.valid, CURVE_FACTS)
    began = time.perf_counter()

    def stop_in_time(_progress: Progress) -> None:
        if time.perf_counter() - began > seconds:
            raise KeyboardInterrupt

    def note(epoch: dict[str, Any]) -> None:
        typed = evaluate_scorer(model, graph, replace(TYPED, split="valid"), facts, device=pick_device(device)).metrics
        point = {name: epoch[name] for name in ("epoch", "seconds", "loss")}
        point |= {"valid": {name: epoch["valid"][name] for name in METRICS}}
        curve.append(point | {"valid_typed": {name: typed[name] for name in METRICS}})
        print(row, start, point, f"typed {typed['mrr']:.3f}", flush=True)

    history = fit(model, graph, config, stop_in_time, note)
    trained = time.perf_counter() - began
    at = pick_device(device)
    typed, full = (evaluate_scorer(model, graph, protocol, device=at).metrics for protocol in (TYPED, EvaluateConfig()))
    return {
        "row": row, "start": start, "graph": graph.name, "seed": seed, "dim": config.model.entity_dim,
        "overrides": list(overrides), "curve": curve, "epochs": len(history.rows), "best_epoch": history.best_epoch,
        "stopped": history.stopped, "seconds": round(trained, 1), "typed": typed, "full": full,
    }  # fmt: skip


def command(options: argparse.Namespace) -> str:
    parts = ["results/paper-start.json", Path(options.graph).name, "--seconds", f"{options.seconds:g}"]
    parts += ["--entities", str(options.entities)] if options.entities else []
    more = ["--set", *options.overrides] if options.overrides else []
    return f"python benchmarks/paper_start.py {shlex.join([*parts, *more])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("graph", help="file of a graph")
    parser.add_argument("--rows", nargs="+", default=ROWS)
    parser.add_argument("--starts", nargs="+", default=list(STARTS), choices=list(STARTS))
    parser.add_argument("--entities", type=int, help="train on the part between this many frequent entities")
    parser.add_argument("--seconds", type=float, default=100, help="of training, for each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="overrides", nargs="+", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    graph = load(options.graph)
    graph = frequent_part(graph, options.entities) if options.entities else graph
    cells = json.loads(options.out.read_text(encoding="utf-8"))["cells"] if options.out.exists() else []
    for row in options.rows:
        for start in options.starts:
            cell = run_cell(row, start, graph, options.seconds, options.overrides, options.seed, options.device)
            cell["command"] = command(options)
            same = ("row", "start", "graph", "seed", "overrides")
            cells = [other for other in cells if any(other[name] != cell[name] for name in same)] + [cell]
            result = {
                "command": cell["command"],
                "device": environment(pick_device(options.device))["device"],
                "protocol": {"typed": describe_protocol(TYPED), "full": describe_protocol(EvaluateConfig())},
                "starts": STARTS,
                "cells": cells,
            }
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(row, start, f"typed {cell['typed']['mrr']:.3f}, full {cell['full']['mrr']:.3f}", flush=True)


if __name__ == "__main__":
    main()
