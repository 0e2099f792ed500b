"""Harmony gain against rank change: do the facts that gain most harmony by optimisation also gain rank?

The gain is H(mu, x) - H(x, x) of the true fact. The same model ranks it twice: by H(x, x), the harmony of the composed
vector itself, and by H(mu(x), x). A negative change of rank is an improvement, as is a positive one of 1/rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from harmonium.analysis.statistics import Correlation, spearman
from harmonium.config.setting_values import build
from harmonium.config.settings import EvaluateConfig
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, Part, Table

CANDIDATES: tuple[Literal["typed-all"], Literal["full"]] = ("typed-all", "full")
FACTS_AT_ONCE = 4096


@torch.no_grad()
def gain(
    run: Run | str | Path,
    split: str = "valid",
    limit: int = 100_000,
    ties: str = "realistic",
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> Gain:
    """Spearman correlations of harmony gain and rank change, on at most `limit` queries of a split (a seeded sample).

    >>> gain("runs/demo").to_json()["candidates"]["full"]["spearman"]
    """
    run = Run.of(run)
    model, graph = run.model_on(device), run.graph
    on = model.entity.device
    if model.harmony.tau == 0:
        raise HarmoniumError("at lambda = infinity a token is its composed vector: no gain; train a finite lambda")
    protocol: EvaluateConfig = build(EvaluateConfig, {"split": split, "ties": ties}, "protocol")
    triples = graph.split(split)
    if 2 * len(triples) > limit:
        triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))[: limit // 2]]
    after, harmony = model.prepare(), deepcopy(model.harmony).double()
    before = after.with_form(harmony.fold_unoptimised())
    changes: dict[str, RankChange] = {}
    for candidates in CANDIDATES:
        chosen = replace(protocol, candidates=candidates)
        evaluations = [evaluate_scorer(s, graph, chosen, triples, None, on, progress) for s in (before, after)]
        changes[candidates] = RankChange(*(evaluation.ranks.values(ties) for evaluation in evaluations))
    form, folded = harmony.fold_unoptimised(), harmony.fold()
    assert form.core is not None and folded.core is not None, "harmony has a matrix"
    core, vector = folded.core - form.core, folded.vector - form.vector
    difference = QuadraticForm(core, vector, folded.constant, folded.basis)
    gains = []
    for slot in (Slot.HEAD, Slot.TAIL):
        for chunk in triples.to(on).chunks(FACTS_AT_ONCE):
            vectors = after.entities[chunk[slot]].double()
            gains.append(difference(after.slot_map(slot, chunk).double().apply(vectors)))
    return Gain(graph.name, protocol, torch.cat(gains).cpu(), changes)


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
        """Of the gain (n,) with the change of rank, of reciprocal rank, and of the latter where it is not zero."""
        changed = self.raw != 0
        return {
            "rank": spearman(gain, self.raw),
            "reciprocal_rank": spearman(gain, self.reciprocal),
            "reciprocal_rank_changed": spearman(gain[changed], self.reciprocal[changed]),
        }


@dataclass(frozen=True)
class Gain(Displayed):
    """The gain of each query's true fact, heads first, then tails, and the change of its rank."""

    graph: str
    protocol: EvaluateConfig  # except for the candidates
    gain: Tensor  # (n,)
    changes: dict[str, RankChange]  # by candidates: typed-all and full

    def display(self) -> Iterator[Part]:
        """Correlation of gain and change of rank, under each choice of candidates."""
        titles = {"rank": "rank", "reciprocal_rank": "1/rank", "reciprocal_rank_changed": "1/rank, where it changed"}
        rows, changes = [], []
        for name, part in self.to_json()["candidates"].items():
            for kind, title in titles.items():
                correlation = part["spearman"][kind]
                rows.append([name, title, f"{correlation['rho']:+.4f}", f"{correlation['p']:.2g}", correlation["n"]])
            mrr = f"MRR {part['mrr_before']:.3f} -> {part['mrr_after']:.3f}"
            changes.append(f"{name} {mrr}, {part['unchanged']:.0%} unchanged")
        caption = f"from ranking by H(x, x) to ranking by H(mu, x): {'; '.join(changes)}"
        columns = ["candidates", "gain against change of", "Spearman", "p", "queries"]
        yield Table(f"Harmony gain and rank change, {self.graph} {self.protocol.split}", columns, rows, caption)

    def records(self) -> list[dict[str, Any]]:
        """One row for each correlation."""
        return [
            {"candidates": name, "change_of": kind, **correlation}
            for name, part in self.to_json()["candidates"].items()
            for kind, correlation in part["spearman"].items()
        ]

    def to_json(self) -> dict[str, Any]:
        quantiles = self.gain.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=self.gain.dtype)).tolist()
        return {
            "graph": self.graph,
            "protocol": {key: value for key, value in asdict(self.protocol).items() if key != "candidates"},
            "queries": len(self.gain),
            "gain": dict(zip(("5%", "50%", "95%"), quantiles, strict=True)),
            "candidates": {name: self._change_to_json(change) for name, change in self.changes.items()},
        }

    def _change_to_json(self, change: RankChange) -> dict[str, Any]:
        correlations = change.correlations(self.gain)
        return {
            "mrr_before": (1 / change.before).mean().item(),
            "mrr_after": (1 / change.after).mean().item(),
            "unchanged": (change.raw == 0).double().mean().item(),
            "spearman": {kind: correlation._asdict() for kind, correlation in correlations.items()},
        }
