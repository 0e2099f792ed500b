"""Commands that train: train, resume, plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import flag, option
from harmonium.cli.reading import reads_graph
from harmonium.errors import HarmoniumError
from harmonium.runtime import torchrun

if TYPE_CHECKING:
    from harmonium.run.run import Run


@command("Train")
@reads_graph
def train(
    graph_or_config: options.GraphOrConfig = None,
    data: options.Data = None,
    config: options.ConfigFile = None,
    preset: options.Preset = None,
    like: Annotated[Path | None, option("RUN", "Train with the settings of this run; nothing is searched.")] = None,
    minutes: options.Minutes = None,
    out: Annotated[Path | None, option("RUN", "Run folder to write; default: runs/GRAPH.")] = None,
    settings: options.Settings = None,
    overwrite: options.Overwrite = False,
    init: Annotated[
        Path | None, option("FILE", "Initial vectors by name, .npz or .parquet as written by export.")
    ] = None,
    track: options.Track = None,
    list_settings: Annotated[
        bool, flag("List every setting, its allowed values and the one it would have, and exit.", "--settings")
    ] = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Train the best model for a graph that fits a time budget, evaluate it and write a run folder.

    Without settings, short trainings of a few alternatives decide on held-out
    facts; what was tried and chosen is shown and kept in the run. Settings
    given by --set stay fixed. Presets: fast trains once with usual settings,
    plain is ComplEx without harmony, paper is the paper's HHolE.

    Example: harmonium train facts.csv --out runs/mine

    Example: harmonium train atlas --preset plain --set model.entity_dim=64 --set train.epochs=10 --out runs/small
    """
    from harmonium.data.datasets import graph_name
    from harmonium.training.train import read_settings, settings_of_run

    if like is not None:
        if config is not None or preset is not None:
            raise HarmoniumError("give --like RUN or other settings, not both")
        config = settings_of_run(like)
    overrides = [*(settings or []), *([f"train.initial_vectors={json.dumps(str(init))}"] if init else [])]
    data, recipe = options.sources(graph_or_config, data, config, preset)
    chosen = read_settings(recipe, overrides)
    if list_settings:
        display.settings(chosen, str(recipe or "best"), output_format)
        return
    source = data or chosen.data
    out = out or Path("runs") / graph_name(source)
    console.download(source)
    with console.training_bar() as progress:
        run = harmonium.train(
            data, recipe, out, overrides=overrides, overwrite=overwrite, progress=progress, track=track or [],
            minutes=minutes, **reading,
        )  # fmt: skip
    _show(run, output_format)


def _show(run: Run, output_format: str) -> None:
    if torchrun.rank() > 0:  # the main process shows the run, and may have all of its vectors alone
        return

    def show(run: Run) -> None:
        console.show(display.trained(run))

    console.output(run, output_format, show, lambda run: display.run_rows(harmonium.info(run)), harmonium.info)


@command("Train")
def resume(
    run: options.RunFolder,
    settings: options.Settings = None,
    track: options.Track = None,
    output_format: options.Format = "table",
) -> None:
    """Continue an interrupted training from its last checkpoint.

    Settings such as train.learning_rate may change. A finished run is only shown.

    Example: harmonium resume runs/mine
    """
    from harmonium.runtime.folders import is_finished, is_unfinished

    if is_finished(run) and not is_unfinished(run) and not settings and output_format == "table":
        console.say(f"{run} is already finished")
    with console.training_bar() as progress:
        resumed = harmonium.resume(run, settings or [], progress=progress, track=track or [])
    _show(resumed, output_format)


@command("Train")
@reads_graph
def plan(
    graph_or_config: options.GraphOrConfig = None,
    data: options.Data = None,
    config: options.ConfigFile = None,
    preset: options.Preset = None,
    settings: options.Settings = None,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Estimate the time and memory of a training by running a few of its steps.

    The settings are those of `train`; early stopping can only make it shorter.
    Tables that do not fit in memory are counted, and nothing is run.

    Example: harmonium plan atlas --set model.entity_dim=128 --set train.epochs=30
    """
    from harmonium.training.train import read_settings

    data, recipe = options.sources(graph_or_config, data, config, preset)
    console.download(data or read_settings(recipe, settings or []).data)
    with console.bar("timing a few steps"):
        estimate = harmonium.plan(data, recipe, settings or [], **reading)
    console.output(estimate, output_format)
