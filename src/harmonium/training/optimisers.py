"""Dense optimisers, and row optimisers that only update the rows used in a step, at a cost independent of the table.

Row-wise Adagrad gives the result of dense Adagrad, since a row without gradient does not change. Row-wise Adam is lazy
Adam: the averages of a row decay only when it is used. Learning rates are tensors that training changes in place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from harmonium.config.settings import TrainConfig
from harmonium.kernels.stochastic_rounding import add_to_rows, compute_dtype
from harmonium.kernels.triton_backend import has_triton


def scheduled_rate(settings: TrainConfig, step: int, n_steps: int) -> float:
    """The learning rate of a step (from 0) of n_steps, by the schedule of the settings."""
    progress = step / n_steps
    remaining = {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}
    return settings.learning_rate * remaining[settings.schedule]


def make_optimiser(parameters: Sequence[Tensor], settings: TrainConfig, learning_rate: Tensor) -> torch.optim.Optimizer:
    """Create the dense optimiser; on a GPU it has all state on the device, so that a CUDA graph can contain a step."""
    on_gpu = learning_rate.is_cuda
    rate = learning_rate if on_gpu else settings.learning_rate
    if settings.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=on_gpu)
    if on_gpu:
        return CapturableAdagrad(parameters, learning_rate)
    return torch.optim.Adagrad(parameters, lr=settings.learning_rate, fused=True)


def make_row_optimiser(
    table: Tensor, settings: TrainConfig, learning_rate: Tensor, rounding: torch.Generator | None
) -> RowOptimiser:
    """Create the row optimiser; `rounding` draws the stochastic rounding of a bfloat16 table."""
    kinds: dict[str, type[RowOptimiser]] = {"adam": RowAdam, "adagrad": RowAdagrad, "row-adagrad": RowwiseAdagrad}
    return kinds[settings.optimiser](table, learning_rate, rounding)


class CapturableAdagrad(torch.optim.Optimizer):
    """Dense Adagrad with all of its state on the device, so that a CUDA graph can contain a step."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: Tensor, eps: float = 1e-10) -> None:
        super().__init__(parameters, {"lr": learning_rate, "eps": eps})
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["sum"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closures: a graph cannot call them
        group = self.param_groups[0]
        for parameter in group["params"]:
            squares, gradient = self.state[parameter]["sum"], parameter.grad
            if parameter.is_cuda and parameter.dtype == torch.float32 and has_triton():
                from harmonium.kernels import triton_rows

                triton_rows.adagrad(parameter, squares, gradient, group["lr"], group["eps"])
            else:
                squares.addcmul_(gradient, gradient)
                parameter.sub_(squares.sqrt().add_(group["eps"]).reciprocal_().mul_(gradient).mul_(group["lr"]))


class RowOptimiser(ABC):
    """Updates rows of a table; `state_dict` holds its state by name."""

    def __init__(self, table: Tensor, learning_rate: Tensor, rounding: torch.Generator | None = None) -> None:
        self.table, self.learning_rate, self.rounding = table.detach(), learning_rate, rounding
        self.state = self.initial_state(table, compute_dtype(table))

    @abstractmethod
    def initial_state(self, table: Tensor, dtype: torch.dtype) -> dict[str, Tensor]: ...

    @abstractmethod
    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """Update distinct rows (m,) of the table by their gradients (m, dim)."""

    def state_dict(self) -> dict[str, Tensor]:
        return self.state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state.items():
            tensor.copy_(state[name])


class RowAdagrad(RowOptimiser):
    """e -= rate * g / (sqrt(sum of g^2) + eps)."""

    one_sum_per_row = False
    eps = 1e-10

    def initial_state(self, table: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        dim = 1 if self.one_sum_per_row else table.shape[1]
        return {"squares": torch.zeros(len(table), dim, dtype=dtype, device=table.device)}

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        squared = gradient.square()
        if self.one_sum_per_row:
            squared = squared.mean(dim=1, keepdim=True)
        squares = self.state["squares"].index_add_(0, rows, squared).index_select(0, rows)
        change = gradient / squares.sqrt_().add_(self.eps) * -self.learning_rate
        add_to_rows(self.table, rows, change, self.rounding)


class RowwiseAdagrad(RowAdagrad):
    """Adagrad with one sum per row, of the row's mean g^2: 1/dim of Adagrad's state."""

    one_sum_per_row = True


class RowAdam(RowOptimiser):
    """Lazy Adam: running means of g and g^2, bias-corrected by the number of steps of the whole table."""

    betas = (0.9, 0.999)
    eps = 1e-8

    def initial_state(self, table: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        mean, square = (torch.zeros_like(table, dtype=dtype) for _ in range(2))
        return {"mean": mean, "square": square, "steps": torch.tensor(0)}

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        self.state["steps"] += 1
        mean_correction, square_correction = (1 - beta ** int(self.state["steps"]) for beta in self.betas)
        mean, square = (self.state[name].index_select(0, rows) for name in ("mean", "square"))
        mean_change = (gradient - mean).mul_(1 - self.betas[0])
        square_change = gradient.square().sub_(square).mul_(1 - self.betas[1])
        self.state["mean"].index_add_(0, rows, mean_change)  # half the time of index_copy_
        self.state["square"].index_add_(0, rows, square_change)
        denominator = square.add_(square_change).div_(square_correction).sqrt_().add_(self.eps)
        direction = mean.add_(mean_change).div_(denominator)
        add_to_rows(self.table, rows, direction.mul_(self.learning_rate / -mean_correction), self.rounding)
