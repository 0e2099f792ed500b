"""The explorer: every question that the page and the API can ask of one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from harmonium.analysis.explain import Explainer
from harmonium.analysis.info import info
from harmonium.answers.predict import answer_all
from harmonium.answers.probability import Calibration, calibration_for
from harmonium.answers.query import ask
from harmonium.answers.score import split_of
from harmonium.data.graph import SPLITS
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.interfaces.serve.maps import entity_map, guise_points
from harmonium.interfaces.serve.name_search import NameIndex
from harmonium.interfaces.serve.prepared import CachedGraph, LambdaFamily, PreparedGuise
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

ANSWERS_PER_QUERY = 5  # predicted facts for one relation of an entity
FULL_QUERIES = 12  # relations of an entity that are scored against all entities, the most promising ones
MOST_CANDIDATES = 30_000  # scored to find those


@dataclass(frozen=True, eq=False)
class Explorer:
    """One run, opened for questions. What is slow to make is made once, on first use or by `prepare`."""

    run: Run

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        if len(self.graph.valid):
            calibration_for(self.run, progress)
        for slot in Slot:
            self.graph.known_answers(slot)
        _ = self.facts_by_entity, self.calibration, self.full_map, self.info

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
        entity = self.entities.index(name)
        queries = self._queries_by_promise(entity)
        asked, facts = queries[:FULL_QUERIES], []
        for slot in (Slot.HEAD, Slot.TAIL):
            rows = [[entity, relation, entity] for open_slot, relation in asked if open_slot is slot]
            facts += self._best(slot, Triples.from_rows(rows), ANSWERS_PER_QUERY, new_only=True, typed=True)
        facts = [fact for fact in facts if fact.head.id != fact.tail.id]
        facts.sort(key=lambda fact: (-(fact.probability or 0), -fact.score))
        return Predictions(self.entities.named(entity), len(asked), len(queries), facts[:limit])

    @torch.no_grad()
    def answers(self, head: str | None, relation: str | None, tail: str | None, limit: int, new_only: bool) -> Answers:
        ids = []
        for names, name in ((self.entities, head), (self.relations, relation), (self.entities, tail)):
            ids.append(None if name is None else names.vocabulary.ids[names.index(name)])
        query = ask(self.graph, *ids)
        return Answers(query.text, query.slot, self._best(query.slot, query.triple, limit, new_only))

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

    def _best(self, slot: Slot, queries: Triples, limit: int, new_only: bool, typed: bool = False) -> list[Prediction]:
        """The best answers to each query, with their probabilities."""
        answers = answer_all(self.scorer, self.graph, slot, queries, limit, new_only, self.calibration, typed=typed)
        column, facts = list(Slot).index(slot), []
        for row, best in zip(queries.to_rows().tolist(), answers, strict=True):
            for answer in best:
                row[column] = answer.index
                facts.append(Prediction(*self._names(row), answer.known, slot, answer.score, answer.probability))
        return facts

    def _queries_by_promise(self, entity: int) -> list[tuple[Slot, int]]:
        """Open slots and relations that an entity is seen with; first those whose best new candidate stands out most."""
        facts = self.graph.facts()[self._fact_positions(entity)]
        promises: list[tuple[float, Slot, int]] = []
        scored = 0
        for given, slot in ((Slot.HEAD, Slot.TAIL), (Slot.TAIL, Slot.HEAD)):
            for relation in torch.unique(facts.relation[facts[given] == entity]).tolist():
                query = Triples.from_rows([[entity, relation, entity]])
                candidates = self.graph.slot_candidates(slot).lookup(query.relation)[1]
                known = self.graph.known_answers(slot).of(query)[1]
                is_new = ~torch.isin(candidates, torch.cat([known, query[slot]]))
                if is_new.any() and scored + len(candidates) <= MOST_CANDIDATES:
                    scored += len(candidates)
                    vectors = self.scorer.entity_vectors.of(candidates)
                    scores = self.scorer.form(self.scorer.slot_map(slot, query).apply(vectors))
                    promises.append(((scores[is_new].max() - scores.logsumexp(0)).item(), slot, relation))
        promises.sort(key=lambda promise: -promise[0])
        return [(slot, relation) for _, slot, relation in promises]
