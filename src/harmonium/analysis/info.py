"""What a graph or a run contains."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.model.build import title
from harmonium.model.harmony import Harmony
from harmonium.run.run import Run
from harmonium.runtime.folders import is_finished, is_unfinished


def info(graph_or_run: Any, **reading: Any) -> dict[str, Any]:
    """The contents of a graph (counts, relations with an example) and, for a run, its settings, training and metrics.

    A graph is anything that `load` reads, and `reading` are its options.

    >>> harmonium.info("atlas")["graph"]["entities"]
    """
    source = graph_or_run
    if isinstance(source, str | Path):
        folder = Path(source)
        is_run = is_finished(folder) or is_unfinished(folder)
        source = Run.load(source) if is_run else source
    if not isinstance(source, Run):
        return {"graph": _describe_graph(load(source, **reading))}
    if reading:
        raise HarmoniumError(f"{graph_or_run} is a run, which is not read again; drop {min(reading)}")
    return {"run": _describe_run(source), "graph": _describe_graph(source.graph)}


def _describe_run(run: Run) -> dict[str, Any]:
    return {
        "path": str(run.path),
        "model": describe_model(run),
        "settings": {"model": asdict(run.config.model), "train": asdict(run.config.train)},
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "epochs": len(run.history.rows),
        "best_epoch": run.history.best_epoch,
        "stopped": run.history.stopped,
        "seconds": run.history.seconds,
        "metrics": run.evaluation.to_json() if run.evaluation else {},
        "updates": [update.to_json() for update in run.updates],
    }


def describe_model(run: Run) -> dict[str, Any]:
    """The name of the model, its sizes, and how its settings were chosen."""
    settings, model = run.config.model, run.model
    form = model.form
    return {
        "name": title(run.config),
        "composition": settings.composition,
        "entity_dim": settings.entity_dim,
        "relation_dim": model.relation.shape[1],
        "composed_dim": form.dim,
        "harmony": isinstance(form, Harmony),
        "rank": len(form.free) if isinstance(form, Harmony) else None,
        "faithfulness": form.faithfulness if isinstance(form, Harmony) else None,
        "reciprocal": settings.reciprocal,
        "chosen": _how_chosen(run),
    }


def _how_chosen(run: Run) -> str:
    """How the settings of a run were chosen, in words."""
    selection = run.selection
    if selection is None:
        return "given; nothing was searched"
    if not selection.trials:
        return f"a recipe's, with sizes chosen for the graph and {selection.minutes:g} minutes"
    return f"the best of {len(selection.trials)} trials, judged by {selection.held_out:,} held-out facts"


def _describe_graph(graph: Graph) -> dict[str, Any]:
    relation, size = graph.train.relation, len(graph.train)
    counts = relation.bincount(minlength=graph.n_relations)
    first = torch.full((graph.n_relations,), size).scatter_reduce_(0, relation, torch.arange(size), "amin")
    categories = graph.categories()
    return {
        "name": graph.name,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "triples": {split: len(facts) for split, facts in graph.splits.items()},
        "unseen": {split: int(graph.unseen(graph.splits[split]).sum()) for split in ("valid", "test")},
        "rejected": len(graph.rejected),
        "notes": [str(note) for note in graph.notes],
        "by_relation": [
            {
                "name": graph.relations.name(r),
                "train": int(counts[r]),
                "category": categories[r],
                "example": graph.names_of(graph.train[first[r : r + 1]])[0] if counts[r] else None,
            }
            for r in counts.argsort(descending=True, stable=True).tolist()
        ],
    }
