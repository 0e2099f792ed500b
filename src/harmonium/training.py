"""fit(): the training loop, on one screen."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harmonium.checkpoint import Checkpoints
from harmonium.composition import find_composition
from harmonium.config import Config, EvaluateConfig, ModelConfig, TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate, no_memory
from harmonium.graph import Graph, Slot, Triples
from harmonium.harmony import Harmony, Sum
from harmonium.kernels.fused import keep_freed_memory, matmul_precision
from harmonium.kernels.gpu import runs
from harmonium.model import GradientGraph, Snapshot
from harmonium.objective import CONTRASTIVE, TypeHead, contrast, draw_negatives, full_softmax, n3, relation_softmax
from harmonium.optimiser import Adagrad, RowAdagrad, RowAdam


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
        form = Harmony(dim, config.faithfulness, config.constraint, config.cap, config.rank, config.dropout)
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
    model.to(device)
    train, held_out = graph.split("train").to(device), _validation_sample(graph, settings)
    at = Training(model, train, settings)
    history, steps_per_epoch = at.history, math.ceil(len(train) / settings.batch_size)
    if checkpoints:
        checkpoints.restore(at)
    try:
        with checkpoints.stoppable() if checkpoints else nullcontext():
            while not at.ended:
                for index in at.batches():
                    at.move(index)
                    if watch:
                        last = history.rows[-1]["loss"] if history.rows else math.nan
                        total = settings.epochs * steps_per_epoch
                        watch(Progress(at.steps, total, at.epoch, last, settings.metric, at.best))
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
        if checkpoints:
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

    def move(self, index: Tensor) -> None:
        """One step."""
        self.loss += self.take_step(index) * len(index)
        self.step += 1

    def judge(self, value: float) -> None:
        """Keep the best model; end when it has been the best for too long."""
        settings, history = self.settings, self.history
        if value > self.best:
            self.best, history.best_epoch = value, self.epoch
            self.best_state = copy.deepcopy(self.model.state_dict())
        elif self.epoch - history.best_epoch >= settings.patience * settings.evaluate_every:
            history.stopped, self.ended = f"no better {settings.metric} since epoch {history.best_epoch}", True

    def next_epoch(self) -> None:
        self.ended = self.ended or self.epoch >= self.settings.epochs
        self.epoch, self.step, self.loss = self.epoch + 1, 0, torch.zeros_like(self.loss)

    def check(self) -> None:
        """Everything is still made of numbers, and W within its constraint."""
        if not math.isfinite(loss := self.loss.item()):
            raise self.broken(f"the loss became {loss}")
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            raise self.broken("parameters became infinite")
        if isinstance(form := self.model.form, Harmony):
            norm = norm_of_w(form)
            if not norm <= 1.01 * form.cap or (norm == 0 and form.free.any()):  # too large to square, it vanishes
                raise self.broken(
                    f"W left its constraint (its {form.constraint} norm is {norm:.3g}, the cap {form.cap:g})"
                )

    def broken(self, what: str) -> HarmoniumError:
        return HarmoniumError(
            f"{what} in epoch {self.epoch}; lower train.learning_rate ({self.settings.learning_rate})"
        )

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and facts that JSON can hold; only while all is sound."""
        self.check()
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


def norm_of_w(form: Harmony) -> float:
    """The norm of W that the constraint limits, in float64."""
    core, basis = form.core().detach().double(), form.basis
    if basis is not None:
        small = torch.linalg.qr(basis.detach().double()).R
        core = small @ core @ small.T
    return torch.linalg.matrix_norm(core, ord="fro" if form.constraint == "frobenius" else 2).item()


