"""Replayed facts: importance sampling of the facts that stay, for batches of a local refit.

A vector that moves must still fit the facts that it fitted before. Facts of an entity are drawn more often the larger the
share of its facts that changed, and are weighted inversely, so that the mean of a batch is an unbiased estimate of the mean
over all facts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harmonium.data.triples import Triples

UNIFORM_SHARE = 0.3  # of the draws: no fact has an importance above 1 / UNIFORM_SHARE


class Replay:
    """The n facts that stay, with the probability of drawing each."""

    def __init__(self, kept: Triples, changed: Triples, n_entities: int, generator: torch.Generator) -> None:
        self.kept, self.generator = kept, generator
        n_changed, n_kept = (degrees(facts, n_entities) for facts in (changed, kept))
        share = n_changed.double() / n_kept.clamp(min=1)
        concern = share[kept.head] + share[kept.tail]
        uniform = concern.new_full((len(kept),), 1 / max(1, len(kept)))
        concern = concern / concern.sum() if concern.any() else uniform
        probability = torch.lerp(concern, uniform, UNIFORM_SHARE)
        self.cumulative, self.importance = probability.cumsum(0), uniform / probability

    def draw(self, count: int) -> Triples:
        """Draw facts, with weights multiplied by their importance; empty if no fact stays."""
        if not len(self.kept):
            return self.kept
        drawn = torch.rand(count, generator=self.generator, dtype=torch.float64) * self.cumulative[-1]
        index = torch.searchsorted(self.cumulative, drawn).clamp(max=len(self.kept) - 1)
        facts = self.kept[index]
        return replace(facts, weight=facts.weights() * self.importance[index])


class Cycle:
    """Positions of facts in random order, shuffled again after each pass."""

    def __init__(self, count: int, generator: torch.Generator) -> None:
        self.count, self.generator, self.left = count, generator, torch.empty(0, dtype=torch.int64)

    def draw(self, size: int) -> Tensor:
        """The next positions, at most as many as there are."""
        size = min(size, self.count)
        if len(self.left) < size:
            self.left = torch.cat([self.left, torch.randperm(self.count, generator=self.generator)])
        drawn, self.left = self.left[:size], self.left[size:]
        return drawn


def degrees(facts: Triples, n_entities: int) -> Tensor:
    """(n_entities,): the number of facts of each entity; a self-loop counts twice."""
    return torch.cat([facts.head, facts.tail]).bincount(minlength=n_entities)
