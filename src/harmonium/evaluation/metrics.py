"""Ranks, metrics computed from them, and confidence intervals if only a sample was ranked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from harmonium.data.triples import Triples
from harmonium.runtime import schema

METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "amri")
WEIGHTED = tuple(f"weighted_{name}" for name in METRICS)  # weighted means, if facts have weights
HITS = (1, 3, 10)  # k of hits@k
Z_95 = 1.96  # half width of a 95 % interval in standard errors
TIES = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}  # share of ties that count as better


@dataclass(frozen=True)
class Ranks:
    """For each query: how many candidates scored better than the truth, how many tied with it, out of how many."""

    better: Tensor  # (n,) int64
    tied: Tensor  # (n,) int64, the truth excluded
    candidates: Tensor  # (n,) int64, the truth included
    relation: Tensor  # (n,) int64
    is_head: Tensor  # (n,) bool: the head was the open slot
    weight: Tensor | None = None  # (n,) float64: of the fact, if facts have weights

    def __len__(self) -> int:
        return len(self.better)

    @property
    def columns(self) -> tuple[Tensor, ...]:
        return self.better, self.tied, self.candidates, self.relation, self.is_head

    def __getitem__(self, index: Tensor | slice) -> Ranks:
        ranks = Ranks(*(column[index] for column in self.columns))
        return ranks if self.weight is None else replace(ranks, weight=self.weight[index])

    @classmethod
    def cat(cls, parts: Sequence[Ranks]) -> Ranks:
        """Concatenate parts in order; weights are dropped."""
        return cls(*(torch.cat(columns) for columns in zip(*(part.columns for part in parts), strict=True)))

    def with_weights(self, facts: Triples) -> Ranks:
        """Add the weights of the ranked facts, if they have any. The ranks are of one side after the other."""
        if facts.weight is None:
            return self
        return replace(self, weight=facts.weight.double().cpu().repeat(len(self) // len(facts)))

    def values(self, ties: str = "realistic") -> Tensor:
        """(n,) float64 ranks from 1; among tied candidates the truth ranks in the middle, first or last."""
        return 1 + self.better.double() + TIES[ties] * self.tied.double()

    def metrics(self, ties: str = "realistic") -> dict[str, float]:
        """mr, mrr, hits@1/3/10 and amri = 1 - (mr - 1) / (mr expected by chance - 1).

        Each query counts once. If facts have weights, weighted means over the queries are added:
        weighted_mr and so on.
        """
        metrics = self._metrics(ties, torch.Tensor.mean)
        if self.weight is None:
            return metrics
        share = self.weight / self.weight.max() if len(self) else self.weight  # otherwise their sum could overflow
        weighted = self._metrics(ties, lambda values: (share * values).sum() / share.sum())
        return metrics | dict(zip(WEIGHTED, weighted.values(), strict=True))

    def _metrics(self, ties: str, mean: Callable[[Tensor], Tensor]) -> dict[str, float]:
        if not len(self):
            return dict.fromkeys(METRICS, math.nan)
        ranks = self.values(ties)
        mr = mean(ranks).item()
        chance = mean(self.candidates.double() + 1).item() / 2
        hits = {f"hits@{k}": mean((ranks <= k).double()).item() for k in HITS}
        amri = 1 - (mr - 1) / (chance - 1) if chance > 1 else math.nan
        return {"mr": mr, "mrr": mean(ranks.reciprocal()).item(), **hits, "amri": amri}


def decisive(metrics: Mapping[str, float], name: str) -> float:
    """The metric by which models are compared: the weighted one if facts have weights."""
    return metrics.get(f"weighted_{name}", metrics[name])


@dataclass(frozen=True)
class Estimate:
    """Metrics of a whole split estimated from a random sample of its facts."""

    facts: int  # in the sample
    of: int  # in the split
    intervals: dict[str, tuple[float, float]]  # 95 % confidence interval of each metric

    @property
    def label(self) -> str:
        return f"estimated from {self.facts:,} of {self.of:,} facts drawn at random"

    def to_json(self) -> dict[str, Any]:
        return {"words": f"{self.label}; intervals of 95 %", **asdict(self)}

    @classmethod
    def from_json(cls, value: Any) -> Estimate:
        """Read what `to_json` made; a ValueError names a missing key or a wrong type."""
        stored = schema.read(_StoredEstimate, value, "estimate")
        intervals = {name: (defined(low), defined(high)) for name, (low, high) in stored["intervals"].items()}
        return cls(stored["facts"], stored["of"], intervals)

    @classmethod
    def from_ranks(cls, ranks: Ranks, ties: str, facts: int, of: int) -> Estimate:
        """Intervals from ranks of (sides, facts) queries: facts were drawn, so the ranks of one fact are not independent.

        MRR and hits@k get the Wilson interval of as many independent draws as would have the same standard error;
        MR and AMRI a log-normal interval, as a few ranks may hold most of their sum (below 2,000 facts it can still be
        too narrow).
        """
        rank = ranks.values(ties).view(-1, facts)  # (sides, facts)
        chance = (ranks.candidates.double().view(-1, facts) - 1) / 2  # (sides, facts)
        ones = torch.ones_like(rank)
        low, high = _log_normal_interval(*_ratio(rank - 1, chance, of))
        intervals = {
            "mr": _log_normal_interval(*_ratio(rank, ones, of)),
            "mrr": _share_interval(*_ratio(1 / rank, ones, of), facts),
        }
        for k in HITS:
            intervals[f"hits@{k}"] = _share_interval(*_ratio((rank <= k).double(), ones, of), facts)
        return cls(facts, of, intervals | {"amri": (1 - high, 1 - low)})


class _StoredEstimate(TypedDict):
    words: str
    facts: schema.Count
    of: schema.Count
    intervals: dict[str, tuple[float | None, float | None]]


_StoredMetrics = TypedDict(  # null: undefined, as amri is if there is a single candidate
    "_StoredMetrics",
    {
        "mr": float | None,
        "mrr": float | None,
        "hits@1": float | None,
        "hits@3": float | None,
        "hits@10": float | None,
        "amri": float | None,
        "weighted_mr": NotRequired[float | None],
        "weighted_mrr": NotRequired[float | None],
        "weighted_hits@1": NotRequired[float | None],
        "weighted_hits@3": NotRequired[float | None],
        "weighted_hits@10": NotRequired[float | None],
        "weighted_amri": NotRequired[float | None],
        "queries": NotRequired[schema.Count],
    },
)


def read_metrics(value: Any, key: str = "metrics") -> dict[str, float]:
    """Metrics from their JSON; a ValueError names a missing key or a wrong type."""
    return {name: defined(number) for name, number in schema.read(_StoredMetrics, value, key).items()}


def defined(number: Any) -> Any:
    """A number of a JSON file, in which null is NaN."""
    return math.nan if number is None else number


def _ratio(numerator: Tensor, denominator: Tensor, of: int) -> tuple[float, float]:
    """mean(y) / mean(x) over facts drawn from `of`, and its standard error, that of the mean of y - ratio * x."""
    y, x = numerator.mean(0), denominator.mean(0)  # (facts,)
    ratio = (y.mean() / x.mean()).item()
    variance = (1 - len(y) / of) / len(y) * (y - ratio * x).var().item()
    return ratio, math.sqrt(variance) / x.mean().item()


def _log_normal_interval(value: float, error: float) -> tuple[float, float]:
    factor = math.exp(Z_95 * error / value) if value else 1.0
    return value / factor, value * factor


def _share_interval(share: float, error: float, facts: int) -> tuple[float, float]:
    return wilson_interval(share, share * (1 - share) / error**2 if error else facts)


def wilson_interval(share: float, draws: float) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share in `draws` independent draws."""
    weight = Z_95**2 / draws
    middle, half = share + weight / 2, math.sqrt(weight * share * (1 - share) + weight**2 / 4)
    return (middle - half) / (1 + weight), (middle + half) / (1 + weight)
