"""Plain against harmonic: the ranks of the same vectors with W and b and without them."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from typing import Any

from harmonium.evaluation.evaluation import Metrics
from harmonium.evaluation.metrics import Ranks
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum


def without_harmony(model: GradientGraph) -> GradientGraph:
    """The plain model of the same vectors, which scores by the sum of the composed vector."""
    plain = copy.deepcopy(model)
    plain.form = Sum(plain.form.dim, learn_scale=False)
    return plain


@dataclass(frozen=True)
class PlainComparison:
    """Metrics of the same queries with W and without it."""

    queries: int
    harmonic: Metrics
    plain: Metrics
    change: float  # of the mean reciprocal rank by W
    standard_error: float  # of the change
    better: int  # queries whose rank W improves
    worse: int

    @classmethod
    def of(cls, harmonic: Ranks, plain: Ranks, ties: str) -> PlainComparison:
        """From the ranks of the same queries in the same order."""
        ranks = harmonic.values(ties).double(), plain.values(ties).double()
        change = 1 / ranks[0] - 1 / ranks[1]
        error = float(change.std()) / math.sqrt(len(change)) if len(change) > 1 else math.inf
        better, worse = int((ranks[0] < ranks[1]).sum()), int((ranks[0] > ranks[1]).sum())
        metrics = harmonic.metrics(ties), plain.metrics(ties)
        return cls(len(change), *metrics, float(change.mean()), error, better, worse)

    @property
    def verdict(self) -> str:
        """What W does to the ranks, in words."""
        if abs(self.change) <= 2 * self.standard_error:
            return "no difference that two standard errors would show"
        return "better with W" if self.change > 0 else "worse with W"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}
