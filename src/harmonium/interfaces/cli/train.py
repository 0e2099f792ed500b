"""Commands that train: train, resume, plan, tune."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import harmonium
from harmonium.interfaces.cli import console, options
from harmonium.interfaces.cli.display.training import show_plan, show_trained, show_tuning
from harmonium.interfaces.cli.options import flag, option


def train(
    config: options.ConfigFile = None,
    data: options.Data = None,
    preset: options.Preset = None,
    minutes: options.Minutes = None,
    out: Annotated[Path | None, option("RUN", "Run folder to write; default: runs/GRAPH.")] = None,
    settings: options.Settings = None,
    overwrite: options.Overwrite = False,
    init: Annotated[
        Path | None, option("FILE", "Initial vectors by name, .npz or .parquet as written by export.")
    ] = None,
    track: options.Track = None,
    list_settings: Annotated[bool, flag("List every setting with its default, and exit.", "--settings")] = False,
) -> None:
    """Train the best model for a graph that fits a time budget, evaluate it and write a run folder.

    Without settings, short trainings of a few alternatives decide on held-out
    facts; what was tried and chosen is shown and kept in the run. Settings
    given by --set stay fixed. Presets: fast trains once with usual settings,
    plain is ComplEx without harmony, paper is the paper's HHolE.

    Example: harmonium train --data facts.csv --out runs/mine

    Example: harmonium train --data atlas --preset plain --set model.entity_dim=64 --set train.epochs=10 --out runs/small
    """
    from harmonium.runtime.config import describe
    from harmonium.training.train import read_settings

    if list_settings:
        console.table("Settings", ["key", "without a preset", "meaning"], describe())
        return
    overrides = [*(settings or []), *([f"train.initial_vectors={json.dumps(str(init))}"] if init else [])]
    recipe = options.recipe(config, preset)
    chosen = read_settings(recipe, overrides)
    out = out or Path("runs") / Path(data or chosen.data).name.split(".")[0]
    console.download(data or chosen.data)
    with console.training_bar() as progress:
        run = harmonium.train(data, recipe, out, overrides, overwrite, progress, track or [], minutes)
    show_trained(run)


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
    show_trained(resumed)


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
    from harmonium.training.train import read_settings

    console.download(data or read_settings(config, settings or []).data)
    with console.bar("timing a few steps"):
        estimate = harmonium.plan(data, config, settings or [])
    console.output(estimate, as_json, show_plan)


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
    from harmonium.training.train import read_settings

    console.download(data or read_settings(config, settings or []).data)
    with console.bar("tuning, trials", trials) as progress:
        study = harmonium.tune(data, config, trials, storage, space, settings or [], out, progress)
    console.output(study, as_json, partial(show_tuning, out))
