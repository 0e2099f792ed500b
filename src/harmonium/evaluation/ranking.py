"""Ranking: the rank of the true answer among all candidates.

Ranks are found by counting (docs/math.md 2.11): compare the scores of a chunk of queries against a block of candidates
with the score of the truth, excluding known answers. Memory is one chunk against one block; there is no mask over triples
and no second table of vectors.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex, KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, out_of_memory_error, whole_number
from harmonium.evaluation.candidates import chunk_size, select_block
from harmonium.evaluation.metrics import Ranks
from harmonium.model.exact_scores import Comparison
from harmonium.model.scoring import Scorer

Pairs = tuple[Tensor, Tensor]  # (row of a query, candidate or column)


@torch.no_grad()
def rank(
    scorer: Scorer,
    triples: Triples,
    slot: Slot,
    known: KnownAnswers | None = None,
    candidates: CsrIndex | None = None,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Ranks:
    """Rank the true filler of `slot` in each triple.

    `known` answers other than the truth are excluded (filtered ranks); `candidates` (relation -> entities) restricts the
    candidates, to which the truth is always added. The result does not depend on `chunk`, the number of queries scored at
    once, which is halved when memory runs out.

    >>> harmonium.rank(run.model, run.graph.test, Slot.TAIL, run.graph.known_answers(Slot.TAIL)).values()
    """
    if not len(triples):
        raise HarmoniumError("there are no triples to rank")
    scorer = scorer.prepare()
    if scorer.works_by_relation and not bool((triples.relation.diff() >= 0).all()):
        order = triples.relation.argsort(stable=True)
        return rank(scorer, triples[order], slot, known, candidates, chunk, progress)[order.argsort().cpu()]
    size = chunk_size(scorer, slot) if chunk is None else whole_number("chunk", chunk, least=1)
    parts: list[Ranks] = []
    done = 0
    while done < len(triples):
        queries = triples[done : done + size]
        try:
            better, tied, others = count_better(scorer, queries, slot, known, candidates)
        except (MemoryError, RuntimeError) as error:
            out_of_memory = out_of_memory_error(error, "choose a smaller model, or a device with more memory")
            if size == 1 or scorer.world is not None:  # other processes would not halve their chunks
                raise out_of_memory from error
            size = (min(size, len(queries)) + 1) // 2
            continue
        is_head = torch.full_like(better, slot is Slot.HEAD, dtype=torch.bool)
        columns = (better, tied, others + 1, queries.relation, is_head)
        parts.append(Ranks(*(column.cpu() for column in columns)))
        done += len(queries)
        if progress:
            progress(len(queries))
    return Ranks.cat(parts)


def count_better(
    scorer: Scorer, queries: Triples, slot: Slot, known: KnownAnswers | None, candidates: CsrIndex | None
) -> Tensor:
    """(3, n): how many candidates other than the truth are better, are tied, and compete at all."""
    excluded = _excluded(queries, slot, known)
    given = None if candidates is None else candidates.lookup(queries.relation)
    counts = queries.head.new_zeros(3, len(queries))
    for comparison in scorer.compare_blocks(slot, queries):
        values, width = comparison.values, comparison.values.shape[1]
        if torch.isnan(values.sum()) and torch.isnan(values).any():  # the sum is also NaN for opposite infinities
            raise HarmoniumError("the model's scores are not numbers; train again with a smaller learning rate")
        row, column = select_block(excluded, comparison.start, width)
        values[row, column] = math.nan  # all comparisons with NaN are false, so it is never counted
        if given is None:
            counts[2] += width - row.bincount(minlength=len(queries))
            near = _count_all(comparison, counts)
        else:
            given_row, given_column = select_block(given, comparison.start, width)
            near = _count_given(comparison, (given_row, given_column), counts)
        _count_near(comparison, *near, counts)
    if scorer.world is not None:
        scorer.world.all_reduce([counts])
    return counts


def _excluded(queries: Triples, slot: Slot, known: KnownAnswers | None) -> Pairs:
    """(row, candidate) of excluded candidates: the truth and the other known answers."""
    truth = queries[slot]
    row = torch.arange(len(truth), device=truth.device)
    if known is None:
        return row, truth
    known_row, answer = known.of(queries)
    other = answer != truth[known_row]
    return torch.cat([row, known_row[other]]), torch.cat([truth, answer[other]])


def _count_all(comparison: Comparison, counts: Tensor) -> Pairs:
    """Count the candidates that clearly beat the true answer; returns (row, column) of those too close to it to tell."""
    values, low, high = comparison.values, comparison.low, comparison.high
    flags = torch.empty_like(values)  # sums of floats are fast, and exact up to 2^24 candidates
    dtype = torch.float32 if values.shape[1] < 2**24 else torch.float64
    better = torch.gt(values, high, out=flags).sum(1, dtype=dtype).long()
    not_worse = torch.ge(values, low, out=flags).sum(1, dtype=dtype).long()
    counts[0] += better
    rows = (not_worse > better).nonzero()[:, 0]
    part = values[rows]
    row, column = ((part >= low[rows]) & (part <= high[rows])).nonzero(as_tuple=True)
    return rows[row], column


def _count_given(comparison: Comparison, given: Pairs, counts: Tensor) -> Pairs:
    """Like `_count_all`, but only for the candidates given as (row, column); also counts how many compete."""
    row, column = given
    value, low, high = comparison.values[given], comparison.low[row, 0], comparison.high[row, 0]
    counts[0].index_add_(0, row, (value > high).long())
    counts[2].index_add_(0, row, (~value.isnan()).long())
    near = (value >= low) & (value <= high)
    return row[near], column[near]


def _count_near(comparison: Comparison, row: Tensor, column: Tensor, counts: Tensor) -> None:
    """Decide exactly which of the candidates close to the true answer beat it or tie with it, and count them."""
    if not len(row):
        return
    ahead = torch.zeros_like(row) if comparison.decide is None else comparison.decide(row, column)
    counts[0].index_add_(0, row, (ahead > 0).long())
    counts[1].index_add_(0, row, (ahead == 0).long())
