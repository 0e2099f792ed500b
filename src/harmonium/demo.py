"""The main job end to end, on the embedded graph: train, evaluate, answer by name, and look at one entity's guises."""

from __future__ import annotations

from pathlib import Path

from harmonium import commands, console, prediction, shown
from harmonium.config import Config
from harmonium.datasets import load
from harmonium.figures import guises_figure
from harmonium.run import Run, reserve

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
QUERIES = [{"relation": "official language", "tail": "German"}, {"head": "North Macedonia", "relation": "borders"}]
GUISES = [("Switzerland", "official language", language) for language in ("German", "French", "Italian")]


def demo(out: str | Path = "runs/demo", seed: int = 0) -> Run:
    """Train on `atlas`, print what was learned, and leave a run folder and a figure.

    >>> run = harmonium.demo("runs/demo")
    """
    reserve(out, overwrite=True)
    graph = load("atlas")
    console.say(repr(graph), "bold")
    console.say("Model: HHolE, x = relation * (head correlated with tail), scored by harmony with lambda = 1.")
    with console.training_bar() as watch:
        run = commands.train(
            Config.read(None, [*SETTINGS, f"train.seed={seed}"]), "atlas", out, overwrite=True, watch=watch
        )
    shown.show_run(run)
    for query in QUERIES:
        shown.show_answers(prediction.ask(graph, **query).text, commands.predict(run, **query, top=8))
    for guise in GUISES:
        shown.show_neighbourhood(commands.neighbours(run, *guise))
    figure = Path(out) / "guises.png"
    guises_figure(run.model, run.graph, [graph.triple(*guise) for guise in GUISES], figure)
    console.say(f"run folder: {run.path}    figure: {figure}", "bold")
    console.say(f'next: harmonium predict {run.path} --head Switzerland --relation "official language"')
    return run
