"""fit(): the training loop, on one screen."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from harmonium import tensor_file
from harmonium.checkpoint import Checkpoints
from harmonium.composition import find_composition
from harmonium.config import Config, EvaluateConfig, ModelConfig, TrainConfig
from harmonium.distributed import World
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate, no_memory
from harmonium.graph import Graph, Triples
from harmonium.harmony import Harmony, Sum
from harmonium.model import GradientGraph
from harmonium.stepping import Stepper


@dataclass
class History:
    """What happened: one row per epoch, and why training ended."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = "all epochs done"
    way: str = ""  # how scores were computed, and why no faster

    @property
    def seconds(self) -> float:
        return self.rows[-1]["seconds"] if self.rows else 0.0


@dataclass(frozen=True)
class Progress:
    """Where training stands, for whoever watches."""

    step: int
    steps: int
    epoch: int
    loss: float
    metric: str
    best: float
    way: str


def build_model(
    config: ModelConfig, n_entities: int, n_relations: int, seed: int | None = 0, world: World | None = None
) -> GradientGraph:
    """The model that the settings describe, initialised (without a seed: not yet); in a world, this process's rows."""
    composition = find_composition(config.composition)
    relation_dim = config.relation_dim or composition.relation_dim(config.entity_dim)
    dim = composition.dim(config.entity_dim, relation_dim)
    if config.harmony:
        form = Harmony(dim, config.faithfulness, config.constraint, config.cap, config.rank, config.dropout)
    else:
        form = Sum(dim, learn_scale=config.initialisation == "calibrated" and config.normalise)
    model = GradientGraph(
        composition, n_entities, n_relations, config.entity_dim, form, relation_dim, config.normalise,
        config.reciprocal, world, getattr(torch, config.entity_dtype),
    )  # fmt: skip
    return model if seed is None else model.initialise(config.initialisation, torch.Generator().manual_seed(seed))


