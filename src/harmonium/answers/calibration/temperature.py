"""The temperature of a softmax: the factor on the scores under which held-out facts are most likely."""

from collections.abc import Callable

import torch
from torch import Tensor

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import chunk_size, exclude, score_and_log_normaliser
from harmonium.model.scoring import Scorer

EXPONENTS = torch.arange(
    -4, 6.01, 0.5, dtype=torch.float64
)  # candidates: 2^exponent / standard deviation of the scores
MAX_SCORES = 5_000_000  # computed for a fit


@torch.no_grad()
def fit_temperature(
    scorer: Scorer, slot: Slot, facts: Triples, n_candidates: int, known: KnownAnswers | None = None
) -> float:
    """T that maximises the likelihood of facts, weighted if they are, as answers drawn by softmax(T * score).

    The softmax is over all candidates; with `known` over those that are not known answers.
    """
    sample = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))
    facts = facts[sample[: max(20, MAX_SCORES // max(1, n_candidates))]]
    scores, _ = score_and_log_normaliser(scorer, slot, facts)
    temperatures = 2**EXPONENTS / _deviation(scorer, slot, facts[:100])
    log_normaliser = log_normalisers(scorer, slot, facts, temperatures, known)
    losses = log_normaliser - scores.cpu().double()[:, None] * temperatures  # (n, len(temperatures))
    if facts.weight is not None and facts.weight.any():
        losses = losses * (facts.weight / facts.weight.max())[:, None]
    return _minimum(temperatures.log(), losses.mean(0))


@torch.no_grad()
def log_normalisers(
    scorer: Scorer,
    slot: Slot,
    queries: Triples,
    temperatures: Tensor,
    known: KnownAnswers | None = None,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """(n, len(temperatures)) float64: log-sum-exp of each temperature times the scores of all candidates.

    With `known` of those that are not known answers.
    """
    parts = [torch.empty(0, len(temperatures), dtype=torch.float64)]
    for chunk in queries.chunks(chunk_size(scorer, slot)) if len(queries) else ():
        parts.append(_log_normalisers(scorer, slot, chunk, temperatures, known))
        if progress:
            progress(len(chunk))
    return torch.cat(parts)


def _deviation(scorer: Scorer, slot: Slot, queries: Triples) -> float:
    """The standard deviation of the scores of a query, at least that of rounding."""
    _, block = next(scorer.score_blocks(slot, queries))
    return max(block.double().std().item(), 1e-6)


def _log_normalisers(
    scorer: Scorer, slot: Slot, queries: Triples, temperatures: Tensor, known: KnownAnswers | None
) -> Tensor:
    """Those of one chunk of queries."""
    total = torch.full((len(queries), len(temperatures)), -torch.inf, dtype=torch.float64)
    mask = None if known is None else exclude(known.of(queries))
    for start, block in scorer.score_blocks(slot, queries):
        if mask:
            mask(start, block)
        parts = [(temperature * block).logsumexp(1) for temperature in temperatures.tolist()]
        total = total.logaddexp(torch.stack(parts, dim=1).cpu().double())
    return total


def _minimum(x: Tensor, y: Tensor) -> float:
    """exp(x) where the parabola through the lowest of the points (x, y), evenly spaced, and its neighbours is lowest."""
    at = int(y.argmin().clamp(1, len(y) - 2))
    left, middle, right = (y[at + i].item() for i in (-1, 0, 1))
    bend = left - 2 * middle + right
    shift = 0.0 if bend <= 0 else max(-1.0, min(1.0, (left - right) / (2 * bend)))
    return (x[at] + shift * (x[1] - x[0])).exp().item()
