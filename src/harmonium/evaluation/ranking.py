"""Ranking: where the true answer stands among all candidates.

Ranks are found by counting (docs/math.md 2.10): compare the scores of a chunk of queries against a block of candidates
with the score of the truth, and subtract the known answers among them. Memory is one chunk against one block; there is no
mask over triples and no second table of vectors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from harmonium.data.index import CsrIndex, KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import chunk_size, select_block
from harmonium.evaluation.metrics import Ranks
from harmonium.model.scoring import Scorer
from harmonium.runtime.errors import HarmoniumError, out_of_memory_error


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

    `known` answers other than the truth do not compete; `candidates` (relation -> entities) limits who does, the truth
    always included. The result does not depend on `chunk`, the number of queries scored at once, which is halved when
    memory runs out.
    """
    if not len(triples):
        raise HarmoniumError("there are no triples to rank")
    scorer = scorer.prepare()
    size = chunk or chunk_size(scorer, slot, triples)
    parts: list[Ranks] = []
    done = 0
    while done < len(triples):
        queries = triples[done : done + size]
        try:
            better, tied, others = count_better(scorer, queries, slot, known, candidates)
        except (MemoryError, RuntimeError) as error:
            out_of_memory = out_of_memory_error(error, "choose a smaller model, or a device with more memory")
            if size == 1 or scorer.world is not None:  # the other processes would not halve theirs
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
    corrections = _corrections(queries, slot, known, candidates)
    counts = queries.head.new_zeros(3, len(queries))
    for start, target, scores in scorer.compare_blocks(slot, queries):
        if torch.isnan(scores.sum()) and torch.isnan(scores).any():  # opposite infinities also sum to nan
            raise HarmoniumError("the model's scores are not numbers; train again with a smaller learning rate")
        if candidates is None:
            flags = torch.empty_like(scores)  # sums of floating-point ones are quick, and exact up to 2^24 candidates
            dtype = torch.float32 if scores.shape[1] < 2**24 else torch.float64
            counts[0] += torch.gt(scores, target, out=flags).sum(1, dtype=dtype).long()
            counts[1] += torch.eq(scores, target, out=flags).sum(1, dtype=dtype).long()
            counts[2] += scores.shape[1]
        row, column, sign = select_block(corrections, start, scores.shape[1])
        score, true_score = scores[row, column], target[row, 0]
        counts[0].index_add_(0, row, sign * (score > true_score))
        counts[1].index_add_(0, row, sign * (score == true_score))
        counts[2].index_add_(0, row, sign)
    if scorer.world is not None:
        scorer.world.all_reduce([counts])
    return counts


def _corrections(
    queries: Triples, slot: Slot, known: KnownAnswers | None, candidates: CsrIndex | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(row, candidate, sign) counted one by one: +1 for the given candidates, -1 for known answers and the truth."""
    truth = queries[slot]
    row, candidate = torch.arange(len(truth), device=truth.device), truth
    if known is not None:
        known_row, answer = known.of(queries)
        other = answer != truth[known_row]
        row, candidate = torch.cat([row, known_row[other]]), torch.cat([candidate, answer[other]])
    if candidates is None:
        return row, candidate, torch.full_like(row, -1)
    competes = candidates.contains(queries.relation[row], candidate)
    row, candidate = row[competes], candidate[competes]
    given_row, given = candidates.lookup(queries.relation)
    sign = torch.cat([torch.full_like(row, -1), torch.ones_like(given_row)])
    return torch.cat([row, given_row]), torch.cat([candidate, given]), sign
