"""What rounding leaves uncertain about ranks: candidates whose scores are too near to the truth's to tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.config import EvaluateConfig
from harmonium.evaluation import METRICS, Scorer, evaluate, steady
from harmonium.graph import Graph, Slot, Triples

SLACK = 4  # a difference of two scores has twice their error; another way of computing may err twice as much


@dataclass(frozen=True)
class Blurred:
    """A scorer whose candidates tie with the truth when their scores are too near to tell apart in its numbers.

    Near is within SLACK times the largest error of a query's scores, which `exact`, the same in float64, shows. Any other
    way of computing (chunks, threads, devices) then ranks the truth between its optimistic and its pessimistic rank here.
    """

    scorer: Scorer
    exact: Scorer

    def snapshot(self) -> Blurred:
        return Blurred(steady(self.scorer), steady(self.exact))

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): how far each is ahead of the truth; zero where that is not certain."""
        exact = self.exact.score_slot(slot, queries)
        error = (self.scorer.score_slot(slot, queries) - exact).abs().amax(1, keepdim=True)
        ahead = exact - exact.gather(1, queries[slot][:, None])
        return ahead.masked_fill_(ahead.abs() <= SLACK * error, 0)


@dataclass(frozen=True)
class Gaps:
    """What rounding leaves uncertain about ranks."""

    queries: int  # looked at
    uncertain: int  # of them have a candidate too near to the truth to tell apart; the rank may be another there
    most: int  # such candidates of one query
    metrics: dict[str, tuple[float, float]]  # between these, however they fall


def measure_gaps(
    scorer: Scorer,
    exact: Scorer,
    graph: Graph,
    protocol: EvaluateConfig | None = None,
    facts: int = 1000,
    **options: Any,
) -> Gaps:
    """How many ranks hang on rounding, by so many facts of the split, drawn at random: see `Blurred`."""
    protocol = protocol or EvaluateConfig()
    triples = graph.split(protocol.split)
    drawn = torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))[:facts]
    ranks = evaluate(Blurred(scorer, exact), graph, protocol, triples[drawn.sort().values], **options).ranks
    best, worst = ranks.metrics("optimistic"), ranks.metrics("pessimistic")
    between = {name: tuple(sorted((best[name], worst[name]))) for name in METRICS}
    return Gaps(len(ranks), int((ranks.tied > 0).sum()), int(ranks.tied.max()), between)
