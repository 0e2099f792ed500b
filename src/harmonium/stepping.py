"""One step of training: what is drawn, scored and moved, and how a GPU replays it."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import Tensor

from harmonium.config import TrainConfig
from harmonium.graph import Slot, Triples
from harmonium.kernels.fused import keep_freed_memory, matmul_precision
from harmonium.kernels.gpu import runs
from harmonium.model import GradientGraph, Snapshot
from harmonium.objective import CONTRASTIVE, TypeHead, contrast, draw_negatives, full_softmax, n3, relation_softmax
from harmonium.optimiser import Adagrad, RowAdagrad, RowAdam


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
