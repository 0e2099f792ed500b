"""Removed facts are forgotten: the log-odds that each would have if it had never been shown, and a loss that leads there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harmonium.data.index import is_member
from harmonium.data.triples import Triples
from harmonium.kernels import dispatch
from harmonium.training.negatives import SIDES

if TYPE_CHECKING:
    from harmonium.training.refit.local_refit import LocalRefit

REFERENCE = 2048  # facts, at most, that show how log-odds of training facts and of validation facts are distributed
REFERENCE_SCORES = 1 << 23  # scores of them that are computed, at most, unless for MIN_VALID facts
MIN_VALID = 50
LINKED = 1 / 3  # part of the way that a fact falls if another one links its entities, where none shows how far
MAX_REMOVED_SCORES = 1 << 25  # held at once for removed facts


class Forgetting:
    """Removed facts, and the log-odds that each of them would have if it had never been shown."""

    def __init__(self, refit: LocalRefit) -> None:
        self.refit = refit
        self.known = {slot: refit.change.graph.known_answers(slot).to(refit.device) for slot in SIDES}
        self.batch_size = max(1, MAX_REMOVED_SCORES // refit.n_entities)
        with torch.no_grad():
            self.vectors = refit.model.scorer(refit.table(refit.model, refit.rows, None)).entities  # at the start
            self.targets = self._targets()

    def _targets(self) -> Tensor:
        """(2, n): the place among validation facts that each removed fact has among training facts.

        Facts whose entities another training fact links are easier to guess, and compared with each other. Often there
        are none among validation facts, as splits avoid them: then a part of the way to the others is taken.
        """
        refit, now = self.refit, self._log_odds_of(self.refit.removed)
        valid = refit.change.graph.valid
        if len(valid) < MIN_VALID or not len(refit.kept):
            return now.minimum(torch.full_like(now, -math.log(refit.n_entities)))
        pairs, counts = self._pairs(refit.kept).unique(return_counts=True)
        targets, valid_linked = now.clone(), is_member(self._pairs(valid), pairs)
        count = max(MIN_VALID, min(REFERENCE, REFERENCE_SCORES // refit.n_entities))
        for linked in (False, True):
            chosen = (is_member(self._pairs(refit.removed), pairs) == linked).to(refit.device)
            if not chosen.any():
                continue
            shown, unseen = (
                refit.kept[is_member(self._pairs(refit.kept), pairs[counts > 1]) == linked],
                valid[valid_linked == linked],
            )
            has_like = len(unseen) >= MIN_VALID and len(shown) >= MIN_VALID
            samples = (shown, unseen) if has_like else (refit.kept, valid)
            before, after = (self._log_odds_of(refit.sample(facts, count)).sort(1).values for facts in samples)
            target = transport(now[:, chosen], before, after)
            targets[:, chosen] = target if has_like or not linked else now[:, chosen].lerp(target, LINKED)
        return now.minimum(targets)

    def _pairs(self, facts: Triples) -> Tensor:
        """(n,): the two entities of each fact, in either order, as one number."""
        return facts.head.minimum(facts.tail) * self.refit.n_entities + facts.head.maximum(facts.tail)

    def loss(self, index: Tensor) -> Tensor:
        """The mean square by which the log-odds of removed facts, at these positions, are above their targets."""
        index = index[: self.batch_size]
        excess = self._log_odds(self.refit.removed[index]) - self.targets[:, index.to(self.refit.device)]
        return excess.relu().square().mean()

    def _log_odds_of(self, facts: Triples) -> Tensor:
        return torch.cat([self._log_odds(part) for part in facts.chunks(self.batch_size)], dim=1)

    def _log_odds(self, facts: Triples) -> Tensor:
        """(2, n): of the head and of the tail of each fact against all entities that are not known answers."""
        facts, rows = facts.to(self.refit.device), list[Tensor]()
        for slot, scores in zip(SIDES, self.scores(facts), strict=True):
            excluded = torch.zeros_like(scores, dtype=torch.bool)
            excluded[self.known[slot].of(facts)] = True
            truth = facts[slot][:, None]
            others = scores.masked_fill(excluded.scatter(1, truth, True), -torch.inf)
            rows.append(scores.gather(1, truth)[:, 0] - others.logsumexp(1))
        return torch.stack(rows).clamp(min=-100, max=100)

    def scores(self, facts: Triples) -> Iterator[Tensor]:
        """(n, n_entities) for each side; gradients of entities that do not move are not computed."""
        refit = self.refit
        if 2 * len(refit.entities) > refit.n_entities:
            scorer = refit.scorer(facts)
            yield from (scorer.score_slot(slot) for slot in SIDES)
            return
        ids = torch.cat([refit.entities.to(refit.device), facts.head, facts.tail]).unique()
        scorer = refit.scorer_of(refit.model, refit.table(refit.model, refit.rows, ids), facts, ids)
        for slot in SIDES:
            fixed = dispatch.all_scores(scorer.form, scorer.slot_map(slot), self.vectors)
            yield fixed.index_copy(1, ids, scorer.score_slot(slot))


def transport(values: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Values (k, n) at the same quantile of another distribution; both are ascending samples (k, m) and (k, l)."""
    quantile = torch.searchsorted(source, values.contiguous()).double() / source.shape[1]
    return target.gather(1, (quantile * (target.shape[1] - 1)).round().long())
