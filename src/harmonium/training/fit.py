"""fit(): the training loop, on one screen."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import zip_longest
from typing import Any

import torch

from harmonium.config.settings import Config, EvaluateConfig, TrainConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.errors import out_of_memory_error
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.metrics import decisive
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.checkpoint import Checkpoints
from harmonium.run.run import History
from harmonium.runtime.device import pick_device, use_threads
from harmonium.runtime.distributed import agreed
from harmonium.training.relative_weights import relative_weights
from harmonium.training.state import Progress, TrainingState


def fit(
    model: GradientGraph,
    graph: Graph,
    config: Config,
    progress: Callable[[Progress], None] | None = None,
    on_validation: Callable[[dict[str, Any]], None] | None = None,
    checkpoints: Checkpoints | None = None,
    most_seconds: float | None = None,
) -> History:
    """Train for all epochs, or until the validation metric stops improving; the model becomes the best one seen.

    `progress` is called after every step, `on_validation` with the history row of every validation. With `checkpoints`
    training resumes from the last one, saves more, and saves one at Ctrl-C; without, Ctrl-C ends training. The first epoch
    that ends after `most_seconds` is the last one.
    """
    settings, device = config.train, pick_device(checkpoints.device if checkpoints else config.train.device)
    if settings.threads:
        use_threads(settings.threads)
    model.move_to(device, settings.entity_storage)
    state = TrainingState(model, relative_weights(graph.split("train"), settings.weight_power).to(device), settings)
    validation = validation_sample(graph, settings)
    if checkpoints:
        checkpoints.restore(state)
    state.history.backend = state.training_step.backend()
    try:
        with checkpoints.stop_signal.caught() if checkpoints else nullcontext():
            while not state.finished:
                batches = state.batches()
                for index, next_index in zip_longest(batches, batches[1:]):
                    state.end_step(state.training_step(index, next_index), len(index))
                    if progress:
                        progress(state.progress())
                    if checkpoints:
                        checkpoints.after_step(state)
                row = state.end_epoch()
                if most_seconds is not None and agreed(model.world, state.seconds > most_seconds):
                    state.end_early()
                if validation is not None and state.is_validation_due():
                    row["valid"] = validate(model, graph, validation, device)
                    row["seconds"] = state.seconds
                    if on_validation:
                        on_validation(row)
                    state.judge(decisive(row["valid"], settings.metric))
                state.next_epoch()
            if checkpoints:
                checkpoints.after_last_step(state)
    except KeyboardInterrupt:
        if checkpoints or model.world is not None:
            raise
        state.history.stopped = f"interrupted in epoch {state.epoch}"
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]  # W is no longer finite
        raise state.diverged("the loss became nan") from error
    except (MemoryError, RuntimeError) as error:
        raise out_of_memory_error(error, "lower train.batch_size, train.negatives or model.entity_dim") from error
    state.restore_best()
    return state.history


def validate(model: GradientGraph, graph: Graph, triples: Triples, device: torch.device) -> dict[str, float]:
    """Filtered metrics of held-out triples; all entities are candidates, ties are realistic."""
    return evaluate_scorer(model, graph, EvaluateConfig(split="valid"), triples, device=device).metrics


def validation_sample(graph: Graph, settings: TrainConfig) -> Triples | None:
    """The validation triples, or a seeded sample if there are too many; None if there are none."""
    count = len(graph.valid)
    if count <= settings.validation_triples:
        return graph.valid if count else None
    order = torch.randperm(count, generator=torch.Generator().manual_seed(settings.seed))
    return graph.valid[order[: settings.validation_triples]]
