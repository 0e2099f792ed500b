"""fit(): the training loop, on one screen."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harmonium.composition import find_composition
from harmonium.config import Config, EvaluateConfig, ModelConfig, TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate
from harmonium.graph import Graph, Triples
from harmonium.harmony import Harmony, Sum
from harmonium.model import GradientGraph
from harmonium.objective import full_softmax, n3, sampled_softmax


@dataclass
class History:
    """What happened: one row per epoch, and why training ended."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = "all epochs done"

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


def build_model(config: ModelConfig, n_entities: int, n_relations: int, seed: int = 0) -> GradientGraph:
    """The model that the settings describe, initialised."""
    composition = find_composition(config.composition)
    relation_dim = config.relation_dim or composition.relation_dim(config.entity_dim)
    dim = composition.dim(config.entity_dim, relation_dim)
    if config.harmony:
        form = Harmony(dim, config.faithfulness, config.constraint, config.cap, config.rank)
    else:
        form = Sum(dim, learn_scale=config.initialisation == "calibrated" and config.normalise)
    model = GradientGraph(
        composition, n_entities, n_relations, config.entity_dim, form, relation_dim, config.normalise, config.reciprocal
    )
    return model.initialise(config.initialisation, torch.Generator().manual_seed(seed))


def fit(
    model: GradientGraph,
    graph: Graph,
    config: Config,
    watch: Callable[[Progress], None] | None = None,
) -> History:
    """Train until the epochs are done or the validation metric has stopped improving; the best model is kept.

    Ctrl-C ends training early and keeps what was best so far.
    """
    settings, device = config.train, pick_device(config.train.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    model.to(device)
    train, generator = graph.split("train").to(device), torch.Generator(device).manual_seed(settings.seed)
    held_out = _validation_sample(graph, settings)
    optimizer = _optimizer(model, settings)
    steps_per_epoch = math.ceil(len(train) / settings.batch_size)
    history, best, best_state, started = History(), -math.inf, None, time.perf_counter()
    try:
        for epoch in range(1, settings.epochs + 1):
            total = torch.zeros((), device=device)
            order = torch.randperm(len(train), generator=generator, device=device)
            for step, index in enumerate(order.split(settings.batch_size), start=1):
                loss = step_loss(model, train[index], settings, generator)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(index)
                if watch:
                    done = (epoch - 1) * steps_per_epoch + step
                    last = history.rows[-1]["loss"] if history.rows else math.nan
                    watch(Progress(done, settings.epochs * steps_per_epoch, epoch, last, settings.metric, best))
            row = {"epoch": epoch, "loss": total.item() / len(train), "seconds": time.perf_counter() - started}
            if not math.isfinite(row["loss"]):
                raise HarmoniumError(
                    f"the loss became {row['loss']} in epoch {epoch}; lower train.learning_rate ({settings.learning_rate})"
                )
            history.rows.append(row)
            if held_out is not None and (epoch % settings.evaluate_every == 0 or epoch == settings.epochs):
                row["valid"] = validate(model, graph, held_out, device)
                if row["valid"][settings.metric] > best:
                    best, history.best_epoch = row["valid"][settings.metric], epoch
                    best_state = copy.deepcopy(model.state_dict())
                elif epoch - history.best_epoch >= settings.patience * settings.evaluate_every:
                    history.stopped = f"no better {settings.metric} since epoch {history.best_epoch}"
                    break
    except KeyboardInterrupt:
        history.stopped = f"interrupted in epoch {len(history.rows) + 1}"
    if best_state is not None:
        model.load_state_dict(best_state)
    else:
        history.best_epoch = len(history.rows)
    return history


def step_loss(model: GradientGraph, batch: Triples, settings: TrainConfig, generator: torch.Generator) -> Tensor:
    """What one step minimises."""
    if settings.loss == "full":
        loss = full_softmax(model, batch)
    else:
        loss = sampled_softmax(model, batch, settings.negatives, generator)
    return loss + settings.n3 * n3(model, batch) if settings.n3 else loss


def validate(model: GradientGraph, graph: Graph, triples: Triples, device: torch.device | str) -> dict[str, float]:
    """Filtered metrics of held-out triples, full candidates, realistic ties."""
    return evaluate(model, graph, EvaluateConfig(split="valid"), triples, device=device).metrics


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
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


def _optimizer(model: GradientGraph, settings: TrainConfig) -> torch.optim.Optimizer:
    kinds = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad}
    return kinds[settings.optimizer]([p for p in model.parameters() if p.requires_grad], lr=settings.learning_rate)
