"""Exact comparisons: which candidates beat the true answer of a query, and which tie with it.

Scores of all candidates are computed fast, and candidates too near to the true answer to tell apart are scored again in
float64, from the stored parameters. The result does not depend on the batch, the backend or the number of threads
(docs/decisions/015-ties-are-within-rounding.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.kernels.pair_scores import PairScores
from harmonium.kernels.pruning import Decide
from harmonium.model.composition import SlotMap
from harmonium.model.entity_vectors import EntityVectors

NUMBERS_PER_PIECE = 1 << 22  # numbers composed at once (32 MB of float64)
Scores = tuple[Tensor, Tensor]  # (m,) float64 twice: scores, and bounds on their rounding errors


class ExactScores(ABC):
    """float64 scores of single candidates for the open slot of n queries."""

    @abstractmethod
    def of(self, row: Tensor, candidate: Tensor) -> Scores:
        """The scores of candidates by id (m,) for the queries row (m,)."""

    @cached_property
    @abstractmethod
    def of_truth(self) -> Scores:
        """(n,): the scores of the true answers."""

    @cached_property
    @abstractmethod
    def error_of_faster_scores(self) -> Tensor:
        """(n,): bounds on the errors of the fast scores of all candidates."""

    def ahead(self, row: Tensor, candidate: Tensor) -> Tensor:
        """(m,): score of each candidate minus that of the true answer; zero if they tie within rounding."""
        scores, errors = self.of(row, candidate)
        true_scores, true_errors = (column[row] for column in self.of_truth)
        difference = scores - true_scores
        return difference.masked_fill_(difference.abs() <= errors + true_errors, 0)

    def decide_from(self, start: int) -> Decide:
        """A function that decides comparisons by (row, column) of the block of candidates that begins with id `start`."""
        return lambda row, column: self.ahead(row, start + column)


@dataclass(frozen=True)
class Comparison:
    """A block of candidates against the true answer of each query.

    Candidates whose value is above `high` beat the true answer, and those below `low` lose. Those in between
    are decided one by one: `decide(row, column)` is positive, zero (a tie) or negative. Without `decide` they tie.
    """

    start: int  # the id of the first candidate
    values: Tensor  # (n, block)
    low: Tensor  # (n, 1)
    high: Tensor  # (n, 1)
    decide: Decide | None = None

    @classmethod
    def within_error(cls, start: int, scores: Tensor, exact: ExactScores) -> Comparison:
        """Comparison by fast scores; candidates within their error bound of the true answer are decided by exact scores."""
        (true_scores, true_errors), error = exact.of_truth, exact.error_of_faster_scores
        slack = error + 4 * true_errors  # tied scores may differ by the errors of both
        low, high = ((true_scores + side * slack).to(scores.dtype)[:, None] for side in (-1, 1))
        return cls(start, scores, low, high, exact.decide_from(start))


@dataclass(frozen=True)
class ExactSlotScores(ExactScores):
    """Exact scores of a GradientGraph, whose vectors and form are in float64."""

    pairs: PairScores
    candidates: EntityVectors | Tensor  # entities, or the vectors of all relations
    truth: Tensor  # (n,) ids
    longest: Tensor  # the length of the longest candidate
    dtype: torch.dtype  # of the scores of all candidates

    def of(self, row: Tensor, candidate: Tensor) -> Scores:
        if not len(row):
            return torch.empty_like(row, dtype=torch.float64), torch.empty_like(row, dtype=torch.float64)
        step = max(1, NUMBERS_PER_PIECE // max(self.pairs.dim, self.pairs.slot_map.slot_dim))
        pieces = zip(row.split(step), candidate.split(step), strict=True)
        scores, errors = zip(*(self.pairs(rows, self._vectors(ids)) for rows, ids in pieces), strict=True)
        return torch.cat(scores), torch.cat(errors)

    def _vectors(self, ids: Tensor) -> Tensor:
        vectors = self.candidates
        return vectors[ids] if isinstance(vectors, Tensor) else vectors.local(ids)

    @cached_property
    def of_truth(self) -> Scores:
        vectors = self.candidates[self.truth] if isinstance(self.candidates, Tensor) else self.candidates.of(self.truth)
        return self.pairs(torch.arange(len(self.truth), device=vectors.device), vectors)

    @cached_property
    def error_of_faster_scores(self) -> Tensor:
        return self.pairs.error_of_faster_scores(self.dtype, self.longest)

    @property
    def slot_map(self) -> SlotMap:
        assert isinstance(self.pairs.slot_map, SlotMap), "a model has slot maps of its composition"
        return self.pairs.slot_map


@dataclass(frozen=True)
class WeightedExactScores(ExactScores):
    """Exact scores of a weighted sum of scorers."""

    parts: Sequence[ExactScores]
    weights: Sequence[float]

    def of(self, row: Tensor, candidate: Tensor) -> Scores:
        return self._sum([part.of(row, candidate) for part in self.parts])

    @cached_property
    def of_truth(self) -> Scores:
        return self._sum([part.of_truth for part in self.parts])

    @cached_property
    def error_of_faster_scores(self) -> Tensor:
        parts = zip(self.weights, self.parts, strict=True)
        return 2 * torch.stack([abs(weight) * part.error_of_faster_scores for weight, part in parts]).sum(0)

    def _sum(self, parts: Sequence[Scores]) -> Scores:
        scores = torch.stack([weight * scores for weight, (scores, _) in zip(self.weights, parts, strict=True)])
        errors = torch.stack([abs(weight) * errors for weight, (_, errors) in zip(self.weights, parts, strict=True)])
        return scores.sum(0), 2 * errors.sum(0)  # twice: the sum is rounded too
