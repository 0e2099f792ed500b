"""Follow a training elsewhere: TensorBoard, W&B, MLflow or a CSV file, each behind `log` and `close`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from harmonium.config import Config
from harmonium.errors import HarmoniumError
from harmonium.folder import logger


class TensorBoard:
    """Event files in a folder."""

    def __init__(self, target: str, settings: dict[str, Any]) -> None:
        self.writer = _need("tensorboardX", "harmonium[track]").SummaryWriter(target or "runs/tensorboard")
        self.writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in settings.items()))

    def log(self, epoch: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run in a project of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, target: str, settings: dict[str, Any]) -> None:
        self.run = _need("wandb", "wandb").init(project=target or "harmonium", config=settings)

    def log(self, epoch: int, values: dict[str, float]) -> None:
        self.run.log(values, step=epoch)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run of the experiment `harmonium`; the target is a tracking URI."""

    def __init__(self, target: str, settings: dict[str, Any]) -> None:
        self.mlflow = _need("mlflow", "mlflow")
        if target:
            self.mlflow.set_tracking_uri(target)
        self.mlflow.set_experiment("harmonium")
        self.mlflow.start_run()
        self.mlflow.log_params(settings)

    def log(self, epoch: int, values: dict[str, float]) -> None:
        self.mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in values.items()}, step=epoch)

    def close(self) -> None:
        self.mlflow.end_run()


class CSV:
    """One line for each value, so that a spreadsheet can plot it: epoch, name, value."""

    def __init__(self, target: str, settings: dict[str, Any]) -> None:
        path = Path(target or "training.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a", encoding="utf-8", newline="")
        self.writer = csv.writer(self.file, lineterminator="\n")
        if not self.file.tell():
            self.writer.writerow(["epoch", "name", "value"])

    def log(self, epoch: int, values: dict[str, float]) -> None:
        self.writer.writerows([epoch, name, value] for name, value in values.items())
        self.file.flush()

    def close(self) -> None:
        self.file.close()


TRACKERS = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow, "csv": CSV}
Log = Callable[[dict[str, Any]], None]


@contextmanager
def tracking(targets: Sequence[str], config: Config) -> Iterator[Log | None]:
    """What `fit` calls with the row of each validation (and `train` with the final metrics); None when nobody listens.

    A target is `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI` or `csv:FILE`; what follows the colon may be left out.
    """
    parts = [target.partition(":") for target in targets]
    for name, _, _ in parts:
        if name not in TRACKERS:
            raise HarmoniumError(
                f"--track {name}: there are {', '.join(TRACKERS)}, such as tensorboard:runs/tensorboard"
            )
    with ExitStack() as stack:
        trackers = []
        for name, _, place in parts:
            try:
                trackers.append(TRACKERS[name](place, _settings(config)))
            except HarmoniumError:
                raise
            except Exception as error:  # theirs, of any kind: no folder, no network, no account
                raise HarmoniumError(f"--track {name}:{place}: cannot be used ({error})") from error
            stack.callback(trackers[-1].close)

        def log(row: dict[str, Any]) -> None:
            values = {k: v for k, v in row.items() if k != "epoch" and not isinstance(v, dict)}
            for part, metrics in row.items():
                values |= {f"{part}/{k}": v for k, v in metrics.items()} if isinstance(metrics, dict) else {}
            for tracker in tuple(trackers):
                try:
                    tracker.log(row["epoch"], values)
                except Exception as error:  # such as a server that went away: training is worth more
                    trackers.remove(tracker)
                    logger.warning("%s follows no more: %s", type(tracker).__name__, error)

        yield log if parts else None


def _settings(config: Config) -> dict[str, Any]:
    """All settings, flat."""
    groups = {name: vars(getattr(config, name)) for name in ("model", "train", "evaluate")}
    return {"data": config.data} | {f"{name}.{k}": v for name, group in groups.items() for k, v in group.items()}


def _need(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise HarmoniumError(f"--track needs the package {module} ({error}): pip install '{package}'") from error
