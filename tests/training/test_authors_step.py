"""The step of the paper's authors: losses summed over a batch, and heads and tails updated one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import Config
from harmonium.data.triples import Slot
from harmonium.model.build import build_model
from harmonium.training.step import TrainingStep
from small import make_graph

DIM, CAP = 6, 0.75
AUTHORS = ["model.initialisation=xavier", "train.alternate_sides=true", "train.reduction=sum"]
SETTINGS = [f"model.entity_dim={DIM}", "train.batch_size=10", "train.negatives=7", "train.precision=highest"]


def make_step(*more: str, learning_rate: float = 0.01) -> TrainingStep:
    rate = [f"train.learning_rate={learning_rate}", "train.schedule=constant"]
    config, graph = Config.read(None, [*SETTINGS, *rate, *more]), make_graph()
    model = build_model(config.model, graph.n_entities, graph.n_relations).double()
    return TrainingStep(model, graph.train, config.train, torch.Generator().manual_seed(3))


def unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


def harmony(entity: Tensor, relation: Tensor, free: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
    """H(mu(x), x) of HHolE with lambda = 1, from the paper's definitions alone; rows (..., 3)."""
    weights = (free + free.T) / 2
    if weights.norm() > CAP:
        weights = weights * CAP / weights.norm()
    head, tail = unit(entity[rows[..., 0]]), unit(entity[rows[..., 2]])
    correlated = torch.stack([(head * tail.roll(-k, dims=-1)).sum(-1) for k in range(DIM)], dim=-1)
    x = unit(relation[rows[..., 1]]) * correlated
    hidden = torch.linalg.solve(torch.eye(DIM, dtype=x.dtype) - weights, (bias / 2 + x).unsqueeze(-1)).squeeze(-1)
    core = torch.einsum("...i,ij,...j->...", hidden, weights, hidden) + hidden @ bias
    value: Tensor = (core - (hidden - x).square().sum(-1)) / 2
    return value


def test_a_step_is_two_steps_of_adam_on_sums_over_the_batch() -> None:
    step = make_step(*AUTHORS)
    form = step.model.harmony
    copies = [
        p.detach().clone().requires_grad_() for p in (step.model.entity, step.model.relation, form.free, form.bias)
    ]
    adam = torch.optim.Adam(copies, lr=0.01)
    for index in (torch.arange(10), torch.arange(10, 20)):
        state = step.generator.get_state()
        negatives = step.draw_sample(index).negatives
        step.generator.set_state(state)
        losses = []
        for column, slot in ((0, Slot.HEAD), (2, Slot.TAIL)):
            rows = step.train[index].to_rows()[:, None].repeat(1, 8, 1)  # (10, 1 + 7, 3)
            rows[:, 1:, column] = negatives[slot]
            scores = harmony(*copies, rows)
            loss = (scores.logsumexp(1) - scores[:, 0]).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item() / 10)
        assert step(index).item() == pytest.approx(sum(losses) / 2)
    for ours, theirs in zip((step.model.entity, step.model.relation, form.free, form.bias), copies, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("alternate", ["false", "true"])
def test_the_sum_is_the_mean_times_the_queries(alternate: str) -> None:
    gradients = []
    for reduction in ("mean", "sum"):
        step = make_step(f"train.reduction={reduction}", f"train.alternate_sides={alternate}", "train.n3=0.1")
        part = step.parts(step.draw_sample(torch.arange(10)))[0]
        loss = step.backward(part, 10)
        gradients.append((loss, step.model.relation.grad))
    (mean_loss, mean), (sum_loss, total) = gradients
    assert mean_loss == sum_loss  # what the history shows
    assert mean is not None
    torch.testing.assert_close(total, mean * (10 if alternate == "true" else 20))
