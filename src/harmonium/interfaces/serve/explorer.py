"""The explorer: every question that the page and the API can ask of one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from harmonium.analysis.explain import Explainer
from harmonium.analysis.info import info
from harmonium.answers.candidate_facts import OTHER, CandidateSearch
from harmonium.answers.complete import find_missing
from harmonium.answers.fact_probability import FactCalibration, fact_calibration_for
from harmonium.answers.predict import answer_all
from harmonium.answers.probability import Calibration, calibration_for, optional_floats
from harmonium.answers.query import ask
from harmonium.answers.score import split_of
from harmonium.data.graph import SPLITS
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.interfaces.serve.maps import entity_map, guise_points
from harmonium.interfaces.serve.name_search import NameIndex
from harmonium.interfaces.serve.prepared import CachedGraph, CachedTypes, LambdaFamily, PreparedGuise
from harmonium.interfaces.serve.results import (
    Answers,
    EntityMap,
    Fact,
    FactPage,
    GuiseView,
    Match,
    Named,
    Prediction,
    Predictions,
)
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import EmbeddingScorer
from harmonium.run.run import Run


@dataclass(frozen=True, eq=False)
class Explorer:
    """One run, opened for questions. What is slow to make is made once, on first use or by `prepare`."""

    run: Run

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        if len(self.graph.valid):
            calibration_for(self.run, progress)
            fact_calibration_for(self.run, progress=progress)
        for slot in Slot:
            self.graph.known_answers(slot)
        for slot in OTHER:
            self.candidates.relations_of(slot, 0)  # infers the types of all slots
        _ = self.facts_by_entity, self.calibration, self.fact_calibration, self.full_map, self.info

    # Kept ------------------------------------------------------------------------------------------------------------

    @cached_property
    def graph(self) -> CachedGraph:
        return CachedGraph(**vars(self.run.graph))

    @cached_property
    def scorer(self) -> EmbeddingScorer:
        return self.run.model.prepare()

    @cached_property
    def lambdas(self) -> LambdaFamily | None:
        """The model at other values of lambda; None for a plain model."""
        form = self.run.model.form
        return LambdaFamily(form, self.scorer) if isinstance(form, Harmony) else None

    @cached_property
    def entities(self) -> NameIndex:
        facts = self.graph.facts()
        counts = torch.cat([facts.head, facts.tail]).bincount(minlength=self.graph.n_entities)
        return NameIndex(self.graph.entities, counts)

    @cached_property
    def relations(self) -> NameIndex:
        return NameIndex(self.graph.relations, self.graph.facts().relation.bincount(minlength=self.graph.n_relations))

    @cached_property
    def facts_by_entity(self) -> CsrIndex:
        """entity -> positions in `graph.facts()`."""
        facts = self.graph.facts()
        return CsrIndex.build(torch.cat([facts.head, facts.tail]), torch.arange(len(facts)).repeat(2))

    @cached_property
    def calibration(self) -> Calibration | None:
        """None if there are no validation facts."""
        return calibration_for(self.run) if len(self.graph.valid) else None

    @cached_property
    def fact_calibration(self) -> FactCalibration | None:
        """None if there are too few validation facts."""
        return fact_calibration_for(self.run) if len(self.graph.valid) else None

    @cached_property
    def candidates(self) -> CandidateSearch:
        search = CandidateSearch.prepare(self.scorer, self.graph)
        return replace(search, types=CachedTypes(search.types))

    @cached_property
    def explainer(self) -> Explainer:
        return Explainer(self.run.model, self.graph)

    @cached_property
    @torch.no_grad()
    def full_map(self) -> EntityMap:
        return entity_map(self.graph, self.entities, self.scorer.entities.float())

    @cached_property
    def info(self) -> dict[str, Any]:
        """The graph and the run, but not its path on this machine."""
        contents = info(replace(self.run, graph=self.graph))
        del contents["run"]["path"]
        name = self.run.path.resolve().name if self.run.path else self.graph.name
        allowed = self.lambdas.range(self.lambdas.harmony.faithfulness) if self.lambdas else None
        protocol = self.run.evaluation.describe() if self.run.evaluation else None
        return contents | {"name": name, "lambda": allowed, "protocol": protocol}

    # Questions -------------------------------------------------------------------------------------------------------

    def search(self, text: str, kind: str, limit: int) -> list[Match]:
        return (self.relations if kind == "relation" else self.entities).search(text, limit)

    def facts(self, name: str, offset: int, limit: int) -> FactPage:
        """The facts that mention an entity by relation, first those with it as the head."""
        entity = self.entities.index(name)
        positions = self._fact_positions(entity)
        facts = self.graph.facts()[positions]
        order = ((facts.head != entity) * self.graph.n_relations + facts.relation).argsort(stable=True)[offset:][:limit]
        split_ends = torch.tensor([len(triples) for triples in self.graph.splits.values()]).cumsum(0)
        splits = torch.bucketize(positions[order], split_ends, right=True).tolist()
        rows = facts[order].to_rows().tolist()
        page = [Fact(*self._names(row), SPLITS[split]) for row, split in zip(rows, splits, strict=True)]
        return FactPage(self.entities.named(entity), len(positions), page)

    @torch.no_grad()
    def predictions(self, name: str, limit: int) -> Predictions:
        """The most probable missing facts of an entity, as head and as tail; those of symmetric relations as head."""
        entity, n_queries, facts = self.entities.index(name), 0, []
        for slot, open_slot in OTHER.items():
            relations = self.candidates.relations_of(slot, entity)
            if slot is Slot.TAIL:
                relations = [relation for relation in relations if not self.candidates.traits.symmetric[relation]]
            missing = find_missing(self.candidates, relations, limit, self.fact_calibration, (slot, entity))
            probabilities = optional_floats(missing.probabilities, len(missing))
            columns = missing.triples.to_rows().tolist(), missing.scores.tolist(), probabilities
            for row, score, probability in zip(*columns, strict=True):
                if slot is Slot.HEAD or row[0] != entity:  # a loop is listed once
                    facts.append(Prediction(*self._names(row), None, open_slot, score, probability))
            n_queries += len(relations)
        facts.sort(key=lambda fact: (-(fact.probability or 0), -fact.score))
        return Predictions(self.entities.named(entity), n_queries, facts[:limit])

    @torch.no_grad()
    def answers(
        self, head: str | None, relation: str | None, tail: str | None, limit: int, new_only: bool, typed: bool
    ) -> Answers:
        ids = []
        for names, name in ((self.entities, head), (self.relations, relation), (self.entities, tail)):
            ids.append(None if name is None else names.vocabulary.ids[names.index(name)])
        query = ask(self.graph, *ids)
        types = self.candidates.types if typed else None
        slot, calibration = query.slot, self.calibration
        best = answer_all(self.scorer, self.graph, slot, query.triple, limit, new_only, calibration, types=types)
        row, column, predictions = query.triple.to_rows()[0].tolist(), list(Slot).index(slot), []
        for answer in next(best):
            row[column] = answer.index
            predictions.append(Prediction(*self._names(row), answer.known, slot, answer.score, answer.probability))
        return Answers(query.text, slot, predictions)

    @torch.no_grad()
    def guise(
        self, head: str, relation: str, tail: str, slot: Slot, count: int, typed: bool, faithfulness: float | None
    ) -> GuiseView:
        """Neighbours of an entity in one fact by composed vector and by token, at any lambda that W allows."""
        triple, scorer, harmony, allowed = self._triple(head, relation, tail), self.scorer, None, None
        if self.lambdas:
            faithfulness = self.lambdas.harmony.faithfulness if faithfulness is None else faithfulness
            allowed = self.lambdas.range(faithfulness)
            harmony, scorer = self.lambdas.at(faithfulness)
        elif faithfulness is not None:
            _ = self.run.model.harmony  # an error: a plain model has none
        guise = PreparedGuise(self.run.model, self.graph, triple, slot, typed, prepared=scorer)
        composed = guise.composed
        tokens = None if harmony is None else composed @ harmony.token_map()
        return GuiseView(
            Fact(*self._names(triple.to_rows()[0].tolist()), split_of(self.graph, triple)[0]),
            slot,
            guise.ranks(triple[slot])[0],
            guise.nearest(composed, count),
            [] if tokens is None else guise.nearest(tokens, count),
            allowed,
            guise_points(guise, self.entities, composed, tokens),
            len(guise.candidates) - 1,
        )

    def explain(self, head: str, relation: str, tail: str, count: int) -> dict[str, Any]:
        return self.explainer.explain(self._triple(head, relation, tail), count).to_json()

    def map(self, limit: int, name: str | None) -> EntityMap:
        points = self.full_map.points[:limit]
        if name is not None:
            wanted = self.graph.entities.ids[self.entities.index(name)]
            points = [point for point in points if point.id != wanted]
            points += [point for point in self.full_map.points if point.id == wanted]
        return replace(self.full_map, points=points)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _names(self, row: Sequence[int]) -> tuple[Named, Named, Named]:
        head, relation, tail = row
        return self.entities.named(head), self.relations.named(relation), self.entities.named(tail)

    def _triple(self, head: str, relation: str, tail: str) -> Triples:
        row = [self.entities.index(head), self.relations.index(relation), self.entities.index(tail)]
        return Triples.from_rows([row])

    def _fact_positions(self, entity: int) -> torch.Tensor:
        return self.facts_by_entity.lookup(torch.tensor([entity]))[1]
