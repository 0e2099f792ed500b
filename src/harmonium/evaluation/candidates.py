"""Scores of all candidates in bounded memory: chunks of queries against blocks of candidates."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.model.exact_scores import ExactScores
from harmonium.model.scoring import Scorer

MAX_SCORES_HELD = {"cpu": 1 << 22, "cuda": 1 << 26}  # held at once: 16 MB on a CPU stay in its cache
SPARE_CANDIDATES = 16  # scored exactly beyond the k best
Mask = Callable[[int, Tensor], None]  # (first candidate of the block, its scores (n, m)): lowers scores in place


def chunk_size(scorer: Scorer, slot: Slot) -> int:
    """Number of queries to score at once, such that their scores for one block of candidates fit MAX_SCORES_HELD."""
    size = max(1, MAX_SCORES_HELD.get(scorer.device.type, 1 << 24) // max(1, scorer.block_width(slot)))
    return size if scorer.world is None else scorer.world.minimum(size)


def select_block(pairs: tuple[Tensor, ...], start: int, count: int) -> tuple[Tensor, ...]:
    """From columns (row, candidate, ...) select the candidates in a block; returns (row, column in the block, ...)."""
    row, candidate, *rest = pairs
    in_block = (candidate >= start) & (candidate < start + count)
    return row[in_block], candidate[in_block] - start, *(column[in_block] for column in rest)


@dataclass(frozen=True)
class TopCandidates:
    """The best candidates of each query, best first."""

    scores: Tensor  # (n, k)
    ids: Tensor  # (n, k)
    log_normaliser: Tensor  # (n, 1): log-sum-exp of temperature * score over all candidates


@torch.no_grad()
def top_candidates(
    scorer: Scorer, slot: Slot, queries: Triples, k: int, mask: Mask | None = None, temperature: float = 1.0
) -> TopCandidates:
    """The k best candidates of each query of a chunk; candidates that `mask` excludes still count in the log-normaliser."""
    scores: list[Tensor] = []
    ids: list[Tensor] = []
    log_normaliser = None
    for start, block in scorer.score_blocks(slot, queries):
        log_normaliser = _log_add(log_normaliser, (temperature * block).logsumexp(1, keepdim=True))
        if mask:
            mask(start, block)
        best = block.topk(min(k, block.shape[1]))
        merged = torch.cat([*scores, best.values], dim=1)
        values, order = merged.topk(min(k, merged.shape[1]))
        scores, ids = [values], [torch.cat([*ids, start + best.indices], dim=1).gather(1, order)]
    assert log_normaliser is not None, "a scorer yields at least one block"
    return TopCandidates(scores[0], ids[0], log_normaliser)


@dataclass(frozen=True)
class RankedCandidates(TopCandidates):
    """The best candidates by exact score; ties are in ascending order of ids."""

    ranks: Tensor  # (n, k) float64, from 1; tied candidates share their mean rank


@torch.no_grad()
def ranked_candidates(
    scorer: Scorer, slot: Slot, queries: Triples, k: int, mask: Mask | None = None, temperature: float = 1.0
) -> RankedCandidates:
    """The k best candidates, ordered and ranked consistently with `rank`: ties do not depend on the chunk.

    More than k are selected by fast scores and ordered by exact ones, until no other candidate can be as good.
    """
    exact, spare = scorer.exact_scores(slot, queries), SPARE_CANDIDATES
    while True:
        best = top_candidates(scorer, slot, queries, k + spare, mask, temperature)
        ranked = _in_exact_order(best, exact)
        others = best.scores[:, -1].double()  # upper bound on the scores of all other candidates
        if exact is not None:
            others = others + 2 * exact.error_of_faster_scores
        is_last = best.scores.shape[1] < k + spare  # whether all candidates were selected
        if is_last or bool(((ranked.scores[:, k - 1] > others) | (others == -torch.inf)).all()):
            columns = (ranked.scores.to(best.scores.dtype), ranked.ids, ranked.ranks)
            scores, ids, ranks = (column[:, :k] for column in columns)
            return RankedCandidates(scores, ids, best.log_normaliser, ranks)
        spare *= 8


def _in_exact_order(best: TopCandidates, exact: ExactScores | None) -> RankedCandidates:
    """Candidates in descending order of exact score; ties (within rounding) in ascending order of ids."""
    n, k = best.ids.shape
    scores, errors = best.scores.double(), torch.zeros_like(best.scores, dtype=torch.float64)
    if exact is not None:
        row = torch.arange(n, device=best.ids.device).repeat_interleave(k)
        scores, errors = (column.view(n, k) for column in exact.of(row, best.ids.flatten()))
        scores = scores.masked_fill(best.scores == -torch.inf, -torch.inf)
    order = scores.argsort(dim=1, descending=True)
    scores, errors, ids = (column.gather(1, order) for column in (scores, errors, best.ids))
    apart = scores[:, :-1] - scores[:, 1:] > errors[:, :-1] + errors[:, 1:]  # neighbours that do not tie
    group = torch.cat([torch.zeros_like(ids[:, :1]), apart.long().cumsum(1)], dim=1)  # (n, k): of equal candidates
    order = (group * (ids.max() + 1) + ids).argsort(dim=1)
    size = torch.zeros_like(group).scatter_add_(1, group, torch.ones_like(group))
    last = size.cumsum(1)
    ranks = (last - (size - 1) / 2).gather(1, group).double()
    return RankedCandidates(scores.gather(1, order), ids.gather(1, order), best.log_normaliser, ranks)


@torch.no_grad()
def score_and_log_normaliser(
    scorer: Scorer, slot: Slot, triples: Triples, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """(n,) twice: the score of the entity in the slot of each triple, and log-sum-exp of temperature * score over all.

    Triples that answer the same query are scored together.
    """
    if not len(triples):
        return torch.empty(0), torch.empty(0)
    scorer = scorer.prepare()
    given = torch.stack([triples[other] for other in Slot if other is not slot], dim=1)
    query = given.unique(dim=0, return_inverse=True)[1]  # (n,)
    order = query.argsort(stable=True)
    ascending = query[order]
    is_first = torch.cat([ascending[:1] >= 0, ascending.diff() != 0])
    queries, parts = triples[order[is_first]], []
    size = chunk_size(scorer, slot)
    for start in range(0, len(queries), size):
        answers = order[(ascending >= start) & (ascending < start + size)]
        chunk = queries[start : start + size]
        parts.append(_score_chunk(scorer, slot, chunk, query[answers] - start, triples[slot][answers], temperature))
    scores, log_normaliser = (torch.cat(columns) for columns in zip(*parts, strict=True))
    position = order.argsort().to(scores.device)
    return scores[position], log_normaliser[position]


def _score_chunk(
    scorer: Scorer, slot: Slot, queries: Triples, query: Tensor, answer: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """(m,) twice: the scores of the answers to a chunk of queries, and the log-normaliser of the query of each."""
    scores = log_normaliser = None
    for start, block in scorer.score_blocks(slot, queries):
        position, row, target = (column.to(block.device) for column in (torch.arange(len(answer)), query, answer))
        position, column, row = select_block((position, target, row), start, block.shape[1])
        scores = block.new_zeros(len(answer)) if scores is None else scores
        scores[position] = block[row, column]
        log_normaliser = _log_add(log_normaliser, (temperature * block).logsumexp(1))
    assert scores is not None and log_normaliser is not None, "a scorer yields at least one block"
    return scores, log_normaliser[query.to(log_normaliser.device)]


def margins(scores: Tensor, log_normaliser: Tensor, temperature: float = 1.0) -> Tensor:
    """log p / (1 - p), p = exp(temperature * score - log_normaliser), of scores (n,) or (n, k); float64 on the CPU."""
    log_normaliser = log_normaliser if log_normaliser.dim() == scores.dim() else log_normaliser[..., None]
    log_p = (temperature * scores.double() - log_normaliser.double()).cpu()
    log_p = log_p.clamp(max=-1e-7)  # the resolution of float32 scores
    return log_p - torch.log(-torch.expm1(log_p))


def _log_add(total: Tensor | None, block: Tensor) -> Tensor:
    return block if total is None else total.logaddexp(block)


def exclude(pairs: tuple[Tensor, Tensor]) -> Mask:
    """A mask that excludes the candidates in (row, candidate) pairs."""

    def mask(start: int, scores: Tensor) -> None:
        scores[select_block(pairs, start, scores.shape[1])] = -torch.inf

    return mask


def with_candidates(slot: Slot, queries: Triples, candidates: Tensor) -> Triples:
    """(n * k): the queries (n,) with each of their candidates (n, k) in the open slot."""
    columns = {s: queries[s].cpu().repeat_interleave(candidates.shape[1]) for s in Slot}
    columns[slot] = candidates.cpu().flatten()
    return Triples(columns[Slot.HEAD], columns[Slot.RELATION], columns[Slot.TAIL])
