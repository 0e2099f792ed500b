"""Optimisers that touch only the rows a step used, so that a step costs the same however many entities there are.

Adagrad gives what the dense one gives, since a row without gradient does not move. Adam is the lazy kind: the
averages of a row decay only when it is used. The rate is a tensor that training changes in place, and so is `noise`,
by which a table in 16 bits is rounded (rounding.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from harmonium.rounding import add_to_rows, computed_in


class RowOptimiser(Protocol):
    def step(self, rows: Tensor, gradient: Tensor) -> None: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...


class Adagrad:
    """The dense one, as torch.optim has it, but with all of its state on the device, so that a CUDA graph can hold it."""

    def __init__(self, parameters: Sequence[Tensor], rate: Tensor, eps: float = 1e-10) -> None:
        self.parameters, self.rate, self.eps = list(parameters), rate, eps
        self.state = {parameter: {"sum": torch.zeros_like(parameter)} for parameter in self.parameters}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            squares = self.state[parameter]["sum"].addcmul_(parameter.grad, parameter.grad)
            parameter.sub_(squares.sqrt().add_(self.eps).reciprocal_().mul_(parameter.grad).mul_(self.rate))


class RowAdagrad:
    """e -= rate * g / (sqrt(sum of g^2) + eps), on some rows."""

    def __init__(self, table: Tensor, rate: Tensor, noise: torch.Generator | None = None, eps: float = 1e-10) -> None:
        self.table, self.rate, self.noise, self.eps = table.detach(), rate, noise, eps
        self.squares = torch.zeros_like(self.table, dtype=computed_in(table))

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """rows (m,) distinct, gradient (m, dim)."""
        squares = self.squares.index_add_(0, rows, gradient.square()).index_select(0, rows)
        add_to_rows(self.table, rows, gradient / squares.sqrt_().add_(self.eps) * -self.rate, self.noise)

    def state_dict(self) -> dict[str, Tensor]:
        return {"squares": self.squares}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.squares.copy_(state["squares"])


class RowwiseAdagrad(RowAdagrad):
    """The same with one sum for a row, of the means of its g^2: it remembers a dim-th of what Adagrad does."""

    def __init__(self, table: Tensor, rate: Tensor, noise: torch.Generator | None = None, eps: float = 1e-10) -> None:
        super().__init__(table[:, :1], rate, noise, eps)
        self.table = table.detach()

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """rows (m,) distinct, gradient (m, dim)."""
        mean = gradient.square().mean(dim=1, keepdim=True)
        squares = self.squares.index_add_(0, rows, mean).index_select(0, rows)
        add_to_rows(self.table, rows, gradient / squares.sqrt_().add_(self.eps) * -self.rate, self.noise)


class RowAdam:
    """Lazy Adam: running means of g and g^2, corrected for their start by the number of steps taken overall."""

    def __init__(
        self, table: Tensor, rate: Tensor, noise: torch.Generator | None = None,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self.table, self.rate, self.noise = table.detach(), rate, noise
        self.betas, self.eps, self.steps = betas, eps, 0
        self.mean, self.square = (torch.zeros_like(self.table, dtype=computed_in(table)) for _ in range(2))

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """rows (m,) distinct, gradient (m, dim)."""
        self.steps += 1
        slow, slower = (1 - beta**self.steps for beta in self.betas)
        mean, square = (state.index_select(0, rows) for state in (self.mean, self.square))
        changes = (gradient - mean).mul_(1 - self.betas[0]), (gradient**2).sub_(square).mul_(1 - self.betas[1])
        for state, held, change in zip((self.mean, self.square), (mean, square), changes, strict=True):
            state.index_add_(0, rows, change)  # half the time of index_copy_
            held.add_(change)
        step = mean.div_(square.div_(slower).sqrt_().add_(self.eps))
        add_to_rows(self.table, rows, step.mul_(self.rate / -slow), self.noise)

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "square": self.square, "steps": torch.tensor(self.steps)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = int(state["steps"])
