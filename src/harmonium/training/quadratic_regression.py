"""Softmax regression on composed vectors: the score s c'x + x'Ax, A of low rank, that makes given answers most likely.

The vectors are frozen and c is the plain model's, so that A = 0 is the plain model with a factor s. A = F N F':

1. F: the eigenvectors of the gradient of the log-likelihood in A at A = 0, largest eigenvalues first: the directions in
   which a quadratic part raises the likelihood fastest.
2. N (rank, rank) and s: convex regression with a Gaussian prior on N. rank (rank + 1) / 2 + 1 numbers are fitted, far
   fewer than a free F would have, so that a few hundred queries determine them.

The softmax of a query is over its true answer, the best wrong candidates of the plain model and a weighted uniform
sample of all others. Known answers do not compete, as in filtered ranks: where they do, what is learned is to score them
lower, and ranks fall (docs/decisions/011-harmony-after-training.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import chunk_size, select_block, top_candidates
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.model.scoring import EmbeddingScorer

N_BEST, N_SAMPLED = 32, 32  # wrong candidates of a query: the best ones, and a sample of all
CANDIDATES = 1 + N_BEST + N_SAMPLED
OVERSAMPLING, ITERATIONS = 8, 10  # of the subspace iteration that finds the directions
MAX_EVALUATIONS = 100


@dataclass(frozen=True)
class Queries:
    """Queries with the composed vectors of their candidates, the true answer first."""

    composed: Tensor  # (q, n, dim)
    linear: Tensor  # (q, n): scores of the plain model
    log_weight: Tensor  # (q, n): log of the number of candidates that each one stands for; -inf: does not compete
    weight: Tensor  # (q,): of the fact that is the answer, 1 where facts have none

    def __len__(self) -> int:
        return len(self.linear)

    def __getitem__(self, rows: Tensor) -> Queries:
        return Queries(self.composed[rows], self.linear[rows], self.log_weight[rows], self.weight[rows])

    @classmethod
    def cat(cls, parts: Sequence[Queries]) -> Queries:
        columns = zip(*((part.composed, part.linear, part.log_weight, part.weight) for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))

    def log_likelihood(self, scores: Tensor) -> Tensor:
        """(q,): of the true answers, by scores (q, n)."""
        return scores[:, 0] - (scores + self.log_weight).logsumexp(1)

    def mean_log_likelihood(self, scores: Tensor) -> Tensor:
        """The mean over queries, weighted by the facts' weights."""
        return (self.weight * self.log_likelihood(scores)).mean()

    def residual(self, scores: Tensor) -> Tensor:
        """(q, n): the gradient of the weighted log-likelihood in the scores, which is truth - probability."""
        probability = (scores + self.log_weight).softmax(1)
        return torch.cat([1 - probability[:, :1], -probability[:, 1:]], dim=1) * self.weight[:, None]


@dataclass(frozen=True)
class QuadraticPart:
    """What was fitted: the score s c'x + x'Ax with A = F N F'."""

    scale: float  # s
    core: Tensor  # N (rank, rank), symmetric
    basis: Tensor  # F (dim, rank), orthonormal columns

    def times(self, factor: float) -> QuadraticPart:
        """With a smaller (or larger) A."""
        return replace(self, core=factor * self.core)

    def form(self, vector: Tensor) -> QuadraticForm:
        """The score as a form; `vector` is the plain model's c."""
        return QuadraticForm(self.core, self.scale * vector, vector.new_zeros(()), self.basis)

    def log_likelihood(self, queries: Queries) -> Tensor:
        """(q,): of the true answers."""
        scores = self.scale * queries.linear + quadratic(queries.composed @ self.basis, self.core)
        return queries.log_likelihood(scores)


def quadratic(projected: Tensor, core: Tensor) -> Tensor:
    """p'Np: (..., rank) -> (...)."""
    return ((projected @ core) * projected).sum(-1)


@torch.no_grad()
def gather_queries(
    scorer: EmbeddingScorer, slot: Slot, facts: Triples, known: KnownAnswers, generator: torch.Generator
) -> Queries:
    """The queries that facts answer in a slot, with candidates that are not `known` answers (the facts are)."""
    parts: list[Queries] = []
    for chunk in facts.chunks(chunk_size(scorer, slot)):
        wrong, log_weight = _wrong_candidates(scorer, slot, chunk, known, generator)
        vectors = scorer.entity_vectors.of(torch.cat([chunk[slot][:, None], wrong], dim=1))
        composed = scorer.slot_map(slot, chunk).beside_candidates().apply(vectors)
        log_weight = torch.cat([torch.zeros_like(log_weight[:, :1]), log_weight], dim=1)
        weight = log_weight.new_ones(len(chunk)) if chunk.weight is None else chunk.weight.to(log_weight.dtype)
        parts.append(Queries(composed, composed @ scorer.form.vector, log_weight, weight))
    return Queries.cat(parts)


