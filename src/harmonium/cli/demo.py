"""The command `demo`: train on the embedded graph, find missing facts, weigh an answer, look at an entity's guises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import option

SETTINGS = [  # of the preset fast, without its time budget: the result does not depend on the speed of the machine
    "model.entity_dim=256",
    "train.learning_rate=0.3",
    "train.batch_size=113",
    "train.epochs=15",
    "train.constraints=true",
    "train.last_training=true",
]
TABLEAU = ("Zambia", "official language", "English")
ROLES = ("German", "French", "Italian")  # official languages of Switzerland
MISSING = 12


@command("Start")
def demo(
    out: Annotated[Path, option("RUN", "Run folder to write; an earlier demo there is replaced.")] = Path("runs/demo"),
    seed: options.Seed = 0,
) -> None:
    """Train on atlas, an embedded graph of the world, in about a minute, and show what it says.

    What is missing, why an answer is the best one, and who is like whom.

    Example: harmonium demo --out runs/demo
    """
    from harmonium.analysis.figures import guises_figure
    from harmonium.analysis.tableau import build_tableau
    from harmonium.answers.calibration.hidden_facts import find_hidden
    from harmonium.answers.open_run import open_run
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
            "atlas", "plain", out, overrides=[*SETTINGS, f"train.seed={seed}"], overwrite=True, progress=progress
        )
    opened = open_run(run)
    vectors = evaluate_scorer(run.model, run.graph, run.config.evaluate)
    console.show(
        [*display.model(run), *run.display_training(), *run.display_metrics({"vectors alone": vectors.metrics})]
    )
    console.say(
        "What is missing? First how complete atlas is, and whether that is true of facts it has not seen:", "bold"
    )
    console.show(find_hidden(run).display())
    with console.bar("finding missing facts") as advance:
        missing = harmonium.complete(run, top=MISSING, progress=advance)
    console.show(display.missing(f"The most probable facts that {graph.name} lacks, each with its reason", missing))
    console.say("Why is an answer the best one? Candidates in rows, what speaks for them in columns:", "bold")
    if (tableau := build_tableau(opened, run.graph.triple(*TABLEAU))) is not None:
        console.show(tableau)
    console.say("Who is like an entity depends on the fact that it is looked at in (its guises):", "bold")
    for language in ROLES:
        console.show(harmonium.similar(run, "Switzerland", "official language", language, top=5))
    figure = guises_figure(
        opened, [run.graph.triple("Switzerland", "official language", each) for each in ROLES], out / "guises.png"
    )
    console.say(f"run folder: {out}    figure: {figure}", "bold")
    console.say(
        f"Which known facts are wrong? harmonium audit {out} judges each without itself; it takes as long as training."
    )
    console.say(f"next: harmonium complete {out} --only-empty")
