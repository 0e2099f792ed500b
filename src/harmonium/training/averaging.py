"""The mean of the weights over the last epochs, which is validated and kept in place of the weights themselves.

Weights are read once, at the end of an epoch (stochastic weight averaging, Izmailov et al. 2018): a step costs nothing
more, wherever the entity vectors are stored.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from harmonium.kernels.stochastic_rounding import compute_dtype
from harmonium.model.gradient_graph import GradientGraph


class WeightAverage:
    """The running mean of a model's parameters; nothing before the first update."""

    def __init__(self, model: GradientGraph) -> None:
        self.model, self.count = model, 0
        self.mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights of now: mean += (weights - mean) / count."""
        self.count += 1
        for name, weights in self.model.named_parameters():
            if self.count == 1:
                self.mean[name] = weights.detach().to(compute_dtype(weights), copy=True)
            else:
                self.mean[name].lerp_(weights.to(self.mean[name].dtype), 1 / self.count)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the mean weights, if there are any; the weights themselves stay where they are."""
        before = {name: weights.data for name, weights in self.model.named_parameters()}
        try:
            for name, weights in self.model.named_parameters():
                weights.data = self.mean.get(name, weights.data).to(weights.dtype)
            yield
        finally:
            for name, weights in self.model.named_parameters():
                weights.data = before[name]

    @torch.no_grad()
    def keep(self) -> None:
        """Give the model the mean weights for good, if there are any."""
        for name, weights in self.model.named_parameters():
            if name in self.mean:
                weights.copy_(self.mean[name])

    def load_state_dict(self, mean: Mapping[str, Tensor], count: int) -> None:
        devices = {name: weights.device for name, weights in self.model.named_parameters()}
        self.mean, self.count = {name: values.to(devices[name]) for name, values in mean.items()}, count


def is_averaged(epoch: int, epochs: int, share: float) -> bool:
    """Whether an epoch (1, 2, ...) belongs to the last share of all epochs, of which there is at least one."""
    return bool(share) and epoch > epochs - max(1, round(share * epochs))
