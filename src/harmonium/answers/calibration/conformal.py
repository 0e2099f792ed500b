"""Answer sets with a coverage: the smallest sets that hold a new true answer, say, nine times of ten.

A query is asked because one of its answers is missing. Its answer set holds the candidates that are no known answers,
nor known to be false, and whose surprise is at most a threshold:

    surprise = -log of the softmax of temperature * score over these candidates

The threshold is a quantile of the surprises of validation facts, with the facts of train known (split conformal
prediction). So the set holds the answer of a fact like those of validation, that the graph does not have yet, with the
coverage asked for: over all queries, and over those of one relation. The quantile of a relation is that of its own
facts and of SHARED facts of all relations together, so that one with few facts has nearly the common threshold.

Where facts have weights, the quantile is weighted by them: the coverage is of answers that are true.

With types, the set holds only candidates that could fill the slot (data/entity_types.py); validation facts whose answer is
not among them count as misses. Where these are too many for the coverage, the types are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.temperature import fit_temperature, log_normalisers
from harmonium.answers.relation_traits import excluded_answers
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex, KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.candidates import chunk_size, exclude, score_and_log_normaliser, select_block
from harmonium.model.scoring import Scorer
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import schema

FILE, FORMAT = "conformal.json", 3  # in a run folder; made again when the model, the facts or the format change
MINIMUM = 20  # validation facts required for answer sets
MAX_FACTS, MIN_FACTS, MAX_SCORES = 20_000, 600, 200_000_000  # facts of validation that are used for each slot
SHARED = 10  # facts of all relations that count for each one


@dataclass(frozen=True)
class Surprises:
    """The surprises of validation facts as answers with one slot open."""

    temperature: schema.NonNegative
    relation: list[schema.Count]  # of each fact; 0 where the relation is asked for
    surprise: list[float]  # of each fact
    typed: list[bool]  # whether its answer is among the candidates by type
    weight: list[schema.NonNegative] | None = None  # of each fact, if facts have weights

    def thresholds(self, coverage: float, relations: Tensor, typed: bool) -> Tensor:
        """(n,): the largest surprise in the answer sets of queries of these relations (n,), -1 for any; inf: no limit."""
        surprise = torch.tensor(self.surprise, dtype=torch.float64)
        if typed:
            surprise = surprise.masked_fill(~torch.tensor(self.typed), torch.inf)
        ascending, order = surprise.sort()
        relation = torch.tensor(self.relation)[order]
        weight = torch.ones_like(ascending) if self.weight is None else torch.tensor(self.weight).double()[order]
        distinct, inverse = relations.unique(return_inverse=True)
        values = []
        for number in distinct.tolist():
            weights = ((relation == number).double() + SHARED / len(relation)) * weight
            total = weights.sum()
            needed = coverage * (
                total + (weights**2).sum() / total
            )  # the fact that is asked for counts like the others
            position = int(torch.searchsorted(weights.cumsum(0), needed - 1e-9))
            values.append(ascending[position].item() if position < len(ascending) else math.inf)
        return torch.tensor(values, dtype=torch.float64)[inverse]


@dataclass(frozen=True)
class SetLimits:
    """Which candidates are in the answer sets of queries: those that are not known, with at least this score."""

    score: Tensor  # (n,) float64
    typed: Tensor  # (n,) bool: only those that could fill the slot by type
    candidates: CsrIndex | None  # relation -> these

    def __getitem__(self, rows: Tensor) -> SetLimits:
        return SetLimits(self.score[rows], self.typed[rows], self.candidates)


@dataclass(frozen=True)
class AnswerSets:
    """What the answer sets of a run are made with; a slot with too few validation facts has none."""

    slots: dict[Slot, Surprises]

    def limits(
        self,
        scorer: Scorer,
        graph: Graph,
        slot: Slot,
        queries: Triples,
        coverage: float,
        types: EntityTypes | None = None,
        known: KnownAnswers | None = None,
        by_relation: bool = True,
    ) -> SetLimits:
        """The limits of the answer sets of queries with `slot` open; `known` answers are by default all, the false ones too.

        Without `by_relation` all relations have the same threshold.
        """
        if not isinstance(coverage, Real) or not 0 < coverage < 1:
            raise HarmoniumError(f"a coverage is a share between 0 and 1, such as 0.9, not {coverage!r}")
        if slot not in self.slots:
            raise HarmoniumError(
                f"answer sets need {MINIMUM} validation facts and '{graph.name}' has {len(graph.valid):,}; "
                "ask without a coverage"
            )
        surprises = self.slots[slot]
        by_relation = by_relation and slot is not Slot.RELATION
        relations = queries.relation if by_relation else torch.full_like(queries.relation, -1)
        thresholds = surprises.thresholds(coverage, relations, typed=False)
        typed, candidates = torch.zeros(len(queries), dtype=torch.bool), None
        if types is not None and slot is not Slot.RELATION:
            with_types = surprises.thresholds(coverage, relations, typed=True)
            typed = with_types.isfinite()
            thresholds, candidates = (
                torch.where(typed, with_types, thresholds),
                types.candidates(slot, queries.relation),
            )
        known = excluded_answers(graph, slot, queries=queries) if known is None else known
        temperature = torch.tensor([surprises.temperature])
        log_normaliser = log_normalisers(scorer.prepare(), slot, queries, temperature, known)[:, 0]
        return SetLimits((log_normaliser - thresholds) / surprises.temperature, typed, candidates)

    def sizes(
        self,
        scorer: Scorer,
        graph: Graph,
        slot: Slot,
        queries: Triples,
        coverage: float,
        types: EntityTypes | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(n,) twice: how many of the best new answers are the answer set of each query, and whether types restrict it."""
        limits = self.limits(scorer, graph, slot, queries, coverage, types)
        sizes = count_answers(scorer, slot, queries, limits, excluded_answers(graph, slot, queries=queries))
        return sizes, limits.typed


