"""What a graph or a run contains."""

from dataclasses import asdict
from typing import Any

from harmonium.answers.calibration.completeness import completeness_of
from harmonium.answers.open_run import open_run
from harmonium.data.checks.contents import describe_graph
from harmonium.model.build import title
from harmonium.model.harmony import Harmony
from harmonium.run.run import Run, is_run_folder, open_graph


def info(graph_or_run: Any, **reading: Any) -> dict[str, Any]:
    """The contents of a graph (counts, relations with an example) and, for a run, its settings, training and metrics.

    Of a run also how complete each relation is, estimated once (which takes seconds) and kept.

    A graph is anything that `load` reads, and `reading` are its options.

    >>> harmonium.info("atlas")["graph"]["entities"]
    """
    source = Run.of(graph_or_run) if is_run_folder(graph_or_run) else graph_or_run
    graph = describe_graph(open_graph(source, **reading))
    return {"run": _describe_run(source), "graph": graph} if isinstance(source, Run) else {"graph": graph}


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
        "completeness": completeness_of(open_run(run)),
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