class Stepper:
    """One step of training: draw negatives, score, and move the parameters.

    Entities are moved row by row when a step uses less than half of them (`touched_rows`), all at once otherwise.
    On a GPU whole batches are replayed as a CUDA graph, captured after a few ordinary steps.
    """

    WARM_UP = 3

    def __init__(self, model: GradientGraph, train: Triples, settings: TrainConfig, generator: torch.Generator) -> None:
        self.model, self.train, self.settings, self.generator = model, train, settings, generator
        keep_freed_memory()
        on_gpu = train.head.is_cuda
        self.rate = torch.tensor(settings.learning_rate, device=train.head.device)  # changed in place by the schedule
        self.done, self.steps = 0, settings.epochs * math.ceil(len(train) / settings.batch_size)
        used = settings.batch_size * (2 + 2 * settings.negatives)
        by_rows = settings.loss != "full" and settings.rows != "all" and model.n_entities > 2 * used
        by_row = {"adam": RowAdam, "adagrad": RowAdagrad}[settings.optimizer]
        self.rows = by_row(model.entity, self.rate) if by_rows else None
        self.types = torch.nn.Module()
        if settings.type_loss:
            self.types = TypeHead(model.entity.shape[1], model.n_relations).to(train.head.device)
        moved = [p for p in model.parameters() if p.requires_grad and not (by_rows and p is model.entity)]
        self.moved = moved = [*moved, *self.types.parameters()]
        if settings.optimizer == "adam":
            rate = self.rate if on_gpu else settings.learning_rate
            self.optimizer = torch.optim.Adam(moved, lr=rate, fused=True, capturable=on_gpu)
        elif on_gpu:
            self.optimizer = Adagrad(moved, self.rate)
        else:
            self.optimizer = torch.optim.Adagrad(moved, lr=settings.learning_rate, fused=True)
        self.graph = None
        self.steps_to_graph = self.WARM_UP if on_gpu and not by_rows else -1
        need_all = settings.loss == "full" or settings.relation_corruption or settings.type_loss
        self.by_relation = on_gpu and model.composition.by_relation and not need_all
        self.room = model.n_relations  # for the distinct relations of a batch

    def state_dict(self) -> dict[str, Tensor]:
        """What the optimisers remember, and the parameters that are no part of the model."""
        found = {f"{i}.{k}": v for i, p in enumerate(self.moved) for k, v in self.optimizer.state[p].items()}
        found |= {f"rows.{k}": v for k, v in self.rows.state_dict().items()} if self.rows is not None else {}
        return found | {f"types.{k}": v for k, v in self.types.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in state.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        self.types.load_state_dict(parts.pop("types", {}))
        if self.rows is not None:
            self.rows.load_state_dict(parts.pop("rows"))
        for part, values in parts.items():
            parameter = self.moved[int(part)]
            self.optimizer.state[parameter].update({k: v.to(parameter.device) for k, v in values.items()})

    def begin_epoch(self, order: Tensor) -> Tensor:
        """The order of an epoch; batches are sorted by relation where scoring works relation by relation.

        There it also learns how many distinct relations the batches hold, which is what a step must have room for.
        """
        if not self.by_relation:
            return order
        cut = len(order) // self.settings.batch_size * self.settings.batch_size
        whole, rest = order[:cut].view(-1, self.settings.batch_size), order[cut:]
        relations, places = self.train.relation[whole].sort(dim=1, stable=True)
        if cut:
            most = int((relations.diff(dim=1) != 0).sum(dim=1).max()) + 1
            if self.graph is None or most > self.room:
                self.room, self.graph = min(math.ceil(1.05 * most / 16) * 16, self.model.n_relations), None
        return torch.cat([whole.gather(1, places).flatten(), rest[self.train.relation[rest].argsort(stable=True)]])

    def __call__(self, index: Tensor) -> Tensor:
        """Move the parameters by the training triples at index (b,); returns the loss."""
        self._set_rate()
        if len(index) != self.settings.batch_size or self.steps_to_graph != 0:
            self.steps_to_graph -= self.steps_to_graph > 0 and len(index) == self.settings.batch_size
            return self.move(index)
        if self.graph is None:
            self._capture(index)
        self.index.copy_(index)
        self.graph.replay()
        return self.loss_value

    def _set_rate(self) -> None:
        """The learning rate of this step: constant, or falling in a line to zero at the end of training."""
        if self.settings.schedule == "linear":
            rate = self.settings.learning_rate * (1 - self.done / self.steps)
            self.rate.fill_(rate)
            if not self.rate.is_cuda:
                self.optimizer.param_groups[0]["lr"] = rate
        self.done += 1

    def _capture(self, index: Tensor) -> None:
        self.index, self.graph = index.clone(), torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.loss_value = self.move(self.index)

    def move(self, index: Tensor) -> Tensor:
        """One step, plainly; products on a GPU may round their operands, since gradients are noisier than that."""
        with matmul_precision("high"):
            return self._move(index)

    def _move(self, index: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        batch, negatives, relations = self.train[index], {}, None
        if self.settings.loss != "full":
            count = self.settings.negatives
            negatives = draw_negatives(self.model.n_entities, len(batch), count, self.generator)
            if self.by_relation:
                relations, batch = distinct_relations(batch, self.room)
        ids = vectors = None
        if self.rows is not None:
            ids, batch, negatives = touched_rows(batch, negatives)
            vectors = self.model.entity.detach().index_select(0, ids).requires_grad_()
        form = self.model.form
        with form.dropping(self.generator) if form.dropout else nullcontext():
            snapshot = self.model.snapshot(vectors, relations)
        loss = self.loss(snapshot, batch, negatives)
        loss.backward()
        if self.rows is not None:
            self.rows.step(ids, vectors.grad)
        self.optimizer.step()
        return loss.detach()

    def loss(self, snapshot: Snapshot, batch: Triples, negatives: dict[Slot, Tensor]) -> Tensor:
        """What one step minimises."""
        settings = self.settings
        if negatives:
            loss = CONTRASTIVE[settings.loss](contrast(snapshot, batch, negatives), settings.margin)
        else:
            loss = full_softmax(snapshot, batch)
        if settings.n3:
            loss = loss + settings.n3 * n3(snapshot, batch)
        if settings.relation_corruption:
            loss = loss + settings.relation_corruption * relation_softmax(snapshot, batch)
        if settings.type_loss:
            loss = loss + settings.type_loss * self.types(snapshot, batch)
        return loss


def touched_rows(batch: Triples, negatives: dict[Slot, Tensor]) -> tuple[Tensor, Triples, dict[Slot, Tensor]]:
    """The distinct entities (m,) of a batch and its negatives, and both in places along them."""
    everyone = torch.cat([batch.head, batch.tail, *(ids.flatten() for ids in negatives.values())])
    rows, place = everyone.unique(return_inverse=True)
    head, tail, *others = place.split([len(batch), len(batch), *(ids.numel() for ids in negatives.values())])
    moved = {slot: part.view_as(negatives[slot]) for slot, part in zip(negatives, others, strict=True)}
    return rows, Triples(head, batch.relation, tail), moved


def distinct_relations(batch: Triples, room: int) -> tuple[Tensor, Triples]:
    """The distinct relations of a batch sorted by relation, padded to `room`, and the batch in places along them."""
    place, ids = runs(batch.relation, room)
    return ids, Triples(batch.head, place, batch.tail)


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