def fit(
    model: GradientGraph,
    graph: Graph,
    config: Config,
    watch: Callable[[Progress], None] | None = None,
    on_validation: Callable[[dict[str, Any]], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Train until the epochs are done or the validation metric has stopped improving; the best model is kept.

    `watch` sees every step, `on_validation` the history row of every validation. With `checkpoints` training goes on
    from the last one and saves more; Ctrl-C saves one. Without, Ctrl-C ends training and keeps what was best so far.
    """
    settings, device = config.train, pick_device(checkpoints.device if checkpoints else config.train.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    model.place(device, settings.table)
    train, held_out = graph.split("train").to(device), _validation_sample(graph, settings)
    at = Training(model, train, settings)
    history, steps_per_epoch = at.history, math.ceil(len(train) / settings.batch_size)
    if checkpoints:
        checkpoints.restore(at)
    history.way = at.take_step.way()
    try:
        with checkpoints.stoppable() if checkpoints else nullcontext():
            while not at.ended:
                batches = at.batches()
                for index, following in zip_longest(batches, batches[1:]):
                    at.move(index, following)
                    if watch:
                        last = history.rows[-1]["loss"] if history.rows else math.nan
                        total = settings.epochs * steps_per_epoch
                        watch(Progress(at.steps, total, at.epoch, last, settings.metric, at.best, history.way))
                    if checkpoints:
                        checkpoints.after_step(at)
                at.check()
                row = {"epoch": at.epoch, "loss": at.loss.item() / len(train), "seconds": at.seconds}
                history.rows.append(row)
                if held_out is not None and (at.epoch % settings.evaluate_every == 0 or at.epoch >= settings.epochs):
                    row["valid"] = validate(model, graph, held_out, device)
                    row["seconds"] = at.seconds
                    if on_validation:
                        on_validation(row)
                    at.judge(row["valid"][settings.metric])
                at.next_epoch()
            if checkpoints:
                checkpoints.last(at)
    except KeyboardInterrupt:
        if checkpoints or model.world is not None:
            raise
        history.stopped = f"interrupted in epoch {len(history.rows) + 1}"
    except torch.linalg.LinAlgError as error:  # W is no longer made of numbers
        raise at.broken("the loss became nan") from error
    except (MemoryError, RuntimeError) as error:
        raise no_memory(error, "lower train.batch_size or train.negatives, or model.entity_dim") from error
    if at.best_state is not None:
        model.load_state_dict(at.best_state)
    else:
        history.best_epoch = len(history.rows)
    return history


class Training:
    """Where training stands between two steps: all that it takes to go on."""

    def __init__(self, model: GradientGraph, train: Triples, settings: TrainConfig) -> None:
        device = train.head.device
        self.model, self.train, self.settings = model, train, settings
        self.generator = torch.Generator(device).manual_seed(settings.seed)
        self.take_step = Stepper(model, train, settings, self.generator)
        self.epoch, self.step, self.ended = 1, 0, False  # step: how many of this epoch are done
        self.loss = torch.zeros((), device=device)  # of this epoch, summed over its triples
        self.began = self.generator.get_state()  # of this epoch: its order can be drawn again
        self.rows = model.n_entities
        self.history, self.best, self.best_state = History(), -math.inf, None
        self.started = time.perf_counter()

    @property
    def steps(self) -> int:
        return self.take_step.done

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def batches(self) -> Sequence[Tensor]:
        """What is left of this epoch, as places of training triples (b,)."""
        now = self.generator.get_state()
        if self.step:
            self.generator.set_state(self.began)
        else:
            self.began = now
        order = torch.randperm(len(self.train), generator=self.generator, device=self.train.head.device)
        if self.step:
            self.generator.set_state(now)
        return self.take_step.begin_epoch(order).split(self.settings.batch_size)[self.step :]

    def move(self, index: Tensor, following: Tensor | None = None) -> None:
        """One step; `following` is the index of the one after it, if there will be."""
        self.loss += self.take_step(index, following) * len(index)
        self.step += 1

    def judge(self, value: float) -> None:
        """Keep the best model; end when it has been the best for too long."""
        settings, history = self.settings, self.history
        if value > self.best:
            self.best, history.best_epoch = value, self.epoch
            self.best_state = None  # its memory is used again
            self.best_state = tensor_file.set_aside(self.model.state_dict())
        elif self.epoch - history.best_epoch >= settings.patience * settings.evaluate_every:
            history.stopped, self.ended = f"no better {settings.metric} since epoch {history.best_epoch}", True

    def next_epoch(self) -> None:
        self.ended = self.ended or self.epoch >= self.settings.epochs
        self.epoch, self.step, self.loss = self.epoch + 1, 0, torch.zeros_like(self.loss)

    def check(self) -> None:
        """Everything is still made of numbers, and W within its constraint."""
        if not math.isfinite(loss := self.loss.item()):
            raise self.broken(f"the loss became {loss}")
        infinite = not all(torch.stack(p.aminmax()).isfinite().all() for p in self.model.parameters() if p.numel())
        if infinite if self.model.world is None else self.model.world.any([infinite])[0]:
            raise self.broken("parameters became infinite")
        if isinstance(form := self.model.form, Harmony):
            norm, room = form.norm(), min(0.01 * form.cap, (form.faithfulness - form.cap) / 2)
            if not norm <= form.cap + room or (norm == 0 and form.free.any()):  # too large to square, it vanishes
                raise self.broken(
                    f"W left its constraint (its {form.constraint} norm is {norm:.3g}, the cap {form.cap:g})"
                )

    def broken(self, what: str) -> HarmoniumError:
        return HarmoniumError(
            f"{what} in epoch {self.epoch}; lower train.learning_rate ({self.settings.learning_rate})"
        )

    @property
    def dealt(self) -> set[str]:
        """The tensors of `pack` with a row for each entity."""
        states = {f"optimiser.{name}" for name in self.take_step.dealt}
        return {"model.entity", *states} | ({"best.entity"} if self.best_state is not None else set())

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and facts that JSON can hold; only while all is sound."""
        self.check()
        self.take_step.settle()
        parts = {
            "model": self.model.state_dict(),
            "best": self.best_state or {},
            "optimiser": self.take_step.state_dict(),
        }
        tensors = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        tensors |= {"generator": self.generator.get_state(), "began": self.began, "loss": self.loss}
        facts = {name: getattr(self, name) for name in ("epoch", "step", "ended", "seconds")}
        best = self.best if self.best_state is not None else None
        return tensors, facts | {"best": best, "history": dataclasses.asdict(self.history)}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Stand where `pack` was called."""
        if facts["epoch"] > self.settings.epochs and not facts["ended"]:
            now = f"training is in epoch {facts['epoch']} already"
            raise HarmoniumError(
                f"{now}, so train.epochs={self.settings.epochs} is too few; say --set train.epochs=MORE"
            )
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            if rest:
                parts[part][rest] = value
        self.model.load_state_dict(parts["model"])
        self.take_step.load_state_dict(parts["optimiser"])
        self.generator.set_state(tensors["generator"])
        self.began, self.loss = tensors["began"], tensors["loss"].to(self.loss.device)
        self.epoch, self.step, self.ended, self.take_step.done = (facts[k] for k in ("epoch", "step", "ended", "steps"))
        for name, value in facts["history"].items():
            setattr(self.history, name, value)
        if parts["best"]:
            self.best, self.best_state = facts["best"], parts["best"]
        self.started = time.perf_counter() - facts["seconds"]


def validate(model: GradientGraph, graph: Graph, triples: Triples, device: torch.device | str) -> dict[str, float]:
    """Filtered metrics of held-out triples, full candidates, realistic ties."""
    return evaluate(model, graph, EvaluateConfig(split="valid"), triples, device=device).metrics


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # there, and able to compute
    except (RuntimeError, AssertionError) as error:
        raise HarmoniumError(f"train.device '{name}' cannot be used here ({str(error).splitlines()[0]})") from error
    return device


def _validation_sample(graph: Graph, settings: TrainConfig) -> Triples | None:
    count = len(graph.valid)
    if count <= settings.validation_triples:
        return graph.valid if count else None
    chosen = torch.randperm(count, generator=torch.Generator().manual_seed(settings.seed))[
        : settings.validation_triples
    ]
    return graph.valid[chosen]
