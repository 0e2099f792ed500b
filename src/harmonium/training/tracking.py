"""Experiment trackers: log metrics to TensorBoard, W&B, MLflow or a CSV file.

A tracker is a context manager, created from its target and the settings, that yields a function to log the values of an
epoch.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from harmonium.config.settings import Config
from harmonium.errors import HarmoniumError
from harmonium.runtime.folders import logger

CSV_HEADER = "epoch,name,value\n"
Values = dict[str, Any]  # by name
LogEpoch = Callable[[int, Values], None]
Log = Callable[[Values], None]  # of a history row


@contextmanager
def log_to_tensorboard(target: str, settings: Values) -> Iterator[LogEpoch]:
    """Event files in a folder."""
    board = _import("tensorboardX", "harmonium[track]")
    with closing(board.SummaryWriter(target or "runs/tensorboard")) as writer:
        writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in settings.items()))

        def log(epoch: int, values: Values) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, epoch)
            writer.flush()

        yield log


@contextmanager
def log_to_wandb(target: str, settings: Values) -> Iterator[LogEpoch]:
    """A run in a Weights & Biases project; WANDB_MODE=offline keeps it on this machine."""
    run = _import("wandb", "wandb").init(project=target or "harmonium", config=settings)
    try:
        yield lambda epoch, values: run.log(values, step=epoch)
    finally:
        run.finish()


@contextmanager
def log_to_mlflow(target: str, settings: Values) -> Iterator[LogEpoch]:
    """A run of the experiment `harmonium`; the target is a tracking URI."""
    mlflow = _import("mlflow", "mlflow")
    if target:
        mlflow.set_tracking_uri(target)
    mlflow.set_experiment("harmonium")
    mlflow.start_run()
    try:
        mlflow.log_params(settings)
        yield lambda epoch, values: mlflow.log_metrics(
            {name.replace("@", "_at_"): value for name, value in values.items()}, step=epoch
        )
    finally:
        mlflow.end_run()


@contextmanager
def log_to_csv(target: str, settings: Values) -> Iterator[LogEpoch]:
    """A file with one line per value: epoch, name, value."""
    path = Path(target or "training.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        file.seek(0)
        header = file.readline(len(CSV_HEADER) + 1)
        if header not in ("", CSV_HEADER):
            raise HarmoniumError(f"--track csv:{path}: exists and was not written by --track; choose another file")
        if not header:
            file.write(CSV_HEADER)

        def log(epoch: int, values: Values) -> None:
            writer.writerows([epoch, name, value] for name, value in values.items())
            file.flush()

        yield log


TRACKERS: dict[str, Callable[[str, Values], AbstractContextManager[LogEpoch]]] = {
    "tensorboard": log_to_tensorboard,
    "wandb": log_to_wandb,
    "mlflow": log_to_mlflow,
    "csv": log_to_csv,
}


def check_targets(targets: Sequence[str], folder: Path) -> None:
    """Refuse files inside the run folder, which is replaced as a whole when training ends."""
    for target in targets:
        name, _, argument = target.partition(":")
        if name != "wandb" and argument and Path(argument).resolve().is_relative_to(folder.resolve()):
            raise HarmoniumError(
                f"--track {target}: lies in the run folder {folder}, which the finished run replaces; "
                "choose another folder"
            )


@contextmanager
def tracking(targets: Sequence[str], config: Config) -> Iterator[Log | None]:
    """Yields a function that logs a history row to all trackers; None if there are none.

    A target is `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI` or `csv:FILE`; the part after the colon is optional.
    """
    for target in targets:
        name = target.partition(":")[0]
        if name not in TRACKERS:
            raise HarmoniumError(f"--track {name}: unknown tracker; choose from {', '.join(TRACKERS)}")
    with ExitStack() as stack:
        loggers = {target: _start(target, config, stack) for target in targets}

        def log(row: Values) -> None:
            values = _flatten(row, "/")
            epoch = values.pop("epoch")
            for target, log_epoch in tuple(loggers.items()):
                try:
                    log_epoch(epoch, values)
                except Exception as error:  # such as a lost server: training must go on
                    del loggers[target]
                    logger.warning("--track %s stopped logging: %s", target, error)

        yield log if loggers else None


def _start(target: str, config: Config, stack: ExitStack) -> LogEpoch:
    name, _, argument = target.partition(":")
    try:
        return stack.enter_context(TRACKERS[name](argument, _flatten(asdict(config), ".")))
    except HarmoniumError:
        raise
    except Exception as error:  # libraries raise any type: no folder, no network, no account
        raise HarmoniumError(f"--track {target}: cannot be used ({error})") from error


def _flatten(tree: Values, separator: str) -> Values:
    """Flatten nested values: a value of a group is named GROUP.NAME or GROUP/NAME."""
    values: Values = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            values |= {f"{name}{separator}{key}": each for key, each in value.items()}
        else:
            values[name] = value
    return values


def _import(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise HarmoniumError(f"--track needs the package {module} ({error}): pip install '{package}'") from error
