"""Commands that train: train, resume, plan, tune."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.interfaces.cli import console, display, options
from harmonium.interfaces.cli.options import flag, option


def train(
    config: options.ConfigFile = None,
    data: options.Data = None,
    out: Annotated[Path | None, option("RUN", "Run folder to write; default: runs/GRAPH.")] = None,
    settings: options.Settings = None,
    overwrite: options.Overwrite = False,
    init: Annotated[
        Path | None, option("FILE", "Initial vectors by name, .npz or .parquet as written by export.")
    ] = None,
    track: options.Track = None,
    list_settings: Annotated[bool, flag("List every setting with its default, and exit.", "--settings")] = False,
) -> None:
    """Train a model on a graph, evaluate it and write a run folder.

    model.faithfulness is lambda: how closely the token of a fact stays to the
    vector composed of its head, relation and tail. A small lambda lets the
    network reshape the vector; with inf token and composed vector are the same.

    Example: harmonium train --data atlas --set model.composition=distmult --set train.epochs=30 --out runs/mine
    """
    if list_settings:
        from harmonium.runtime.config import describe

        console.table("Settings", ["key", "default", "meaning"], describe())
        return
    overrides = [*(settings or []), *([f"train.initial_vectors={json.dumps(str(init))}"] if init else [])]
    chosen = harmonium.Config.read(config, overrides)
    out = out or Path("runs") / Path(data or chosen.data).name.split(".")[0]
    console.download(data or chosen.data)
    with console.training_bar() as progress:
        run = harmonium.train(chosen, data, out, overwrite=overwrite, progress=progress, track=track or [])
    display.show_trained(run)


def resume(run: options.RunFolder, settings: options.Settings = None, track: options.Track = None) -> None:
    """Continue an interrupted training from its last checkpoint.

    Settings such as train.learning_rate may change. A finished run is only shown.

    Example: harmonium resume runs/mine
    """
    from harmonium.runtime.folders import is_unfinished

    if (run / "run.json").is_file() and not is_unfinished(run) and not settings:
        console.say(f"{run} is already finished")
    with console.training_bar() as progress:
        resumed = harmonium.resume(run, settings or [], progress, track or [])
    display.show_trained(resumed)


def plan(
    config: options.ConfigFile = None,
    data: options.Data = None,
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Estimate the time and memory of a training by running a few of its steps.

    The settings are those of `train`; early stopping can only make it shorter.
    Tables that do not fit in memory are counted, and nothing is run.

    Example: harmonium plan --data atlas --set model.entity_dim=128 --set train.epochs=30
    """
    chosen = harmonium.Config.read(config, settings or [])
    console.download(data or chosen.data)
    with console.bar("timing a few steps"):
        estimate = harmonium.plan(chosen, data)
    console.output(estimate, as_json, display.show_plan)


def tune(
    config: options.ConfigFile = None,
    data: options.Data = None,
    trials: Annotated[int, option("N", "Number of trials, including those in --storage.", min=1)] = 20,
    storage: Annotated[Path | None, option("FILE", "Keep the study; the same command again continues it.")] = None,
    space: Annotated[Path | None, option("FILE.toml", "Search space; default: the usual settings.")] = None,
    settings: options.Settings = None,
    out: Annotated[Path, option("FILE.toml", "File for the best settings.")] = Path("best.toml"),
    as_json: options.AsJson = False,
) -> None:
    """Search for good settings: learning rate, dimensions, faithfulness, ...; bad trials are stopped early.

    What --set gives stays fixed. A search space is TOML like CONFIG.toml, with
    lists of choices or ranges as values:
    train.learning_rate = {low = 0.001, high = 0.1, log = true}

    Example: harmonium tune --data atlas --trials 20 --storage atlas.study --set train.epochs=30

    Then: harmonium train best.toml --out runs/best
    """
    console.download(data or harmonium.Config.read(config, settings or []).data)
    with console.bar("tuning, trials", trials) as progress:
        study = harmonium.tune(config, data, trials, storage, space, settings or [], out, progress)
    console.output(study, as_json, partial(display.show_tuning, out))
