"""TrainingState: everything needed to resume training after any step; it can be saved and restored."""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.run.run import History, read_rows
from harmonium.runtime import schema, tensor_file
from harmonium.training.step import TrainingStep, with_prefix


@dataclass(frozen=True)
class Progress:
    """Progress of a stage of training, for progress bars: in steps of epochs, or in `unit`, such as facts."""

    step: int
    steps: int
    epoch: int = 0
    loss: float = math.nan  # of the last epoch; nan in the first
    metric: str = ""
    best: float = -math.inf
    backend: str = ""
    stage: str = "training"
    unit: str = ""

    @property
    def state(self) -> str:
        """The progress as text: units done; or the epoch, the loss, and the best metric of the final training."""
        if self.unit:
            return f"{self.step:,} of {self.steps:,} {self.unit}"
        texts = [f"epoch {self.epoch}"]
        if not math.isnan(self.loss):
            texts.append(f"loss {self.loss:.3f}")
        if self.stage == "training":
            texts.append(f"best {self.metric} {self.best:.3f}" if self.best > -math.inf else "not validated yet")
        return ", ".join(texts)


class TrainingState:
    """The state between two steps: model, optimiser, generator, epoch, history and the best model so far."""

    def __init__(self, model: GradientGraph, train: Triples, settings: TrainConfig) -> None:
        device = train.head.device
        self.model, self.train, self.settings = model, train, settings
        self.generator = torch.Generator(device).manual_seed(settings.seed)
        self.training_step = TrainingStep(model, train, settings, self.generator)
        self.epoch, self.steps_in_epoch, self.finished = 1, 0, False
        self.epoch_loss = torch.zeros((), device=device)  # summed over the batches of the epoch so far
        self.epoch_generator = self.generator.get_state()  # at the start of the epoch, to reproduce its order
        self.history, self.best = History(), -math.inf
        self.best_model: dict[str, Tensor] | None = None
        self.started = time.perf_counter()

    @property
    def steps(self) -> int:
        """Number of steps done."""
        return self.training_step.steps_done

    @property
    def seconds(self) -> float:
        """Time spent on training, including sessions before an interruption."""
        return time.perf_counter() - self.started

    @property
    def n_entities(self) -> int:
        return self.model.n_entities

    def progress(self) -> Progress:
        rows, step = self.history.rows, self.training_step
        loss = rows[-1]["loss"] if rows else math.nan
        return Progress(
            step.steps_done, step.n_steps, self.epoch, loss, self.settings.metric, self.best, self.history.backend
        )

    def batches(self) -> Sequence[Tensor]:
        """The remaining batches of this epoch (`TrainingStep.epoch_batches`)."""
        state = self.generator.get_state()
        if self.steps_in_epoch:
            self.generator.set_state(self.epoch_generator)
        else:
            self.epoch_generator = state
        batches = self.training_step.epoch_batches(self.generator)
        if self.steps_in_epoch:
            self.generator.set_state(state)
        return batches[self.steps_in_epoch :]

    def end_step(self, loss: Tensor, size: int) -> None:
        """Count a step: its batch size and its loss."""
        self.epoch_loss += loss * size
        self.steps_in_epoch += 1

    def end_epoch(self) -> dict[str, Any]:
        """Check that training has not diverged, and add a row to the history."""
        self.check()
        row = {
            "epoch": self.epoch,
            "loss": self.epoch_loss.item() / self.training_step.epoch_size,
            "seconds": self.seconds,
        }
        self.history.rows.append(row)
        return row

    def is_validation_due(self) -> bool:
        is_last = self.finished or self.epoch >= self.settings.epochs
        return is_last or self.epoch % self.settings.evaluate_every == 0

    def end_early(self) -> None:
        """Make this epoch the last one, as training takes twice its time; a quiet machine would have had time for all."""
        if self.epoch < self.settings.epochs:
            reason = f"twice its share of the time budget had passed after epoch {self.epoch} of {self.settings.epochs}"
            self.history.stopped, self.finished = reason, True

    def judge(self, value: float) -> None:
        """Keep the model if its validation metric is the best so far; finish when patience is exhausted."""
        settings, history = self.settings, self.history
        if value > self.best:
            self.best, history.best_epoch = value, self.epoch
            self.best_model = None  # frees its memory for the new one
            self.best_model = tensor_file.set_aside(self.model.state_dict())
        elif self.epoch - history.best_epoch >= settings.patience * settings.evaluate_every:
            history.stopped, self.finished = f"no better {settings.metric} since epoch {history.best_epoch}", True

    def next_epoch(self) -> None:
        self.finished = self.finished or self.epoch >= self.settings.epochs
        self.epoch, self.steps_in_epoch, self.epoch_loss = self.epoch + 1, 0, torch.zeros_like(self.epoch_loss)

    def restore_best(self) -> None:
        """Restore the best parameters of the model; without validation, keep the last ones."""
        if self.best_model is not None:
            self.model.load_state_dict(self.best_model)
        else:
            self.history.best_epoch = len(self.history.rows)

    def check(self) -> None:
        """Raise an error unless loss and parameters are finite and W is within its constraint."""
        loss = self.epoch_loss.item()
        if not math.isfinite(loss):
            raise self.diverged(f"the loss became {loss}")
        is_infinite = not all(torch.stack(p.aminmax()).isfinite().all() for p in self.model.parameters() if p.numel())
        if self.model.world is not None:
            is_infinite = self.model.world.any([is_infinite])[0]
        if is_infinite:
            raise self.diverged("parameters became infinite")
        form = self.model.form
        if isinstance(form, Harmony):
            norm = form.norm()
            tolerance = min(0.01 * form.cap, (form.faithfulness - form.cap) / 2)
            vanished = norm == 0 and bool(form.free.any())  # its square overflowed
            if not norm <= form.cap + tolerance or vanished:
                raise self.diverged(f"the {form.constraint} norm of W became {norm:.3g}, with cap {form.cap:g}")

    def diverged(self, symptom: str) -> HarmoniumError:
        rate = self.settings.learning_rate
        return HarmoniumError(f"{symptom} in epoch {self.epoch}; lower train.learning_rate ({rate})")

    @property
    def sharded(self) -> set[str]:
        """The names in `state_dict` of tensors with one row per entity, which are sharded over processes."""
        names = {"model.entity"} | {f"optimiser.{name}" for name in self.training_step.sharded}
        return names | ({"best.entity"} if self.best_model is not None else set())

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and JSON values; an error if training has diverged."""
        self.check()
        self.training_step.discard_sample_ahead()
        tensors = {
            "generator": self.generator.get_state(),
            "epoch_generator": self.epoch_generator,
            "epoch_loss": self.epoch_loss,
        }
        tensors |= {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in (self.best_model or {}).items()}
        tensors |= {f"optimiser.{name}": value for name, value in self.training_step.state_dict().items()}
        values = {
            "epoch": self.epoch,
            "steps_in_epoch": self.steps_in_epoch,
            "finished": self.finished,
            "seconds": self.seconds,
            "best": self.best if self.best_model is not None else None,
            "history": dataclasses.asdict(self.history),
        }
        return tensors, values

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue where `state_dict` was called; `values` also has the number of steps done."""
        position = schema.read(_Position, values)
        if position.epoch > self.settings.epochs and not position.finished:
            raise HarmoniumError(
                f"train.epochs={self.settings.epochs} is too few: training has reached epoch {position.epoch}; "
                "use --set train.epochs=MORE"
            )
        self.model.load_state_dict(with_prefix(tensors, "model."))
        self.training_step.load_state_dict(with_prefix(tensors, "optimiser."))
        self.training_step.steps_done = position.steps
        self.generator.set_state(tensors["generator"])
        self.epoch_generator = tensors["epoch_generator"]
        self.epoch_loss = tensors["epoch_loss"].to(self.epoch_loss.device)
        self.epoch, self.steps_in_epoch, self.finished = position.epoch, position.steps_in_epoch, position.finished
        self.history = dataclasses.replace(position.history, rows=read_rows(position.history.rows))
        if position.best is not None:
            self.best, self.best_model = position.best, with_prefix(tensors, "best.")
        self.started = time.perf_counter() - position.seconds


@dataclass(frozen=True)
class _Position:
    """The JSON values of a checkpoint."""

    steps: schema.Count
    epoch: schema.Count
    steps_in_epoch: schema.Count
    finished: bool
    seconds: schema.NonNegative
    best: float | None
    history: History
