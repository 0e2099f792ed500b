"""A run opened for queries: everything that answers need of it, each computed once, when it is first needed.

    opened = open_run("runs/demo")

Who asks a run (`predict`, `score`, `complete`, `classify`, the commands, the page, a review) asks this object. Answers are
scored by its `scorer` alone, which may be any Scorer: the vectors of the model, or a sum of several families.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harmonium.answers.calibration.conformal import AnswerSets, answer_sets_for
from harmonium.answers.calibration.fact_probability import (
    FactCalibration,
    fact_calibration_for,
    uncalibrated_log_odds,
)
from harmonium.answers.candidate_facts import CandidateSearch, Progress
from harmonium.answers.conflicts import Conflicts
from harmonium.answers.reasons import Evidence
from harmonium.answers.relation_traits import FUNCTIONAL, RelationTraits, false_answers
from harmonium.answers.tokens import TokenSpace, truth_unit_for
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.further_answers import FurtherAnswers
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import EmbeddingScorer, Scorer
from harmonium.run.run import Run

if TYPE_CHECKING:
    from harmonium.grammar.grammar import Grammar


FITTED = 200  # held-out facts from which weights of features separate true from false facts better than fixed ones
SECOND_ANSWERS = 1 - FUNCTIONAL  # share of the queries of a relation with one answer that have another


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A run prepared for many queries.

    Nothing in it can go stale: a run is never changed, an update is another run. What people's judgements taught is read
    from the run folder each time (`fact_calibration`), as it may be learned while the run is open.
    """

    run: Run

    def __reduce__(self) -> tuple[type[OpenRun], tuple[Run]]:
        """A pickled or copied run is opened again: nothing that was computed goes with it."""
        return OpenRun, (self.run,)

    @property
    def graph(self) -> Graph:
        return self.run.graph

    @property
    def model(self) -> GradientGraph:
        """The vectors that answer."""
        return self.run.final or self.run.model

    @cached_property
    def vectors(self) -> EmbeddingScorer:
        """The model at this instant: for what is about vectors themselves, such as similarity and guises."""
        return (self.run.final or self.run.model).prepare()

    @cached_property
    def scorer(self) -> Scorer:
        """What answers are scored and ranked by, prepared: it knows every fact of the graph."""
        return self.vectors if self.run.grammar is None else self.run.answering_scorer().prepare()

    @cached_property
    def held_out_scorer(self) -> Scorer:
        """What has learned from train facts alone: probabilities are fitted to what it says of held-out facts."""
        return self.run.held_out_scorer().prepare()

    @cached_property
    def tokens(self) -> TokenSpace:
        """Entities as they appear in facts."""
        return TokenSpace(self.vectors, self.scorer, truth_unit_for(self.run, self.held_out_scorer))

    @property
    def grammar(self) -> Grammar | None:
        """The constraints beside the vectors, where the run has learned any."""
        from harmonium.grammar.grammar import Grammar

        return self.scorer if isinstance(self.scorer, Grammar) else None

    def known(self, slot: Slot) -> KnownAnswers:
        """The known answers of all queries with this slot open."""
        return self.graph.keep_known_answers(slot)

    def rejected(self, slot: Slot) -> KnownAnswers:
        """Answers that are known to be false; in both directions where the relation is symmetric."""
        return self._rejected[slot]

    @cached_property
    def _rejected(self) -> dict[Slot, KnownAnswers]:
        traits = self.traits if len(self.graph.rejected) else None
        return {slot: false_answers(self.graph, slot, traits) for slot in Slot}

    def splits_of(self, triples: Triples) -> list[str | None]:
        """The first split in which each triple is a fact, or None."""
        for split in SPLITS:
            self.graph.keep_known_answers(Slot.TAIL, (split,))
        return self.graph.splits_of(triples)

    @cached_property
    def types(self) -> EntityTypes:
        """Which entities could fill a slot of a relation."""
        return EntityTypes.infer(self.graph)

    @cached_property
    def traits(self) -> RelationTraits:
        """Which relations are symmetric, and which have one answer."""
        return RelationTraits.infer(self.graph)

    @cached_property
    def further(self) -> FurtherAnswers:
        """How likely a query has an answer that the graph lacks."""
        known = None if self.grammar is None else self.grammar.further
        return known or FurtherAnswers.of(self.graph)

    @cached_property
    def conflicts(self) -> Conflicts:
        """Which facts do not go together with known ones."""
        return Conflicts(self.graph.facts(), self.traits, self.graph.n_entities)

    def probabilities(self, triples: Triples) -> Tensor | None:
        """(n,): P(the fact is true), the one that every command, page and file states; None with too few held-out facts.

        A second answer where a relation has one, and it is known, is as improbable as such facts are in the graph.
        """
        calibration = self.fact_calibration()
        if calibration is None:
            return None
        probabilities = calibration.probabilities(self.rating.rate(triples))
        return torch.where(self.is_second_answer(triples), probabilities * SECOND_ANSWERS, probabilities)

    def held_out_scores(self, triples: Triples) -> Tensor:
        """(n,): how well facts rate by what was learned from train facts alone, comparable within a relation.

        The log-odds of their probability; where few held-out facts have been fitted, a fixed sum of the same features.
        """
        calibration, facts = self.fact_calibration(), self._held_out_rating.rate(triples)
        if calibration is None or calibration.true < FITTED:
            return uncalibrated_log_odds(facts)
        return calibration.uncorrected().log_odds(facts)

    @cached_property
    def _held_out_rating(self) -> CandidateSearch:
        return CandidateSearch.prepare(self.held_out_scorer, self.graph, ("train",))

    @cached_property
    def rating(self) -> CandidateSearch:
        """What any fact is rated by."""
        return self.search()

    def is_second_answer(self, triples: Triples) -> Tensor:
        """(n,) bool: whether a relation that has one answer has another one in the graph, for the head or the tail."""
        second = torch.zeros(len(triples), dtype=torch.bool)
        for slot in (Slot.HEAD, Slot.TAIL):
            known = self.known(slot)
            row, answer = known.of(triples)
            others = answer != triples[slot][row]
            has_other = torch.zeros_like(second).index_fill_(0, row[others], True)
            second |= has_other & self.traits.has_one_answer(slot)[triples.relation]
        return second

    def fact_calibration(self, progress: Progress | None = None) -> FactCalibration | None:
        """What probabilities are computed with: fitted on first use, then kept; None with too few validation facts."""
        return fact_calibration_for(self.run, self.held_out_scorer, progress)

    def answer_sets(self, progress: Progress | None = None) -> AnswerSets:
        """What answer sets of a given coverage are made with, likewise."""
        return answer_sets_for(self.run, self.held_out_scorer, progress)

    def search(self, typed: bool = True, only_empty: bool = False) -> CandidateSearch:
        """The search for facts that the graph lacks."""
        slots = (Slot.HEAD, Slot.TAIL)
        known = {slot: self.known(slot) for slot in slots}
        rejected = {slot: self.rejected(slot) for slot in slots}
        learned = self.further, self.conflicts
        return CandidateSearch(self.scorer, self.types, self.traits, known, rejected, *learned, typed, only_empty)

    def is_answered(self, slot: Slot, query: Triples) -> bool:
        """Whether a query (one row) can have one answer, and the graph knows it."""
        if slot is Slot.RELATION or not self.traits.has_one_answer(slot)[query.relation].all():
            return False
        return len(self.known(slot).of(query)[1]) > 0

    @cached_property
    def evidence(self) -> Evidence:
        """What reasons are made of."""
        return Evidence(self.graph, self.model, self.grammar)


def open_run(run: Run | OpenRun | str | Path) -> OpenRun:
    """A run, or the one in a folder, opened for queries: always the same object for the same run."""
    if isinstance(run, OpenRun):
        return run
    run = Run.of(run)
    opened = vars(run).get("_opened")
    if not isinstance(opened, OpenRun):
        vars(run)["_opened"] = opened = OpenRun(run)
    return opened
