"""Optimisers that touch only the rows a step used, so that a step costs the same however many entities there are.

Adagrad gives what the dense one gives, since a row without gradient does not move. Adam is the lazy kind: the
averages of a row decay only when it is used. The rate is a tensor that training changes in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


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

    def __init__(self, table: Tensor, rate: Tensor, eps: float = 1e-10) -> None:
        self.table, self.rate, self.eps = table.detach(), rate, eps
        self.squares = torch.zeros_like(self.table)

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """rows (m,) distinct, gradient (m, dim)."""
        squares = self.squares.index_select(0, rows).addcmul_(gradient, gradient)
        self.squares.index_copy_(0, rows, squares)
        self.table.index_add_(0, rows, gradient / squares.sqrt_().add_(self.eps) * -self.rate)

    def state_dict(self) -> dict[str, Tensor]:
        return {"squares": self.squares}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.squares.copy_(state["squares"])


class RowAdam:
    """Lazy Adam: running means of g and g^2, corrected for their start by the number of steps taken overall."""

    def __init__(
        self, table: Tensor, rate: Tensor, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.table, self.rate, self.betas, self.eps, self.steps = table.detach(), rate, betas, eps, 0
        self.mean, self.square = torch.zeros_like(self.table), torch.zeros_like(self.table)

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """rows (m,) distinct, gradient (m, dim)."""
        self.steps += 1
        slow, slower = (1 - beta**self.steps for beta in self.betas)
        mean = self.mean.index_select(0, rows).lerp_(gradient, 1 - self.betas[0])
        square = self.square.index_select(0, rows).mul_(self.betas[1])
        square.addcmul_(gradient, gradient, value=1 - self.betas[1])
        self.mean.index_copy_(0, rows, mean)
        self.square.index_copy_(0, rows, square)
        step = mean.div_(square.div_(slower).sqrt_().add_(self.eps))
        self.table.index_add_(0, rows, step.mul_(self.rate / -slow))

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "square": self.square, "steps": torch.tensor(self.steps)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = int(state["steps"])
