"""The formula of the probability of an answer, for questions with one slot open (probability.py says what it means)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypedDict

import torch
from torch import Tensor

from harmonium.answers.calibration.logistic import Curve
from harmonium.evaluation.candidates import margins
from harmonium.runtime import schema
from harmonium.runtime.schema import Count, NonNegative, Share

ReliabilityBin = dict[str, Any]  # from, to, facts; probability and true: means over its facts, None where it has none
_StoredBin = TypedDict(
    "_StoredBin", {"from": Share, "to": Share, "facts": Count, "probability": Share | None, "true": Share | None}
)


class Kind(StrEnum):
    """Whether a question has known answers, other than the one that is rated."""

    UNANSWERED = "unanswered"
    ANSWERED = "answered"

    @property
    def text(self) -> str:
        return "without a known answer" if self is Kind.UNANSWERED else "with known answers"

    def of(self, known: Tensor) -> Tensor:
        """Which counts of known answers are of this kind."""
        return known == 0 if self is Kind.UNANSWERED else known > 0


@dataclass(frozen=True)
class LogOdds:
    """The log-odds of answers to one kind of question: curve(slope * margin + known * log(k) + intercept).

    k is the number of known answers times `share`, at least 1.
    """

    slopes: list[NonNegative]  # one for each relation, or one for all; not negative
    intercepts: list[float]
    known: float = 0.0
    share: Share = 1.0  # of train among the known facts
    curve: Curve = field(default_factory=Curve)

    def of(self, relations: Tensor, margin: Tensor, n_known: Tensor) -> Tensor:
        """(n,) float64."""
        rows = relations if len(self.slopes) > 1 else torch.zeros_like(relations)
        slope, intercept = (
            torch.tensor(values, dtype=torch.float64)[rows] for values in (self.slopes, self.intercepts)
        )
        log_known = torch.log((n_known.double() * self.share).clamp(min=1))
        return self.curve.of(slope * margin + self.known * log_known + intercept)


@dataclass(frozen=True)
class Reliability:
    """How the probabilities of one kind of question did on facts that were not used to fit them."""

    split: str  # the split that judged it
    questions: Count
    answers: Count  # the best candidates of the questions
    true: Count
    largest_error: Share | None  # |probability - share of true ones| in a bin of 50 or more answers; None without one
    best_probability: Share  # mean of the best answers of the questions
    best_true: Share  # the share of them that is true
    log_loss: NonNegative  # mean over the answers
    base_log_loss: NonNegative  # with the same probability for all
    bins: list[ReliabilityBin]

    @property
    def caption(self) -> str:
        """What judged it, and the largest error, in words."""
        largest = "no bin has 50 answers" if self.largest_error is None else f"largest error {self.largest_error:.3f}"
        return (
            f"{self.questions:,} queries of {self.split}, {self.true:,} true answers; {largest} (bins of 50 or more)\n"
            f"  best answers: mean probability {self.best_probability:.1%}, true {self.best_true:.1%}; "
            f"log loss {self.log_loss:.4f} (base rate: {self.base_log_loss:.4f})"
        )


@dataclass(frozen=True)
class SlotCalibration:
    """The probabilities of answers to questions with one slot open; a kind of question without a fit has none."""

    log_odds: dict[Kind, LogOdds]
    temperature: NonNegative = 1.0
    reliability: dict[Kind, Reliability] = field(default_factory=dict)

    def logits(self, relations: Tensor, scores: Tensor, log_normaliser: Tensor, known: Tensor) -> Tensor:
        """The log-odds that answers are true, NaN for a kind of question that was not calibrated; float64 on the CPU.

        `scores` (n,) or (n, k); the others are (n,) or can be broadcast to the scores: the relation of the question,
        the log-sum-exp of temperature * score over all candidates, and how many other answers are known.
        """
        margin = margins(scores, log_normaliser, self.temperature)
        relations, known = (
            (values if values.dim() == scores.dim() else values[..., None]).cpu().expand_as(margin)
            for values in (relations, known)
        )
        return self.logits_of_margins(relations, margin, known)

    def logits_of_margins(self, relations: Tensor, margin: Tensor, known: Tensor) -> Tensor:
        """The same from margins; all of one shape."""
        logits = torch.full_like(margin, torch.nan)
        for kind, log_odds in self.log_odds.items():
            rows = kind.of(known)
            logits[rows] = log_odds.of(relations[rows], margin[rows], known[rows])
        return logits

    def probabilities(self, relations: Tensor, scores: Tensor, log_normaliser: Tensor, known: Tensor) -> Tensor:
        """The probability that answers are true; arguments and NaN as those of `logits`."""
        return self.logits(relations, scores, log_normaliser, known).sigmoid()

    def with_share(self, share: float) -> SlotCalibration:
        """For a graph in which `share` of the known facts are those of train."""
        return replace(self, log_odds={kind: replace(fit, share=share) for kind, fit in self.log_odds.items()})

    def check(self, n_groups: int) -> None:
        """A ValueError unless lists have the lengths for so many groups of relations, and probabilities rise with scores."""
        for log_odds in self.log_odds.values():
            curve = log_odds.curve
            if curve.knots != sorted(curve.knots):
                raise ValueError("the knots of a curve do not ascend")
            lengths = len(log_odds.slopes), len(log_odds.intercepts), len(curve.slopes)
            if lengths != (n_groups, n_groups, len(curve.knots) + 1) or not curve.knots:
                raise ValueError("lists of other lengths")
        for judged in self.reliability.values():
            for part in judged.bins:
                means = schema.read(_StoredBin, part, "bins")
                if means["facts"] and (means["probability"] is None or means["true"] is None):
                    raise ValueError("a bin with facts has no means")
