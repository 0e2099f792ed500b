"""How many ranks a program that compares rounded scores could give otherwise: candidates too near to the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.evaluation import draw_facts, evaluate_scorer
from harmonium.evaluation.metrics import METRICS, RoundingCheck
from harmonium.model.scoring import Scorer

SLACK = 4  # a difference of two scores has twice their error; another backend may err twice as much


@dataclass(frozen=True)
class RoundingTies(Scorer):
    """A scorer whose candidates tie with the truth when rounding could swap them.

    That is within SLACK times the largest error of a query's scores, measured against `exact`, the same model in float64.
    Comparing rounded scores in any order of computation (chunks, threads, devices) ranks the truth between the optimistic
    and the pessimistic rank of this scorer.
    """

    scorer: Scorer
    exact: Scorer

    def prepare(self) -> RoundingTies:
        return RoundingTies(self.scorer.prepare(), self.exact.prepare())

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): how far each candidate is ahead of the truth; zero where that is uncertain."""
        exact = self.exact.score_slot(slot, queries)
        error = (self.scorer.score_slot(slot, queries) - exact).abs().amax(1, keepdim=True)
        ahead = exact - exact.gather(1, queries[slot][:, None])
        return ahead.masked_fill_(ahead.abs() <= SLACK * error, 0)


def check_rounding(
    scorer: Scorer,
    exact: Scorer,
    graph: Graph,
    protocol: EvaluateConfig | None = None,
    facts: int = 1000,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> RoundingCheck:
    """Rank a random sample of facts of the split with the ties that rounding allows: see `RoundingTies`."""
    protocol = protocol or EvaluateConfig()
    triples = draw_facts(graph.split(protocol.split), facts)
    ties = RoundingTies(scorer, exact)
    ranks = evaluate_scorer(ties, graph, protocol, triples, chunk=chunk, progress=progress).ranks
    best, worst = ranks.metrics("optimistic"), ranks.metrics("pessimistic")
    bounds = {name: (min(best[name], worst[name]), max(best[name], worst[name])) for name in METRICS}
    return RoundingCheck(len(ranks), int((ranks.tied > 0).sum()), int(ranks.tied.max()), bounds)
