"""Forgetting of removed facts: a loss that lowers their log-odds to what these would be without training on them."""

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

MAX_REFERENCE_FACTS = 2048  # sample for the distributions of log-odds of training and of validation facts
MAX_REFERENCE_SCORES = 1 << 23  # computed for that sample, unless MIN_VALID_FACTS need more
MIN_VALID_FACTS = 50
LINKED_SHARE = 1 / 3  # of the usual drop, for a fact whose entities another fact links, if validation has no such facts
MAX_REMOVED_SCORES = 1 << 25  # of removed facts, held at once


class Forgetting:
    """Removed facts, with target log-odds: those that they would have without training on them."""

    def __init__(self, refit: LocalRefit) -> None:
        self.refit = refit
        self.known = {slot: refit.change.graph.known_answers(slot).to(refit.device) for slot in SIDES}
        self.batch_size = max(1, MAX_REMOVED_SCORES // refit.n_entities)
        with torch.no_grad():
            self.vectors = refit.model.scorer(refit.table(refit.model, refit.rows, None)).entities  # at the start
            self.targets = self._targets()

    def _targets(self) -> Tensor:
        """(2, n): target log-odds: the quantile of a fact among training facts, taken among validation facts.

        Facts whose entities another training fact links are easier to predict, so these are compared with each other.
        Validation often has none, as splits avoid them: then the target is LINKED_SHARE of the way to the others.
        """
        refit, now = self.refit, self._log_odds_of(self.refit.removed)
        valid = refit.change.graph.valid
        if len(valid) < MIN_VALID_FACTS or not len(refit.kept):
            return now.minimum(torch.full_like(now, -math.log(refit.n_entities)))
        pairs, counts = self._pairs(refit.kept).unique(return_counts=True)
        targets, valid_linked = now.clone(), is_member(self._pairs(valid), pairs)
        count = max(MIN_VALID_FACTS, min(MAX_REFERENCE_FACTS, MAX_REFERENCE_SCORES // refit.n_entities))
        for linked in (False, True):
            chosen = (is_member(self._pairs(refit.removed), pairs) == linked).to(refit.device)
            if not chosen.any():
                continue
            shown, unseen = (
                refit.kept[is_member(self._pairs(refit.kept), pairs[counts > 1]) == linked],
                valid[valid_linked == linked],
            )
            has_like = len(unseen) >= MIN_VALID_FACTS and len(shown) >= MIN_VALID_FACTS
            samples = (shown, unseen) if has_like else (refit.kept, valid)
            before, after = (self._log_odds_of(refit.sample(facts, count)).sort(1).values for facts in samples)
            target = transport(now[:, chosen], before, after)
            targets[:, chosen] = target if has_like or not linked else now[:, chosen].lerp(target, LINKED_SHARE)
        return now.minimum(targets)

    def _pairs(self, facts: Triples) -> Tensor:
        """(n,): the two entities of each fact, in either order, encoded as one number."""
        return facts.head.minimum(facts.tail) * self.refit.n_entities + facts.head.maximum(facts.tail)

    def loss(self, index: Tensor) -> Tensor:
        """Mean squared excess of the log-odds of removed facts (at positions `index`) over their targets."""
        index = index[: self.batch_size]
        excess = self._log_odds(self.refit.removed[index]) - self.targets[:, index.to(self.refit.device)]
        return excess.relu().square().mean()

    def _log_odds_of(self, facts: Triples) -> Tensor:
        return torch.cat([self._log_odds(part) for part in facts.chunks(self.batch_size)], dim=1)

    def _log_odds(self, facts: Triples) -> Tensor:
        """(2, n): log-odds of the head and of the tail of each fact among all entities that are not known answers."""
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
    """Map values (k, n) to equal quantiles of another distribution; source (k, m) and target (k, l) are sorted samples."""
    quantile = torch.searchsorted(source, values.contiguous()).double() / source.shape[1]
    return target.gather(1, (quantile * (target.shape[1] - 1)).round().long())
