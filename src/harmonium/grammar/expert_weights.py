"""The weights of a product of experts, learned on validation facts: log-linear pooling.

    p(answer) ~ exp(sum_m w_m score_m(answer)),   w_m >= 0

The log-likelihood of the true answers is concave in w; Newton's method with the constraint w >= 0 finds its maximum. A
weak prior keeps weights finite where experts are never wrong. An expert that adds less than log(queries) / 2 nats to the
log-likelihood of all queries (Schwarz's criterion, BIC) gets the weight zero, so that noise does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.scoring import Scorer

MAX_VALIDATION_FACTS = 5000
MAX_SCORES_KEPT = {"cpu": 1 << 27, "cuda": 1 << 30}  # kept: 512 MB, 4 GB
SCORES_PER_CHUNK = 1 << 22  # scores of one expert worked on at once
MAX_STEPS = 50
GRADIENT_TOLERANCE = 1e-6  # of the gradient, in nats per query and standard deviation of scores


@dataclass(frozen=True)
class ExpertWeights:
    """Learned weights, and what they gain on the validation facts."""

    weights: tuple[float, ...]
    log_likelihood: float  # nats per query
    equal_log_likelihood: float  # of all weights one
    facts: int


@torch.no_grad()
def learn_weights(
    experts: Sequence[Scorer], graph: Graph, device: torch.device | str = "cpu", facts: Triples | None = None
) -> ExpertWeights:
    """The weights under which the true answers of validation facts (or the given ones) are most likely.

    Other answers known in train and validation are no candidates; test facts play no part. Where there are many facts
    or entities, a seeded sample of the facts is used.
    """
    facts = graph.valid if facts is None else facts
    if not len(facts):
        raise HarmoniumError("learned weights need validation facts, and the graph has none; use equal weights")
    facts = _sample(facts, len(experts) * graph.n_entities, torch.device(device))
    queries = _Queries.gather(experts, graph, facts.to(device))
    weights = _without_idle_experts(queries)
    equal = queries.derivatives(torch.ones_like(weights))[0]
    value = queries.derivatives(weights)[0]
    return ExpertWeights(tuple(weights.tolist()), value, equal, len(facts))


def _sample(facts: Triples, scores_per_query: int, device: torch.device) -> Triples:
    """As many facts as may be used, with two queries each."""
    count = MAX_SCORES_KEPT.get(device.type, MAX_SCORES_KEPT["cpu"]) // (2 * scores_per_query)
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))
    return facts[order[: max(1, min(count, MAX_VALIDATION_FACTS))].sort().values]


def _without_idle_experts(queries: _Queries) -> Tensor:
    """(experts,): the best weights, without the experts whose absence costs too little."""
    n_queries = len(queries.truth)
    kept = torch.ones(queries.n_experts, dtype=torch.bool)
    weights, value = _maximise(queries, kept)
    if not weights.any():  # no expert makes the true answers more likely
        return torch.ones_like(weights)
    while kept.sum() > 1:
        idle = [expert for expert in kept.nonzero().flatten().tolist() if weights[expert] == 0]
        if not idle:
            without = {expert: _maximise(queries, _drop(kept, expert)) for expert in kept.nonzero().flatten().tolist()}
            best = max(without, key=lambda expert: without[expert][1])
            if (value - without[best][1]) * n_queries >= math.log(n_queries) / 2:
                break
            idle = [best]
        kept = _drop(kept, *idle)
        weights, value = _maximise(queries, kept)
    return weights


def _drop(kept: Tensor, *experts: int) -> Tensor:
    kept = kept.clone()
    kept[list(experts)] = False
    return kept


def _maximise(queries: _Queries, allowed: Tensor) -> tuple[Tensor, float]:
    """Newton's method with w >= 0, and w = 0 where an expert is not allowed: the weights, and their value."""
    weights = allowed.double() / queries.spread
    value, slope, curvature = queries.penalised(weights)
    for _ in range(MAX_STEPS):
        direction = _ascent(weights, slope, curvature, allowed)
        if (direction * slope).sum() < GRADIENT_TOLERANCE**2 or not direction.any():
            break
        size = 1.0
        while size > 1e-6:
            moved = (weights + size * direction).clamp(min=0)
            attempt = queries.penalised(moved)
            if attempt[0] > value:
                break
            size /= 2
        else:
            break
        weights, (value, slope, curvature) = moved, attempt
    return weights, value