@torch.no_grad()
def count_answers(scorer: Scorer, slot: Slot, queries: Triples, limits: SetLimits, known: KnownAnswers) -> Tensor:
    """(n,): the sizes of answer sets; the best answer is always in."""
    scorer, sizes = scorer.prepare(), [torch.empty(0, dtype=torch.int64)]
    for rows in torch.arange(len(queries)).split(chunk_size(scorer, slot)) if len(queries) else ():
        sizes.append(_count_chunk(scorer, slot, queries[rows], limits[rows], known))
    return torch.cat(sizes).clamp(min=1)


def _count_chunk(scorer: Scorer, slot: Slot, queries: Triples, limits: SetLimits, known: KnownAnswers) -> Tensor:
    hide, count = exclude(known.of(queries)), torch.zeros(len(queries), dtype=torch.int64)
    pairs = None if limits.candidates is None else limits.candidates.lookup(queries.relation)
    for start, block in scorer.score_blocks(slot, queries):
        hide(start, block)
        inside = block.double() >= limits.score[:, None].to(block.device)
        inside &= block > -torch.inf  # where a limit is infinite
        if pairs is not None:
            outside = limits.typed[:, None].repeat(1, block.shape[1])
            outside[select_block(pairs, start, block.shape[1])] = False
            inside &= ~outside.to(block.device)
        count += inside.sum(1).cpu()
    return count


# The answer sets of a run ---------------------------------------------------------------------------------------------


def answer_sets_for(run: Run, scorer: Scorer, progress: Callable[[int], None] | None = None) -> AnswerSets:
    """What answer sets of a run are made with: computed on first use, then kept in its folder."""
    parse = partial(_parse, n_relations=run.graph.n_relations)
    return manifest.compute_once(
        run.path, run.fingerprint, FILE, parse, lambda: _Kept(FORMAT, fit_answer_sets(scorer, run.graph, progress))
    ).answer_sets


def _parse(value: Any, n_relations: int) -> _Kept | None:
    """What is kept in a run folder; None if it has another format, a ValueError if its numbers cannot be used."""
    kept = schema.read(_Kept, value)
    if kept.format != FORMAT:
        return None
    for surprises in kept.answer_sets.slots.values():
        if not len(surprises.relation) == len(surprises.surprise) == len(surprises.typed) > 0:
            raise ValueError("lists of other lengths")
        if surprises.weight is not None and (
            len(surprises.weight) != len(surprises.surprise) or not any(surprises.weight)
        ):
            raise ValueError("no weights of facts")
        if surprises.temperature == 0 or max(surprises.relation) >= n_relations:
            raise ValueError("numbers that no fit gives")
    return kept


@dataclass(frozen=True)
class _Kept:
    """The contents of the file."""

    format: int
    answer_sets: AnswerSets


def fit_answer_sets(scorer: Scorer, graph: Graph, progress: Callable[[int], None] | None = None) -> AnswerSets:
    """The surprises of validation facts, or of a sample of them, in each slot, with the facts of train known."""
    graph = replace(graph, valid=graph.valid.positive())
    if len(graph.valid) < MINIMUM or not len(graph.train):
        return AnswerSets({})
    scorer, types = scorer.prepare(), EntityTypes.infer(graph, ("train",))
    surprises = {slot: measure_surprises(scorer, graph, slot, types, progress) for slot in Slot}
    return AnswerSets({slot: values for slot, values in surprises.items() if values is not None})


def measure_surprises(
    scorer: Scorer, graph: Graph, slot: Slot, types: EntityTypes, progress: Callable[[int], None] | None = None
) -> Surprises | None:
    """The surprises of one slot, or None if too few validation facts are new."""
    n_candidates = graph.n_relations if slot is Slot.RELATION else graph.n_entities
    count = min(MAX_FACTS, max(MIN_FACTS, MAX_SCORES // max(1, n_candidates)))
    facts = graph.valid
    facts = facts[torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))[:count]]
    known = excluded_answers(graph, slot, ("train",), facts)
    facts = facts[~known.contain(facts)]  # a fact of train, too, is not new
    if len(facts) < MINIMUM:
        return None
    temperature = fit_temperature(scorer, slot, facts, n_candidates, known)
    scores, _ = score_and_log_normaliser(scorer, slot, facts)
    log_normaliser = log_normalisers(scorer, slot, facts, torch.tensor([temperature]), known, progress)[:, 0]
    surprise = log_normaliser - temperature * scores.cpu().double()
    if slot is Slot.RELATION:
        relation, typed = torch.zeros_like(facts.relation), torch.ones(len(facts), dtype=torch.bool)
    else:
        relation, typed = facts.relation, types.candidates(slot, facts.relation).contains(facts.relation, facts[slot])
    weight = None if facts.weight is None else (facts.weight / facts.weight.max()).tolist()
    rounded = [round(value, 6) for value in surprise.tolist()]
    return Surprises(temperature, relation.tolist(), rounded, typed.tolist(), weight)
