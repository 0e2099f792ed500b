"""Products of experts: several runs on one graph as one scorer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.evaluation import Scorer, steady
from harmonium.graph import SPLITS, Slot, Triples, Vocabulary

if TYPE_CHECKING:
    from harmonium.run import Run


@dataclass(frozen=True)
class Ensemble:
    """p(filler) ~ product of exp(weight * score): the weighted sum of the experts' scores.

    Experts trained by a softmax are comparable as they are: their scores are log-probabilities up to a constant.
    Those trained by a margin have a scale of their own and may want a weight.
    """

    experts: Sequence[Scorer]
    weights: Sequence[float] | None = None  # one each; all 1 when left out

    def __post_init__(self) -> None:
        if not self.experts:
            raise HarmoniumError("a product of experts needs at least one run")
        if self.weights is not None and len(self.weights) != len(self.experts):
            raise HarmoniumError(f"{len(self.experts)} experts need as many weights, not {len(self.weights)}")

    def snapshot(self) -> Ensemble:
        """The experts prepared for many comparisons."""
        return Ensemble([steady(expert) for expert in self.experts], self.weights)

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates)."""
        weights = self.weights or [1.0] * len(self.experts)
        return sum(w * expert.score_slot(slot, queries) for w, expert in zip(weights, self.experts, strict=True))


def product_of_experts(runs: Sequence[Run], weights: Sequence[float] | None = None) -> Ensemble:
    """The models of several runs as one scorer; all must know the same names and have been trained on the same facts."""
    for run in runs[1:]:
        pair = f"{runs[0].path or 'the first run'} and {run.path or 'another'}"
        for kind in ("entities", "relations"):
            _same_names(getattr(runs[0].graph, kind), getattr(run.graph, kind), pair)
        for split in SPLITS:
            one, other = (getattr(each.graph, split).rows() for each in (runs[0], run))
            if not one.equal(other):
                raise HarmoniumError(
                    f"{pair} have other {split} triples ({len(one):,} and {len(other):,}): "
                    "what one was trained on the other may be tested on. Train both on the same graph"
                )
    return Ensemble([run.model for run in runs], weights)


def _same_names(one: Vocabulary, other: Vocabulary, pair: str) -> None:
    for place, (name, its) in enumerate(zip_longest(one.ids, other.ids, fillvalue="(none)")):
        if name != its:
            raise HarmoniumError(
                f"{pair} have other {one.kind} names: number {place} is '{name}' in one and '{its}' in the other. "
                "Train both on the same graph"
            )