def _ascent(weights: Tensor, slope: Tensor, curvature: Tensor, allowed: Tensor) -> Tensor:
    """The Newton direction in the weights that are free: allowed, and not held at zero by the constraint."""
    free = allowed & ((weights > 0) | (slope > 0))
    direction = torch.zeros_like(weights)
    while free.any():
        direction = torch.zeros_like(weights)
        direction[free] = torch.linalg.solve(-curvature[free][:, free], slope[free])
        leaves = free & (weights == 0) & (direction < 0)
        if not leaves.any():
            return direction
        free = free & ~leaves
        direction = torch.zeros_like(weights)
    return direction


@dataclass(frozen=True)
class _Queries:
    """The scores of all candidates of each query by each expert."""

    scores: Tensor  # (experts, queries, candidates), less the score of the true answer
    truth: Tensor  # (queries,)
    excluded: Tensor  # (queries, candidates) bool: other known answers
    spread: Tensor  # (experts,): standard deviation of an expert's scores of a query

    @classmethod
    def gather(cls, experts: Sequence[Scorer], graph: Graph, facts: Triples) -> _Queries:
        scores, excluded = [], []
        for slot in (Slot.HEAD, Slot.TAIL):
            per_expert = [_relative_scores(expert, slot, facts) for expert in experts]
            row, answer = graph.known_answers(slot, ("train", "valid"), facts.to("cpu")).to(facts.head.device).of(facts)
            known = torch.zeros_like(per_expert[0], dtype=torch.bool)
            known[row, answer] = True
            known[torch.arange(len(facts), device=known.device), facts[slot]] = False
            scores.append(torch.stack(per_expert))
            excluded.append(known)
        joined = torch.cat(scores, dim=1)
        spread = joined.std(dim=-1).mean(dim=-1).double().cpu().clamp(min=1e-30)
        return cls(joined, torch.cat([facts.head, facts.tail]), torch.cat(excluded), spread)

    @property
    def n_experts(self) -> int:
        return len(self.scores)

    def penalised(self, weights: Tensor) -> tuple[float, Tensor, Tensor]:
        """`derivatives` with a prior worth one query: a standard normal on each weight times its expert's spread."""
        value, slope, curvature = self.derivatives(weights)
        precision = self.spread.square() / len(self.truth)
        value -= float((precision * weights.square()).sum()) / 2
        return value, slope - precision * weights, curvature - precision.diag()

    def derivatives(self, weights: Tensor) -> tuple[float, Tensor, Tensor]:
        """The mean log-likelihood of the true answers, its gradient (experts,) and its Hessian (experts, experts)."""
        n_queries, n_candidates = self.excluded.shape
        n_experts = self.n_experts
        value, slope = 0.0, torch.zeros(n_experts, dtype=torch.float64)
        curvature = torch.zeros(n_experts, n_experts, dtype=torch.float64)
        on_device = weights.to(self.scores.device, self.scores.dtype)
        step = max(1, SCORES_PER_CHUNK // n_candidates)
        for start in range(0, n_queries, step):
            rows = slice(start, start + step)
            scores, truth = self.scores[:, rows], self.truth[rows]
            logits = torch.einsum("m,mqn->qn", on_device, scores).masked_fill_(self.excluded[rows], -torch.inf)
            log_p = logits.log_softmax(1)
            value += log_p.gather(1, truth[:, None]).sum(dtype=torch.float64).item()
            weighted = scores * log_p.exp()  # (experts, q, n)
            mean = weighted.sum(-1)  # (experts, q)
            slope -= mean.sum(1, dtype=torch.float64).cpu()
            second = weighted.flatten(1) @ scores.flatten(1).T  # sum over queries of E[s s']
            curvature -= (second - mean @ mean.T).double().cpu()
        return value / n_queries, slope / n_queries, curvature / n_queries


def _relative_scores(expert: Scorer, slot: Slot, facts: Triples) -> Tensor:
    """(facts, candidates): scores less that of the true answer."""
    expert = expert.prepare()
    chunks = facts.chunks(max(1, SCORES_PER_CHUNK // expert.n_candidates(slot)))
    parts = ((expert.score_slot(slot, chunk), chunk[slot]) for chunk in chunks)
    return torch.cat([scores - scores.gather(1, truth[:, None]) for scores, truth in parts])
