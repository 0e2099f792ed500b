"""Minimise a smooth loss by L-BFGS: for the few parameters of a regression, not for vectors of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def minimise(
    loss: Callable[..., Tensor],
    start: Sequence[Tensor],
    max_iterations: int,
    *,
    history: int = 20,
    tolerance: float = 1e-7,
) -> list[Tensor]:
    """The parameters, one for each of `start`, at which `loss(*parameters)` is least, or lowest after `max_iterations`.

    `start` stays as it is. The search ends where no element of the gradient is above the tolerance.
    """
    parameters = [tensor.detach().clone().requires_grad_(True) for tensor in start]
    optimiser = torch.optim.LBFGS(
        parameters,
        max_iter=max_iterations,
        history_size=history,
        tolerance_grad=tolerance,
        line_search_fn="strong_wolfe",
    )

    @torch.enable_grad()
    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(*parameters)
        value.backward()
        return value

    optimiser.step(closure)
    return [parameter.detach() for parameter in parameters]
