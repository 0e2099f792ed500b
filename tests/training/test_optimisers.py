from __future__ import annotations

import math

import pytest
import torch

from harmonium.config.settings import TrainConfig
from harmonium.training.optimisers import CapturableAdagrad, RowAdagrad, RowAdam, RowwiseAdagrad, scheduled_rate

RATE = torch.tensor(0.1, dtype=torch.float64)


@pytest.mark.parametrize(("row_kind", "kind"), [(RowAdam, torch.optim.SparseAdam), (RowAdagrad, torch.optim.Adagrad)])
def test_row_optimisers_are_lazy_adam_and_dense_adagrad(row_kind: type, kind: type) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(9, 3, generator=generator)
    table, expected = start.clone(), start.clone().requires_grad_()
    optimiser, reference = row_kind(table, torch.tensor(0.1)), kind([expected], lr=0.1)
    for _ in range(6):
        rows = torch.randperm(9, generator=generator)[:4].sort().values
        gradient = torch.randn(4, 3, generator=generator)
        optimiser.step(rows, gradient)
        sparse = torch.sparse_coo_tensor(rows[None], gradient, (9, 3), check_invariants=True).coalesce()
        expected.grad = sparse if kind is torch.optim.SparseAdam else sparse.to_dense()
        reference.step()
    torch.testing.assert_close(table, expected.detach(), rtol=1e-4, atol=1e-6)
    assert not torch.equal(table, start)


def test_rowwise_adagrad_is_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    expected, sums, optimiser = table.clone(), [0.0] * 9, RowwiseAdagrad(table, RATE)
    for _ in range(6):
        rows = torch.randperm(9, generator=generator)[:4]
        gradient = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        optimiser.step(rows, gradient)
        for row, g in zip(rows.tolist(), gradient, strict=True):
            sums[row] += sum(x * x for x in g.tolist()) / 3
            expected[row] -= 0.1 * g / (math.sqrt(sums[row]) + 1e-10)
    torch.testing.assert_close(table, expected, rtol=1e-12, atol=1e-12)


def test_capturable_adagrad_is_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(5, 2, generator=generator)
    one, other = (start.clone().requires_grad_() for _ in range(2))
    optimisers = CapturableAdagrad([one], torch.tensor(0.1)), torch.optim.Adagrad([other], lr=0.1)
    for _ in range(4):
        one.grad = other.grad = torch.randn(5, 2, generator=generator)
        for optimiser in optimisers:
            optimiser.step()
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_schedules_are_torchs(schedule: str) -> None:
    settings, n_steps = TrainConfig(learning_rate=0.2, schedule=schedule), 40
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    kinds = torch.optim.lr_scheduler
    scheduler = {
        "constant": lambda: kinds.ConstantLR(optimiser, 1.0),
        "linear": lambda: kinds.LinearLR(optimiser, 1.0, 0.0, n_steps),
        "cosine": lambda: kinds.CosineAnnealingLR(optimiser, n_steps),
    }[schedule]()
    expected = []
    for _ in range(n_steps):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    assert [scheduled_rate(settings, step, n_steps) for step in range(n_steps)] == pytest.approx(expected, rel=1e-6)
