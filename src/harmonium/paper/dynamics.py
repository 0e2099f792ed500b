"""The dynamics: how the network moves from the composed vector of a triple to its token, and samples around it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from harmonium.errors import HarmoniumError
from harmonium.model.harmony import Harmony
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, Part, Table

REMAINING_DISTANCE = 1e-6  # remaining share of the distance at the end, in the slowest direction


@torch.no_grad()
def dynamics(
    run: Run | str | Path,
    head: str,
    relation: str,
    tail: str,
    steps: int | None = None,
    samples: int = 500,
    seed: int = 0,
) -> Dynamics:
    """How the network moves from a fact's composed vector to its token, with samples of p(h|x).

    Default number of steps: until the slowest direction has converged.

    >>> dynamics("runs/demo", "Switzerland", "official language", "French")
    """
    run = Run.of(run)
    triple = run.graph.triple(head, relation, tail)
    harmony = deepcopy(run.model.harmony).double()
    if harmony.tau == 0:
        raise HarmoniumError("at lambda = infinity a token is its composed vector: no dynamics; train a finite one")
    composed = run.model.compose(triple)[0].double()
    path = harmony.relax(composed, steps or _steps_to_converge(harmony))
    token = harmony.optimise(composed)
    states = harmony.sample(composed, samples, torch.Generator().manual_seed(seed))
    return Dynamics(
        run.graph.names_of(triple)[0],
        path.hidden,
        path.harmony,
        harmony.coherence(path.hidden),
        token,
        harmony(token, composed).item(),
        states,
        harmony(states, composed),
        _plane(harmony, token - composed),
    )


@dataclass(frozen=True)
class Dynamics(Displayed):
    """The path from x to mu(x) and samples of p(h|x), in float64."""

    triple: tuple[str, str, str]
    hidden: Tensor  # (steps + 1, dim)
    harmony: Tensor  # (steps + 1,)
    coherence: Tensor  # (steps + 1,): core harmony, without faithfulness
    token: Tensor  # (dim,): the closed form
    optimum: float  # harmony of the token
    samples: Tensor  # (count, dim)
    sample_harmony: Tensor  # (count,)
    plane: Tensor  # (dim, 2), orthonormal: from x to the token, and the direction of most variance across that

    @property
    def distance(self) -> Tensor:
        """(steps + 1,): to the token."""
        distance: Tensor = vector_norm(self.hidden - self.token, dim=-1)
        return distance

    def display(self) -> Iterator[Part]:
        """At most eleven steps from the composed vector to the token, denser at the start."""
        last = len(self.hidden) - 1
        steps = sorted({*(round(last * (tenth / 10) ** 2) for tenth in range(10)), last})
        rows = [
            [step, f"{self.harmony[step]:.4f}", f"{self.coherence[step]:.4f}", f"{self.distance[step]:.2e}"]
            for step in steps
        ]
        samples = f"mean of {len(self.samples)} samples of p(h|x): {self.sample_harmony.mean():.4f}"
        caption = f"harmony of the closed form: {self.optimum:.4f}; {samples}"
        columns = ["step", "harmony", "core harmony", "distance to the token"]
        yield Table(", ".join(self.triple), columns, rows, caption)

    def records(self) -> list[dict[str, Any]]:
        """All steps."""
        columns = self.harmony.tolist(), self.coherence.tolist(), self.distance.tolist()
        names = ("step", "harmony", "core_harmony", "distance")
        return [dict(zip(names, (step, *row), strict=True)) for step, row in enumerate(zip(*columns, strict=True))]

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


def _steps_to_converge(harmony: Harmony) -> int:
    """Each step of `relax` leaves 1 - (lambda - w) / (lambda + cap) of the distance along an eigenvector of W."""
    largest = torch.linalg.eigvalsh(harmony.matrix())[-1].item()
    progress = (harmony.faithfulness - largest) / (harmony.faithfulness + harmony.cap)
    return math.ceil(math.log(REMAINING_DISTANCE) / math.log1p(-min(progress, 0.9)))


def _plane(harmony: Harmony, shift: Tensor) -> Tensor:
    """(dim, 2), orthonormal: along the shift, and where p(h|x), whose covariance is tau S, is widest across it."""
    along = shift / vector_norm(shift).clamp(min=1e-300)
    across = torch.eye(len(shift), dtype=shift.dtype) - torch.outer(along, along)
    widest = torch.linalg.eigh(across @ harmony.token_map() @ across)[1][:, -1]
    return torch.stack([along, widest], dim=1)
