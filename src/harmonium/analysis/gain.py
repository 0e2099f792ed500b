"""Harmony gain against rank change: do the triplets that gain most harmony by optimisation also gain rank?

The gain is Delta H = H(mu, x) - H(x, x) of the true triplet. The same model ranks it twice: by H(x, x), which the composed
vector has of itself, and by H(mu(x), x). A change of rank below zero is an improvement, as is one of 1/rank above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.statistics import Correlation, spearman
from harmonium.config import EvaluateConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate
from harmonium.graph import Graph, Slot, Triples
from harmonium.harmony import QuadraticForm
from harmonium.model import GradientGraph, Snapshot

CANDIDATES = ("typed-all", "full")


@dataclass(frozen=True)
class RankChange:
    """The ranks of the true answers under one protocol, before and after optimisation."""

    before: Tensor  # (n,) by H(x, x)
    after: Tensor  # (n,) by H(mu, x)

    @property
    def raw(self) -> Tensor:
        return self.after - self.before

    @property
    def reciprocal(self) -> Tensor:
        return 1 / self.after - 1 / self.before

    def correlations(self, gain: Tensor) -> dict[str, Correlation]:
        """Of the gain (n,) with the change of rank, of reciprocal rank, and of the latter where it changed at all."""
        moved = self.raw != 0
        return {
            "rank": spearman(gain, self.raw),
            "reciprocal_rank": spearman(gain, self.reciprocal),
            "reciprocal_rank_changed": spearman(gain[moved], self.reciprocal[moved]),
        }


@dataclass(frozen=True)
class Gain:
    """The gain of each query's true triplet, heads first, then tails, and what became of its rank."""

    graph: str
    protocol: EvaluateConfig  # but for the candidates
    gain: Tensor  # (n,)
    changes: dict[str, RankChange]  # by candidates: typed-all and full

    def to_json(self) -> dict[str, Any]:
        edges = torch.tensor([0.05, 0.5, 0.95], dtype=self.gain.dtype)
        protocol = {key: value for key, value in asdict(self.protocol).items() if key != "candidates"}
        found = {"graph": self.graph, "protocol": protocol, "queries": len(self.gain)}
        found["gain"] = dict(zip(("5%", "50%", "95%"), self.gain.quantile(edges).tolist(), strict=True))
        found["candidates"] = {
            name: {
                "mrr_before": (1 / change.before).mean().item(),
                "mrr_after": (1 / change.after).mean().item(),
                "unchanged": (change.raw == 0).double().mean().item(),
                "spearman": {kind: found._asdict() for kind, found in change.correlations(self.gain).items()},
            }
            for name, change in self.changes.items()
        }
        return found


@torch.no_grad()
def measure_gain(
    model: GradientGraph,
    graph: Graph,
    split: str = "valid",
    limit: int = 100_000,
    ties: str = "realistic",
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> Gain:
    """Both sides of a split, at most `limit` queries of it (a seeded sample), under typed and full candidates."""
    if model.harmony.tau == 0:
        raise HarmoniumError(
            "at lambda = infinity a token is its composed vector: no gain; train a finite faithfulness"
        )
    triples, protocol, device = graph.split(split), EvaluateConfig(split=split, ties=ties), model.entity.device
    if 2 * len(triples) > limit:
        triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))[: limit // 2]]
    best, still = model.snapshot(), replace(model.snapshot(), form=model.harmony.still())
    changes = {}
    for candidates in CANDIDATES:
        chosen = replace(protocol, candidates=candidates)
        before, after = (
            evaluate(scorer, graph, chosen, triples, device=device, watch=watch).ranks.values(ties)
            for scorer in (still, best)
        )
        changes[candidates] = RankChange(before, after)
    form, folded = still.form, model.harmony.fold()
    added = QuadraticForm(folded.core - form.core, folded.vector - form.vector, folded.constant, folded.basis).double()
    gain = [_values(added, best, slot, triples.to(device)) for slot in (Slot.HEAD, Slot.TAIL)]
    return Gain(graph.name, protocol, torch.cat(gain).cpu(), changes)


def _values(form: QuadraticForm, snapshot: Snapshot, slot: Slot, triples: Triples, size: int = 4096) -> Tensor:
    """(n,) float64: a form of the vectors that the question for a slot composes."""
    parts = [
        form(snapshot.slot_map(slot, some).double().apply(snapshot.entities[some[slot]].double()))
        for some in triples.chunks(size)
    ]
    return torch.cat(parts)
