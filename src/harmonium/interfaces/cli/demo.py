"""The command `demo`: train on the embedded graph, evaluate, predict by name, and look at one entity's guises."""

from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.interfaces.cli import console, display, options
from harmonium.interfaces.cli.options import option

SETTINGS = [
    "model.composition=hole",
    "model.entity_dim=64",
    "model.faithfulness=1.0",
    "model.rank=8",
    "train.negatives=64",
    "train.batch_size=256",
    "train.learning_rate=0.02",
    "train.epochs=40",
    "train.evaluate_every=10",
]
QUERIES = [(None, "official language", "German"), ("North Macedonia", "borders", None)]
GUISES = [("Switzerland", "official language", language) for language in ("German", "French", "Italian")]


def demo(
    out: Annotated[Path, option("RUN", "Run folder to write; an earlier demo there is replaced.")] = Path("runs/demo"),
    seed: options.Seed = 0,
) -> None:
    """Train on atlas, an embedded graph of the world, in about half a minute, and show what was learned.

    Example: harmonium demo --out runs/demo
    """
    from harmonium.analysis.figures import guises_figure
    from harmonium.answers.query import ask
    from harmonium.runtime.folders import reserve

    reserve(out, overwrite=True)
    graph = harmonium.load("atlas")
    console.say(repr(graph), "bold")
    console.say("Model: HHolE, x = relation * (head correlated with tail), scored by harmony with lambda = 1.")
    settings = [*SETTINGS, f"train.seed={seed}"]
    with console.training_bar() as progress:
        run = harmonium.train(data="atlas", out=out, overrides=settings, overwrite=True, progress=progress)
    display.show_run(run)
    for query in QUERIES:
        display.show_answers(ask(graph, *query).text, harmonium.predict(run, *query, top=8))
    for guise in GUISES:
        display.show_neighbourhood(harmonium.neighbours(run, *guise))
    figure = out / "guises.png"
    guises_figure(run.model, run.graph, [graph.triple(*guise) for guise in GUISES], figure)
    console.say(f"run folder: {out}    figure: {figure}", "bold")
    console.say(f'next: harmonium predict {out} --head Switzerland --relation "official language"')
