"""Vectors that have not seen the fact they judge: a training for each fold of the facts, on all other folds.

What a model says of a fact it was trained on is mostly memory. Folds cost (folds - 1) trainings of small vectors; they are
trained with the settings that were chosen for the run, nothing is searched again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.build import build_model
from harmonium.model.scoring import EmbeddingScorer
from harmonium.training.fit import fit

FOLDS = 4
DIM = 64  # of the vectors of a fold, at most


@dataclass(frozen=True)
class FoldVectors:
    """A scorer for each fold, trained without the facts of that fold."""

    scorers: tuple[EmbeddingScorer, ...]

    @classmethod
    def train(
        cls,
        graph: Graph,
        facts: Triples,
        folds: Tensor,
        settings: Config,
        *,
        epochs: int | None = None,
        dim: int = DIM,
        progress: Callable[[int], None] | None = None,
    ) -> FoldVectors:
        """Train on `facts` without each fold in turn; `folds` (n,) is the fold of each fact. `progress` counts facts."""
        model, train = settings.model, settings.train
        chosen = replace(
            settings,
            model=replace(model, entity_dim=min(model.entity_dim, dim)),
            train=replace(train, epochs=epochs or train.epochs),
        )
        scorers = []
        for fold in range(int(folds.max()) + 1 if len(folds) else 0):
            others = replace(graph, train=facts[folds != fold], valid=facts[:0], test=facts[:0])
            vectors = build_model(chosen.model, graph.n_entities, graph.n_relations, train.seed + fold)
            fit(vectors, others, chosen)
            scorers.append(vectors.cpu().eval().prepare())
            if progress:
                progress(int((folds == fold).sum()))
        return cls(tuple(scorers))

    @torch.no_grad()
    def scores(self, slot: Slot, facts: Triples, folds: Tensor) -> Tensor:
        """(n, candidates) float32: each fact as a query with this slot open, by the vectors that have not seen it."""
        result = torch.empty(len(facts), self.scorers[0].n_candidates(slot))
        for fold, scorer in enumerate(self.scorers):
            rows = (folds == fold).nonzero()[:, 0]
            if len(rows):
                result[rows] = scorer.score_slot(slot, facts[rows]).float()
        return result


def deal_folds(n_facts: int, count: int = FOLDS) -> Tensor:
    """(n,): a random fold for each fact, all of nearly the same size."""
    order = torch.randperm(n_facts, generator=torch.Generator().manual_seed(0))
    return torch.empty(n_facts, dtype=torch.int64).index_put_((order,), torch.arange(n_facts) % count)
