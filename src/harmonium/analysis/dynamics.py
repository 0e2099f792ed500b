"""The dynamics: how the network climbs from the composed vector of a triple to its token, and the states around it."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph

CLOSE = 1e-6  # the share of the way that may be left at the end, in the slowest direction


@dataclass(frozen=True)
class Dynamics:
    """The way from x to mu(x) and samples of p(h|x), in float64."""

    triple: tuple[str, str, str]
    hidden: Tensor  # (steps + 1, dim)
    harmony: Tensor  # (steps + 1,)
    coherence: Tensor  # (steps + 1,): core harmony, before faithfulness is counted
    token: Tensor  # (dim,): the closed form
    optimum: float  # its harmony
    samples: Tensor  # (count, dim)
    sample_harmony: Tensor  # (count,)
    plane: Tensor  # (dim, 2): the way's direction, and that of the widest spread across it

    @property
    def distance(self) -> Tensor:
        """(steps + 1,): from the closed form."""
        return (self.hidden - self.token).norm(dim=-1)

    def to_json(self) -> dict[str, Any]:
        return {
            "triple": self.triple,
            "steps": len(self.hidden) - 1,
            "harmony": self.harmony.tolist(),
            "coherence": self.coherence.tolist(),
            "distance": self.distance.tolist(),
            "optimum": self.optimum,
            "samples": {"count": len(self.samples), "mean_harmony": self.sample_harmony.mean().item()},
        }


@torch.no_grad()
def follow(
    model: GradientGraph, graph: Graph, triple: Triples, steps: int | None = None, samples: int = 500, seed: int = 0
) -> Dynamics:
    """Follow the network for one triple; without `steps`, until the slowest direction has come close to the token."""
    harmony = deepcopy(model.harmony).double()
    if harmony.tau == 0:
        raise HarmoniumError("at lambda = infinity a token is its composed vector: no dynamics; train a finite one")
    composed = model.compose(triple)[0].double()
    path = harmony.relax(composed, steps or _enough(harmony))
    token = harmony.optimise(composed)
    drawn = harmony.sample(composed, samples, torch.Generator().manual_seed(seed))
    return Dynamics(
        graph.spell(triple)[0], path.hidden, path.harmony, harmony.coherence(path.hidden),
        token, harmony(token, composed).item(), drawn, harmony(drawn, composed), _plane(harmony, token - composed),
    )  # fmt: skip


def _enough(harmony: Harmony) -> int:
    """Each step of `relax` leaves 1 - (lambda - w) / (lambda + cap) of the way along an eigenvector of W."""
    top = torch.linalg.eigvalsh(harmony.matrix())[-1].item()
    done = (harmony.faithfulness - top) / (harmony.faithfulness + harmony.cap)
    return math.ceil(math.log(CLOSE) / math.log1p(-min(done, 0.9)))


def _plane(harmony: Harmony, way: Tensor) -> Tensor:
    """(dim, 2), orthonormal: along the way, and where p(h|x) is widest across it."""
    along = way / way.norm().clamp(min=1e-300)
    across = torch.eye(len(way), dtype=way.dtype) - torch.outer(along, along)
    widest = torch.linalg.eigh(across @ harmony.token_map() @ across)[1][:, -1]  # the covariance is tau S
    return torch.stack([along, widest], dim=1)
