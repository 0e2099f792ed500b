"""Which part of the authors' start and step matters, of what their program does and the paper does not say.

A cell is a row of the paper's Table 1 with one of STARTS. It trains until the validation metric falls or its seconds are
over.

    harmonium paper starts FB15K --seconds 100
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import describe_protocol, evaluate_scorer
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
PART_SETTINGS = {  # those of the parts that are settings
    "sum": "train.reduction=sum",
    "two steps": "train.alternate_sides=true",
    "tables": "model.initialisation=xavier",
}
TYPED = EvaluateConfig(candidates="typed-all", ties="pessimistic")  # the paper's protocol
CELL = ("row", "start", "graph", "seed", "overrides")  # what distinguishes cells


def compare_starts(
    graph: Graph,
    out: Path,
    command: str,
    rows: Sequence[str] = ROWS,
    starts: Sequence[str] = tuple(STARTS),
    seconds: float = 100,
    overrides: Sequence[str] = (),
    seed: int = 0,
    log: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Train each row with each start; each cell joins those that `out` already has as soon as it is done."""
    for start in starts:
        if start not in STARTS:
            raise HarmoniumError(f"no start '{start}'; choose from {', '.join(STARTS)}")
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() else []
    made = []
    for row in rows:
        for start in starts:
            cell = run_cell(row, start, graph, seconds, overrides, seed) | {"command": command}
            log(f"{row}, {start}: MRR {cell['typed']['mrr']:.3f} typed, {cell['full']['mrr']:.3f} full")
            made.append(cell)
            cells = [other for other in cells if any(other[name] != cell[name] for name in CELL)] + [cell]
            result = {
                "command": command,
                "device": environment(pick_device("auto"))["device"],
                "protocol": {"typed": describe_protocol(TYPED), "full": describe_protocol(EvaluateConfig())},
                "starts": STARTS,
                "cells": cells,
            }
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return made


def run_cell(
    row: str, start: str, graph: Graph, seconds: float, overrides: Sequence[str] = (), seed: int = 0
) -> dict[str, Any]:
    """Train one row with one start for at most so many seconds and rank it under both protocols."""
    config = cell_config(row, STARTS[start], overrides, seed)
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed)
    initialise_form(model, STARTS[start], seed)
    began = time.perf_counter()

    def stop_in_time(_progress: Progress) -> None:
        if time.perf_counter() - began > seconds:
            raise KeyboardInterrupt

    history = fit(model, graph, config, stop_in_time)
    trained = time.perf_counter() - began
    device = pick_device(config.train.device)
    typed, full = (evaluate_scorer(model, graph, protocol, device=device) for protocol in (TYPED, EvaluateConfig()))
    return {
        "row": row, "start": start, "graph": graph.name, "seed": seed, "dim": config.model.entity_dim,
        "overrides": list(overrides), "epochs": len(history.rows), "best_epoch": history.best_epoch,
        "stopped": history.stopped, "seconds": round(trained, 1), "typed": typed.metrics, "full": full.metrics,
    }  # fmt: skip


def cell_config(row: str, parts: Sequence[str], overrides: Sequence[str] = (), seed: int = 0) -> Config:
    settings = [PART_SETTINGS[part] for part in parts if part in PART_SETTINGS]
    return Config.read(f"paper/FB15K/{row}", [*settings, "train.evaluate_every=2", f"train.seed={seed}", *overrides])


def initialise_form(model: GradientGraph, parts: Sequence[str], seed: int) -> None:
    """Give W and b their own start: Xavier's, or the small one of the faithful recipe."""
    if isinstance(model.form, Harmony):
        model.form.initialise(torch.Generator().manual_seed(seed), is_xavier="W" in parts)


def frequent_part(graph: Graph, n_entities: int) -> Graph:
    """The facts between the entities with the most training facts, for a CPU; numbered in the order of their facts."""
    degree = torch.cat([graph.train.head, graph.train.tail]).bincount(minlength=graph.n_entities)
    is_kept = torch.zeros(graph.n_entities, dtype=torch.bool)
    is_kept[degree.argsort(descending=True, stable=True)[:n_entities]] = True
    parts = [facts[is_kept[facts.head] & is_kept[facts.tail]] for facts in graph.splits.values()]
    rows = [part.to_rows().tolist() for part in parts]
    entities = {old: new for new, old in enumerate(dict.fromkeys(end for h, _, t in chain(*rows) for end in (h, t)))}
    relations = {old: new for new, old in enumerate(dict.fromkeys(relation for _, relation, _ in chain(*rows)))}
    train, valid, test = (
        Triples.from_rows([[entities[h], relations[r], entities[t]] for h, r, t in part]) for part in rows
    )
    names = Vocabulary([graph.entities.ids[old] for old in entities])
    relation_names = Vocabulary([graph.relations.ids[old] for old in relations], None, "relation")
    return Graph(names, relation_names, train, valid, test, f"{graph.name}-{n_entities}")
