"""The command `demo`: train on the embedded graph, find missing facts, predict by name, and look at an entity's guises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import option

SETTINGS = [  # of the preset fast, fixed so that the result does not depend on the speed of the machine
    "model.entity_dim=256",
    "train.loss=full",
    "train.batch_size=113",
    "train.epochs=15",
    "train.harmony=after",
]
QUERIES = [(None, "official language", "German"), ("North Macedonia", "borders", None)]
GUISES = [("Switzerland", "official language", language) for language in ("German", "French", "Italian")]
MISSING = 12


@command("Start")
def demo(
    out: Annotated[Path, option("RUN", "Run folder to write; an earlier demo there is replaced.")] = Path("runs/demo"),
    seed: options.Seed = 0,
) -> None:
    """Train on atlas, an embedded graph of the world, in about half a minute, and show what was learned.

    Example: harmonium demo --out runs/demo
    """
    from harmonium.analysis.figures import guises_figure
    from harmonium.analysis.plain_comparison import without_harmony
    from harmonium.evaluation.evaluation import evaluate_scorer
    from harmonium.runtime.folders import reserve

    reserve(out, overwrite=True)
    graph = harmonium.load("atlas")
    console.say(repr(graph), "bold")
    console.say(
        "Training: ComplEx vectors against all entities; then W and b of harmony are fitted to validation facts."
    )
    with console.training_bar() as progress:
        run = harmonium.train(
            "atlas", "fast", out, [*SETTINGS, f"train.seed={seed}"], overwrite=True, progress=progress
        )
    plain = evaluate_scorer(without_harmony(run.model), run.graph, run.config.evaluate)
    console.show([*display.model(run), *run.display_training(), *run.display_metrics({"without W": plain.metrics})])
    with console.bar("finding missing facts") as advance:
        missing = harmonium.complete(run, top=MISSING, progress=advance)
    console.show(display.missing(f"Missing from {graph.name}", missing))
    for query in QUERIES:
        console.show(harmonium.predict(run, *query, top=8))
    for guise in GUISES:
        console.show(harmonium.neighbours(run, *guise))
    figure = out / "guises.png"
    guises_figure(run.model, run.graph, [graph.triple(*guise) for guise in GUISES], figure)
    console.say(f"run folder: {out}    figure: {figure}", "bold")
    console.say(f"next: harmonium complete {out} --only-empty")