def _wrong_candidates(
    scorer: EmbeddingScorer, slot: Slot, queries: Triples, known: KnownAnswers, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Ids and log-weights (q, n): the best candidates, each for itself, and a sample that stands for all others."""
    known_pairs = known.of(queries)

    def exclude_known(start: int, scores: Tensor) -> None:
        row, column = select_block(known_pairs, start, scores.shape[1])
        scores[row, column] = -torch.inf

    n_entities = len(scorer.entity_vectors.table)
    n_best, n_sampled = (N_BEST, N_SAMPLED) if n_entities > N_BEST + N_SAMPLED else (n_entities, 0)
    best = top_candidates(scorer, slot, queries, n_best, exclude_known)
    best_weight = torch.zeros_like(best.scores).masked_fill_(best.scores == -torch.inf, -torch.inf)
    sampled = torch.randint(n_entities, (len(queries), n_sampled), generator=generator).to(best.ids.device)
    filled = {s: queries[s][:, None].expand_as(sampled).flatten() for s in Slot} | {slot: sampled.flatten()}
    counted = known.contain(Triples(*filled.values())).view_as(sampled)  # already among the best, or known
    counted |= (sampled[:, :, None] == best.ids[:, None, :]).any(-1)
    weight = torch.full_like(best.scores[:, :1], math.log(n_entities / max(1, n_sampled))).expand_as(sampled)
    weight = weight.masked_fill(counted, -torch.inf)
    return torch.cat([best.ids, sampled], dim=1), torch.cat([best_weight, weight], dim=1)


@torch.no_grad()
def fit_quadratic_parts(
    queries: Queries, rank: int, spreads: Sequence[float], generator: torch.Generator
) -> list[QuadraticPart]:
    """The most probable quadratic part for each spread of the prior, ascending; the one for 0 is zero.

    A spread is in nats: the standard deviation of what an entry of N adds to the score of a typical candidate.
    """
    if not len(queries):
        eye = torch.eye(queries.composed.shape[-1], rank).to(queries.composed)
        return [QuadraticPart(1.0, eye.new_zeros(rank, rank), eye)] * len(spreads)
    scale = fit_scale(queries)
    basis = find_directions(queries, scale, rank, generator)
    projected = queries.composed @ basis  # (q, n, rank)
    unit = projected.square().mean().clamp(min=1e-30)
    part, parts = QuadraticPart(scale, projected.new_zeros(rank, rank), basis), []
    for spread in spreads:
        part = _fit_core(queries, projected / unit.sqrt(), part, unit, spread) if spread else part
        parts.append(part)
    return parts


def fit_scale(queries: Queries) -> float:
    """The factor of the plain score that makes the answers most likely, with a weak prior at 1."""
    log_scale = queries.linear.new_zeros(())

    def loss(log_scale: Tensor) -> Tensor:
        likelihood = queries.mean_log_likelihood(log_scale.exp() * queries.linear)
        return log_scale.square() / (2 * len(queries)) - likelihood

    (log_scale,) = minimise(loss, log_scale)
    return math.exp(log_scale.item())


def find_directions(queries: Queries, scale: float, rank: int, generator: torch.Generator) -> Tensor:
    """(dim, rank): the leading eigenvectors of G = sum r x x', r the residuals, by subspace iteration: G is never built."""
    rows = queries.composed.flatten(0, 1)
    residual = queries.residual(scale * queries.linear).flatten()[:, None]

    def multiply(vectors: Tensor) -> Tensor:
        return rows.T @ ((rows @ vectors).mul_(residual))

    dim = rows.shape[1]
    width = -(-(rank + OVERSAMPLING) // 8) * 8  # products of such widths are faster
    start = torch.randn(dim, min(dim, width), generator=generator)
    basis = torch.linalg.qr(start.to(rows))[0]
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(multiply(basis))[0]
    values, vectors = torch.linalg.eigh(basis.T @ multiply(basis))
    leading: Tensor = basis @ vectors[:, values.abs().argsort(descending=True)[:rank]]
    return leading


def _fit_core(queries: Queries, projected: Tensor, start: QuadraticPart, unit: Tensor, spread: float) -> QuadraticPart:
    """The most probable N and s, from a start; projections have the variance 1, and N is in units of its score."""

    def loss(log_scale: Tensor, free: Tensor) -> Tensor:
        core = (free + free.T) / 2
        prior = (core / spread).square().sum() + (log_scale - math.log(start.scale)).square()
        scores = log_scale.exp() * queries.linear + quadratic(projected, core)
        return prior / (2 * len(queries)) - queries.mean_log_likelihood(scores)

    log_scale, free = minimise(loss, start.core.new_tensor(math.log(start.scale)), start.core * unit)
    return replace(start, scale=math.exp(log_scale.item()), core=(free + free.T) / (2 * unit))


def minimise(loss: Callable[..., Tensor], *start: Tensor) -> list[Tensor]:
    """The arguments that minimise a smooth convex function, by L-BFGS."""
    with torch.enable_grad():
        arguments = [value.detach().clone().requires_grad_() for value in start]
        optimiser = torch.optim.LBFGS(
            arguments,
            max_iter=MAX_EVALUATIONS,
            max_eval=MAX_EVALUATIONS,
            tolerance_grad=1e-5,
            tolerance_change=1e-7,
            history_size=20,
            line_search_fn="strong_wolfe",
        )

        def evaluate() -> Tensor:
            optimiser.zero_grad()
            value = loss(*arguments)
            value.backward()
            return value

        optimiser.step(evaluate)
    return [argument.detach() for argument in arguments]
