"""The facts that judge a trial, and when one trial is better than another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.split import hold_out
from harmonium.data.triples import Triples
from harmonium.evaluation.evaluation import draw_facts, evaluate_scorer
from harmonium.model.build import build_model
from harmonium.runtime.distributed import World
from harmonium.training.fit import fit
from harmonium.training.search.space import with_settings
from harmonium.training.state import Progress

MIN_HELD_OUT = 250  # facts that judge a trial; where validation has fewer, training facts are held out too
MAX_HELD_OUT = 1000
MAX_PARTS = 4  # trainings of a trial on a graph with few facts
EVIDENCE = 0.5  # standard errors by which an alternative must be better


@dataclass(frozen=True)
class HeldOut:
    """A graph to train on, and the facts that judge the training."""

    train: Graph  # without validation facts
    known: Graph  # whose facts are filtered from the ranking
    facts: Triples

    def reciprocal_ranks(
        self,
        config: Config,
        device: torch.device,
        progress: Callable[[Progress], None] | None = None,
        at_half: Callable[[float], None] | None = None,
        world: World | None = None,
    ) -> Tensor:
        """(2 n,): of the heads and the tails of the facts, under a model trained with these settings.

        The processes of a `world` train it together, and all have the result.

        Where facts have weights they are multiplied by them, so that their mean is the weighted one. `at_half` is told
        the MRR after half of the epochs, and may raise an error to end a hopeless training.
        """
        half = math.ceil(config.train.epochs / 2)
        config = with_settings(config, {"train.evaluate_every": half, "train.validation_triples": 10**6})
        shape = self.train.n_entities, self.train.n_relations
        model = build_model(config.model, *shape, config.train.seed, world)

        def judge_half(row: dict[str, Any]) -> None:
            if at_half is not None and row["epoch"] == half < config.train.epochs:
                at_half(row["valid"]["mrr"])

        history = fit(model, replace(self.train, valid=self.facts), config, progress, judge_half)
        if history.stopped.startswith("interrupted"):
            raise KeyboardInterrupt
        evaluation = evaluate_scorer(model, self.known, EvaluateConfig(split="valid"), self.facts, device=device)
        reciprocal, weight = 1 / evaluation.ranks.values("realistic").cpu(), evaluation.ranks.weight
        return reciprocal if weight is None or not weight.any() else reciprocal * weight / weight.mean()


def held_out_parts(graph: Graph, seed: int) -> list[HeldOut]:
    """The validation facts, or a sample of them; where they are few, random parts of the training facts as well.

    On a very small graph there may be none.
    """
    empty = graph.valid[:0]
    parts = []
    if len(graph.valid):
        parts.append(HeldOut(replace(graph, valid=empty), graph, draw_facts(graph.valid, MAX_HELD_OUT)))
    share = min(0.2, MIN_HELD_OUT / max(1, len(graph.train)))
    while sum(len(part.facts) for part in parts) < MIN_HELD_OUT and len(parts) < MAX_PARTS:
        train, facts = hold_out(graph, share, seed + 1000 + len(parts))
        if not len(facts):
            break
        reduced = replace(graph, train=train, valid=facts)
        parts.append(
            HeldOut(replace(reduced, valid=empty), replace(reduced, valid=Triples.cat([facts, graph.valid])), facts)
        )
    return parts


def is_better(candidate: Tensor, best: Tensor | None) -> bool:
    """Whether the reciprocal ranks of the same queries are higher by more than some of their standard error."""
    if best is None:
        return True
    difference = candidate - best
    error = difference.std() / math.sqrt(len(difference)) if len(difference) > 1 else torch.tensor(torch.inf)
    return bool(difference.mean() > EVIDENCE * error)
