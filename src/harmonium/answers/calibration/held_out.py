"""Held-out questions: what the model answers to questions of the graph, and which of its answers are held-out facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import Mask, chunk_size, margins, select_block, top_candidates
from harmonium.model.scoring import Scorer

MAX_QUESTIONS, MIN_QUESTIONS = 20_000, 600  # sampled for each slot and split, ...
MAX_SCORES = 200_000_000  # ... so that there are not more scores than this: some ten seconds of a core
TOP = 100  # candidates of each question that are examples


@dataclass(frozen=True)
class HeldOutAnswers:
    """The best candidates of questions with one slot open that are no known facts; all (n,), by question, best first."""

    question: Tensor  # its row in the sample
    relation: Tensor  # of the question; 0 where the relation is asked for
    margin: Tensor  # float64: log-odds by the softmax over all candidates
    known: Tensor  # how many answers of the question are known
    true: Tensor  # bool: a held-out fact
    weight: Tensor  # float64: how many questions of the graph this one stands for
    label: Tensor  # float64: 1 for a held-out fact, or its weight if that is smaller; 0 for others

    def __len__(self) -> int:
        return len(self.true)

    def where(self, mask: Tensor) -> HeldOutAnswers:
        return HeldOutAnswers(*(getattr(self, column.name)[mask] for column in fields(self)))

    @property
    def is_best(self) -> Tensor:
        """(n,) bool: the first answer of its question."""
        return torch.cat([self.question[:1] >= 0, self.question.diff() != 0])

    @property
    def n_questions(self) -> int:
        return int(self.is_best.sum())


def held_out_answers(
    scorer: Scorer,
    graph: Graph,
    slot: Slot,
    split: str,
    temperature: float = 1.0,
    by_truth: bool = False,
    n_facts: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> HeldOutAnswers:
    """Ask a sample of the questions that the facts of a split and of earlier ones answer.

    Facts of earlier splits are known, and no candidates; facts of the split are true; facts of later ones are left out;
    everything else is false. `by_truth` prefers questions with a true answer, and weights the others accordingly. Of a
    split with more than `n_facts` facts a sample of so many is true; the others are left out.
    """
    number = SPLITS.index(split)
    earlier = SPLITS[:number]
    generator = torch.Generator().manual_seed(number)
    facts = graph.splits[split].positive()
    graph = _with_split(graph, split, facts)
    sample = torch.randperm(len(facts), generator=generator)[:n_facts]
    held_out = _with_split(graph, split, facts[sample])
    known, true = graph.known_answers(slot, earlier), held_out.known_answers(slot, (split,))
    others = torch.ones(len(facts), dtype=torch.bool).index_fill(0, sample, False)
    excluded = _with_split(graph, split, facts[others]).known_answers(slot)
    queries = distinct_queries(held_out, slot, (*earlier, split))
    n_known, n_true = (index.of(queries)[0].bincount(minlength=len(queries)) for index in (known, true))
    stratum = (n_known > 0).long()
    if by_truth:
        stratum += (n_known > 0) & (n_true == 0)
    rows, weight = sample_strata(stratum, _budget(graph, slot), generator)
    queries, n_known = queries[rows], n_known[rows]
    parts = []
    for start, chunk in _chunks(scorer, slot, queries):
        top = top_candidates(scorer, slot, chunk, TOP, exclude(excluded.of(chunk)), temperature)
        question = torch.arange(start, start + len(chunk))[:, None]
        columns = (
            question,
            torch.zeros_like(question) if slot is Slot.RELATION else chunk.relation[:, None],
            margins(top.scores, top.log_normaliser, temperature),
            n_known[question],
            are_known(true, slot, chunk, top.ids),
            weight[question],
        )
        allowed = top.scores.isfinite().cpu()
        is_true = columns[4]
        label = is_true.double()
        if facts.weight is not None:
            label[is_true] = facts.confidence_of(with_candidates(slot, chunk, top.ids)[is_true.flatten()])
        parts.append([column.expand(allowed.shape)[allowed] for column in (*columns, label)])
        if progress:
            progress(len(chunk))
    if not parts:
        none, no_numbers = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
        return HeldOutAnswers(none, none, no_numbers, none, none.bool(), no_numbers, no_numbers)
    return HeldOutAnswers(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _with_split(graph: Graph, split: str, facts: Triples) -> Graph:
    return replace(graph, valid=facts) if split == "valid" else replace(graph, test=facts)


def sample_strata(stratum: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows (m,) of a sample of about `count` of the strata (n,) in equal parts, and how many rows each stands for (m,).

    What a small stratum cannot fill goes to larger ones.
    """
    sizes = stratum.bincount()
    rows, weights, left = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.float64)], count
    order = [number for number in sizes.argsort(stable=True).tolist() if sizes[number]]
    for position, number in enumerate(order):
        members = (stratum == number).nonzero()[:, 0]
        quota = min(len(members), left // (len(order) - position))
        rows.append(members[torch.randperm(len(members), generator=generator)[:quota]].sort().values)
        weights.append(torch.full((quota,), len(members) / max(1, quota), dtype=torch.float64))
        left -= quota
    return torch.cat(rows), torch.cat(weights)


def _budget(graph: Graph, slot: Slot) -> int:
    """How many questions are asked."""
    n_candidates = graph.n_relations if slot is Slot.RELATION else graph.n_entities
    return min(MAX_QUESTIONS, max(MIN_QUESTIONS, MAX_SCORES // max(1, n_candidates)))


def _chunks(scorer: Scorer, slot: Slot, queries: Triples) -> Sequence[tuple[int, Triples]]:
    """(first row, queries) of the chunks in which queries are scored."""
    size = chunk_size(scorer, slot)
    return [(start, queries[start : start + size]) for start in range(0, len(queries), size)]


def exclude(pairs: tuple[Tensor, Tensor]) -> Mask:
    """A mask of the candidates in (row, candidate) pairs."""

    def mask(start: int, scores: Tensor) -> None:
        scores[select_block(pairs, start, scores.shape[1])] = -torch.inf

    return mask


def distinct_queries(graph: Graph, slot: Slot, splits: Sequence[str]) -> Triples:
    """Every distinct query with `slot` open that the facts of these splits answer."""
    keys = graph.known_answers(slot, splits).index.keys
    first, second = keys // graph.n_entities, keys % graph.n_entities  # the order of KnownAnswers.keys
    open_slot = torch.zeros_like(keys)
    if slot is Slot.RELATION:
        return Triples(first, open_slot, second)
    return Triples(open_slot, first, second) if slot is Slot.HEAD else Triples(second, first, open_slot)


def are_known(known: KnownAnswers, slot: Slot, queries: Triples, candidates: Tensor) -> Tensor:
    """(n, k) bool: whether the queries with each of the candidates (n, k) in the open slot are known facts."""
    return known.contain(with_candidates(slot, queries, candidates)).view(candidates.shape)


def with_candidates(slot: Slot, queries: Triples, candidates: Tensor) -> Triples:
    """(n * k): the queries (n,) with each of their candidates (n, k) in the open slot."""
    columns = {s: queries[s].cpu().repeat_interleave(candidates.shape[1]) for s in Slot}
    columns[slot] = candidates.cpu().flatten()
    return Triples(columns[Slot.HEAD], columns[Slot.RELATION], columns[Slot.TAIL])


def count_other_answers(known: KnownAnswers, triples: Triples) -> Tensor:
    """(n,): how many known answers the query of each triple has besides that triple."""
    return known.of(triples)[0].bincount(minlength=len(triples)) - known.contain(triples).long()
