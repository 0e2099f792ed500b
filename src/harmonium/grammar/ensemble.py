"""Products of experts: several models of one graph as one scorer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.exact_scores import WeightedExactScores
from harmonium.model.scoring import Scorer


@dataclass(frozen=True)
class Ensemble(Scorer):
    """p(candidate) ~ product of exp(weight * score): the weighted sum of the experts' scores.

    Experts trained with a softmax are comparable: their scores are log-probabilities up to a constant. Those trained with
    a margin each have a scale of their own and may need a weight.
    """

    experts: Sequence[Scorer]
    weights: Sequence[float] | None = None  # one per expert; default: all 1

    def __post_init__(self) -> None:
        if not self.experts:
            raise HarmoniumError("a product of experts needs at least one run")
        if self.weights is not None and len(self.weights) != len(self.experts):
            raise HarmoniumError(f"{len(self.experts)} experts need as many weights, not {len(self.weights)}")
        for weight in self._weights:
            if not isinstance(weight, Real) or not math.isfinite(weight):
                raise HarmoniumError(f"the weight of an expert is a finite number, not {weight!r}")

    @property
    def works_by_relation(self) -> bool:
        return any(expert.works_by_relation for expert in self.experts)

    def prepare(self) -> Ensemble:
        return Ensemble([expert.prepare() for expert in self.experts], self.weights)

    def exact_scores(self, slot: Slot, queries: Triples) -> WeightedExactScores | None:
        parts = [expert.exact_scores(slot, queries) for expert in self.experts]
        known = [part for part in parts if part is not None]
        return WeightedExactScores(known, self._weights) if len(known) == len(parts) else None

    @property
    def _weights(self) -> Sequence[float]:
        return [1.0] * len(self.experts) if self.weights is None else self.weights

    @property
    def device(self) -> torch.device:
        return self.experts[0].device

    def n_candidates(self, slot: Slot) -> int:
        return self.experts[0].n_candidates(slot)

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, m)."""
        return self._sum([expert.score_slot(slot, queries, candidates) for expert in self.experts])

    def score_facts(self, slot: Slot, triples: Triples) -> Tensor:
        return self._sum([expert.score_facts(slot, triples) for expert in self.experts])

    def _sum(self, parts: Sequence[Tensor]) -> Tensor:
        total = self._weights[0] * parts[0]
        for weight, scores in zip(self._weights[1:], parts[1:], strict=True):
            total = total + weight * scores
        return total
