"""The formula of the probability of an answer, for questions with one slot open (probability.py says what it means)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.logistic import Curve
from harmonium.evaluation.candidates import margins

ReliabilityBin = dict[str, Any]  # from, to, facts; probability and true: means over its facts, None where it has none


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

    slopes: list[float]  # one for each relation, or one for all; not negative
    intercepts: list[float]
    known: float = 0.0
    share: float = 1.0  # of train among the known facts
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
    questions: int
    answers: int  # the best candidates of the questions
    true: int
    largest_error: float | None  # |probability - share of true ones| in a bin of 50 or more answers; None without one
    best_probability: float  # mean of the best answers of the questions
    best_true: float  # the share of them that is true
    log_loss: float  # mean over the answers
    base_log_loss: float  # with the same probability for all
    bins: list[ReliabilityBin]


@dataclass(frozen=True)
class SlotCalibration:
    """The probabilities of answers to questions with one slot open; a kind of question without a fit has none."""

    log_odds: dict[Kind, LogOdds]
    temperature: float = 1.0
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SlotCalibration:
        log_odds = {
            Kind(kind): LogOdds(**{**fit, "curve": Curve(**fit["curve"])}) for kind, fit in value["log_odds"].items()
        }
        reliability = {Kind(kind): Reliability(**judged) for kind, judged in value["reliability"].items()}
        return cls(log_odds, value["temperature"], reliability)
