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
    "train.constraints=true",
    "train.last_training=true",
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
    from harmonium.answers.calibration.hidden_facts import find_hidden
    from harmonium.evaluation.evaluation import evaluate_scorer
    from harmonium.runtime.folders import reserve

    reserve(out, overwrite=True)
    graph = harmonium.load("atlas")
    console.say(repr(graph), "bold")
    console.say(
        "Training: vectors; then constraints (paths of facts, values in common, names), weighted by held-out facts; then "
        "vectors on all facts, which answer."
    )
    with console.training_bar() as progress:
        run = harmonium.train(
            "atlas", "fast", out, overrides=[*SETTINGS, f"train.seed={seed}"], overwrite=True, progress=progress
        )
    vectors = evaluate_scorer(run.model, run.graph, run.config.evaluate)
    console.show(
        [*display.model(run), *run.display_training(), *run.display_metrics({"vectors alone": vectors.metrics})]
    )
    console.say("Are its probabilities true? It lists what is missing without knowing the test facts:", "bold")
    console.show(find_hidden(run).display())
    console.say(
        "So atlas lacks little, and what is left is improbable. The best candidates, with their reasons:", "bold"
    )
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
