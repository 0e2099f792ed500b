"""State shared by many requests: a guise that scores its query once, and the model at any lambda."""

import math
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from harmonium.analysis.neighbours import Guise
from harmonium.answers.tokens import FAITHFULNESS
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.ranking import rank
from harmonium.model.exact_scores import ExactScores
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import EmbeddingScorer, Scorer, of_candidates
from harmonium.server.results import LambdaRange

LEAST = 0.01  # lambda of tokens with a truth unit
LAMBDA_MARGIN = 1.02  # factor by which lambda must exceed the largest eigenvalue of W


@dataclass(frozen=True)
class KnownScores(Scorer):
    """Precomputed scores (1, n) of one query, for ranking many of its answers."""

    scores: Tensor
    scorer: Scorer  # that computed them

    def n_candidates(self, slot: Slot) -> int:
        return self.scores.shape[1]

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        return of_candidates(self.scores, candidates).repeat(len(queries), 1)

    def exact_scores(self, slot: Slot, queries: Triples) -> ExactScores | None:
        return self.scorer.exact_scores(slot, queries)


@dataclass(frozen=True)
class PreparedGuise(Guise):
    """A guise with a given scorer, which scores its one query only once."""

    prepared: EmbeddingScorer = field(kw_only=True)

    @cached_property
    def scorer(self) -> EmbeddingScorer:
        return self.prepared

    @cached_property
    def scores(self) -> KnownScores:
        return KnownScores(self.scorer.score_slot(self.slot, self.triple), self.scorer)

    def ranks(self, entities: Tensor) -> list[float]:
        candidates = self.graph.slot_candidates(self.slot) if self.typed else None
        ranks = rank(self.scores, self.triplets(entities), self.slot, self.known, candidates)
        return list(ranks.values().tolist())


@dataclass(frozen=True, eq=False)
class LambdaFamily:
    """A trained model at other values of lambda: the same W and b, folded again."""

    harmony: Harmony  # as trained
    scorer: EmbeddingScorer

    @torch.no_grad()
    def at(self, faithfulness: float) -> tuple[Harmony, EmbeddingScorer]:
        if faithfulness == self.harmony.faithfulness:
            return self.harmony, self.scorer
        harmony = copy(self.harmony)
        harmony.faithfulness = faithfulness
        return harmony, self.scorer.with_form(deepcopy(harmony).double().fold())

    @cached_property
    @torch.no_grad()
    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue of W; at least 0, as outside the span of a W of low rank it is 0."""
        return max(0.0, 2 * self.harmony.fold_unoptimised().double().spectrum()[0].item())

    def range(self, faithfulness: float) -> LambdaRange:
        """The allowed range of lambda; an error if `faithfulness` is outside."""
        minimum = float(f"{max(LAMBDA_MARGIN * self.largest_eigenvalue, 1e-3):.4g}")
        if not faithfulness >= minimum:
            raise HarmoniumError(
                f"lambda must be at least {minimum:.4g}, not {faithfulness:.4g}: at the largest eigenvalue of W, "
                f"{self.largest_eigenvalue:.4g}, and below it harmony has no maximum"
            )
        trained = self.harmony.faithfulness
        return LambdaRange(_finite(faithfulness), _finite(trained), self.largest_eigenvalue, minimum)


def range_of_truth(faithfulness: float) -> LambdaRange:
    """The values that lambda may take for tokens with a truth unit, which need no W."""
    if not faithfulness >= LEAST:
        raise HarmoniumError(f"lambda must be at least {LEAST}, not {faithfulness:.4g}: below it truth alone counts")
    return LambdaRange(_finite(faithfulness), FAITHFULNESS, None, LEAST)


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
