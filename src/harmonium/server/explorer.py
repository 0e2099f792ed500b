"""The explorer: every query that the page and the API can ask of one run."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any

import torch

from harmonium.analysis.explain import Explainer
from harmonium.analysis.info import info
from harmonium.answers.calibration.completeness import completeness_of
from harmonium.answers.candidate_facts import OTHER
from harmonium.answers.complete import find_missing
from harmonium.answers.contradictions import with_contradictions
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.predict import answer
from harmonium.answers.prediction import optional_floats
from harmonium.answers.query import ask
from harmonium.answers.reasons import find_reasons
from harmonium.answers.tokens import FAITHFULNESS
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.model.harmony import Harmony
from harmonium.run.run import Run
from harmonium.server.fact_ratings import FactRatings
from harmonium.server.maps import entity_map, guise_points, links_between
from harmonium.server.missing import MissingFactSearch
from harmonium.server.name_search import GraphNames, NameIndex
from harmonium.server.neighbourhood import Neighbourhoods, similarity
from harmonium.server.prepared import LambdaFamily, PreparedGuise, range_of_truth
from harmonium.server.relations import entities_with, stated_types, summarise_relations
from harmonium.server.results import (
    Answers,
    Comparison,
    EntityMap,
    Fact,
    FactPage,
    GuiseView,
    Match,
    MissingFactList,
    Named,
    Neighbourhood,
    Prediction,
    Predictions,
    RelationSummary,
    RunSummary,
)

MOST_LINKS = 8  # predicted between two entities that are compared
MOST_INTERESTING, MOST_MISSING = 24, 50  # missing facts of all relations, and of one


@dataclass(frozen=True, eq=False)
class Explorer:
    """One run, opened for queries. What is slow to make is made once, on first use or by `prepare`."""

    run: Run
    missing_facts: dict[int | None, MissingFactList] = field(default_factory=dict)  # by relation; None: a choice of all
    lock: Lock = field(default_factory=Lock)  # of the search for them: one at a time

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        opened = self.opened
        opened.fact_calibration(progress=progress)
        for slot in Slot:
            opened.known(slot)
        for slot in OTHER:
            opened.search().relations_of(slot, 0)  # infers the types of all slots
        _ = self.neighbourhoods.by_entity, self.full_map, self.info

    @property
    def opened(self) -> OpenRun:
        return open_run(self.run)

    @property
    def graph(self) -> Graph:
        return self.run.graph

    # Kept for the pages ----------------------------------------------------------------------------------------------

    @cached_property
    def lambdas(self) -> LambdaFamily | None:
        """The model at other values of lambda; None for a plain model."""
        form = self.opened.model.form
        return LambdaFamily(form, self.opened.vectors) if isinstance(form, Harmony) else None

    @cached_property
    def entities(self) -> NameIndex:
        facts = self.graph.facts()
        counts = torch.cat([facts.head, facts.tail]).bincount(minlength=self.graph.n_entities)
        return NameIndex(self.graph.entities, counts)

    @cached_property
    def relations(self) -> NameIndex:
        return NameIndex(self.graph.relations, self.graph.facts().relation.bincount(minlength=self.graph.n_relations))

    @cached_property
    def names(self) -> GraphNames:
        return GraphNames(self.entities, self.relations)

    @cached_property
    def neighbourhoods(self) -> Neighbourhoods:
        return Neighbourhoods(self.graph, self.names, self.opened.traits)

    @property
    def ratings(self) -> FactRatings:
        return FactRatings(self.opened, self.names)

    @cached_property
    def explainer(self) -> Explainer:
        return Explainer(self.run)

    @cached_property
    @torch.no_grad()
    def full_map(self) -> EntityMap:
        return entity_map(self.graph, self.entities, self.opened.vectors.entities.float())

    @cached_property
    def info(self) -> dict[str, Any]:
        """The graph and the run, but not its path on this machine."""
        contents = info(self.run)
        del contents["run"]["path"]
        for update in contents["run"]["updates"]:
            update["command"] = _without_folders(update["command"])
        allowed = self.lambdas.range(self.lambdas.harmony.faithfulness) if self.lambdas else None
        protocol = self.run.evaluation.describe() if self.run.evaluation else None
        return contents | {"name": self.name, "lambda": allowed, "protocol": protocol}

    @cached_property
    def relation_summaries(self) -> list[RelationSummary]:
        complete = {row["relation"]: row["text"] for row in completeness_of(self.opened)}
        return summarise_relations(self.graph, self.names, self.opened.traits, complete)

    @property
    def name(self) -> str:
        """The last part of the run's folder."""
        return self.run.path.resolve().name if self.run.path else self.graph.name

    def summary(self, number: int, is_reviewed: bool) -> RunSummary:
        graph = self.graph
        counts = graph.n_entities, graph.n_relations, len(graph.facts())
        return RunSummary(number, self.name, graph.name, self.run.config.model.composition, *counts, is_reviewed)

    # Queries ---------------------------------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        kind: str,
        limit: int,
        relation: str | None = None,
        slot: Slot | None = None,
        type: str | None = None,
    ) -> list[Match]:
        """Names like a text; entities also by a relation and a slot in which they are, and by a type that is stated."""
        if kind == "relation":
            return self.relations.search(text, limit)
        relation_id = None if relation is None else self.relations.index(relation)
        type_id = None if type is None else self.entities.index(type)
        return self.entities.search(text, limit, entities_with(self.graph, relation_id, slot, type_id))

    def types(self, limit: int) -> list[Match]:
        return stated_types(self.graph, self.names)[:limit]

    def facts(self, name: str | None, relation: str | None, offset: int, limit: int) -> FactPage:
        """The facts of an entity by relation, first those with it as the head; or those of a relation."""
        if name is None and relation is None:
            raise HarmoniumError("give an entity, a relation, or both")
        entity = None if name is None else self.entities.index(name)
        relation_id = None if relation is None else self.relations.index(relation)
        positions = self.neighbourhoods.positions(entity, relation_id)
        facts = self.graph.facts()[positions]
        is_tail = torch.zeros_like(facts.head) if entity is None else facts.head != entity
        order = (is_tail * self.graph.n_relations + facts.relation).argsort(stable=True)[offset:][:limit]
        split_ends = torch.tensor([len(triples) for triples in self.graph.splits.values()]).cumsum(0)
        splits = torch.bucketize(positions[order], split_ends, right=True).tolist()
        rows = facts[order].to_rows().tolist()
        page = [Fact(*self.names.of(row), SPLITS[split]) for row, split in zip(rows, splits, strict=True)]
        named_entity = None if entity is None else self.entities.named(entity)
        named_relation = None if relation_id is None else self.relations.named(relation_id)
        return FactPage(named_entity, named_relation, len(positions), page)

    def neighbourhood(self, name: str, limit: int) -> Neighbourhood:
        entity = self.entities.index(name)
        total = len(self.neighbourhoods.positions(entity, None))
        return Neighbourhood(self.entities.named(entity), total, self.neighbourhoods.groups(entity, limit))

    @torch.no_grad()
    def fact(self, head: str, relation: str, tail: str) -> Prediction:
        """One fact: whether it is known, its score, its probability if it is missing, and a reason for it."""
        triple = self.names.triple(head, relation, tail)
        row = triple.to_rows()[0].tolist()
        split, probability = self.graph.splits_of(triple)[0], self.ratings.probability(*row)
        (score,) = self.opened.scorer.score_facts(Slot.TAIL, triple).tolist()
        (reason,) = with_contradictions(self.opened, triple, find_reasons(self.opened.evidence, triple))
        return Prediction(*self.names.of(row), split, Slot.TAIL, score, probability, reason.text)

    @torch.no_grad()
    def missing(self, relation: str | None, limit: int) -> MissingFactList:
        """Facts that the graph lacks: the most probable of a relation, or a choice of those of all relations."""
        relation_id = None if relation is None else self.relations.index(relation)
        with self.lock:
            if relation_id not in self.missing_facts:
                self.missing_facts[relation_id] = self._search_missing(relation_id)
        missing = self.missing_facts[relation_id]
        return replace(missing, facts=missing.facts[:limit])

    def _search_missing(self, relation: int | None) -> MissingFactList:
        search = MissingFactSearch(self.opened)
        if relation is None:
            relations = [each for each in self.opened.search().relations() if self.relations.counts[each]]
            best, searched = search.most_interesting(relations, MOST_INTERESTING)
        else:
            relations = [relation]
            best, searched = search.most_probable(relation, MOST_MISSING)
        facts = [
            Prediction(*self.names.of(fact.triple), None, Slot.TAIL, fact.score, fact.probability, fact.reason.text)
            for fact in best
        ]
        return MissingFactList(facts, len(relations), searched)

    @torch.no_grad()
    def compare(self, first: str, second: str) -> Comparison:
        """What two entities have in common, how similar their vectors are, and which facts may link them."""
        one, other = self.entities.index(first), self.entities.index(second)
        cosine, rank = similarity(self.opened.vectors.entities, one, other)
        facts = self.graph.facts()[self.neighbourhoods.positions(one, None)]
        links = (
            facts[(facts.head == other) | (facts.tail == other)] if one != other else facts[facts.head == facts.tail]
        )
        return Comparison(
            self.entities.named(one),
            self.entities.named(other),
            cosine,
            rank,
            self.graph.n_entities - 1,
            *self.neighbourhoods.compare(one, other),
            self.neighbourhoods.facts(links),
            [] if one == other else self.ratings.links_between(one, other, MOST_LINKS),
        )

    @torch.no_grad()
    def predictions(self, name: str, limit: int) -> Predictions:
        """The most probable missing facts of an entity, as head and as tail; those of symmetric relations as head."""
        entity, n_queries, facts = self.entities.index(name), 0, []
        search, calibration = self.opened.search(), self.opened.fact_calibration()
        for slot, open_slot in OTHER.items():
            relations = search.relations_of(slot, entity)
            if slot is Slot.TAIL:
                relations = [relation for relation in relations if not search.traits.symmetric[relation]]
            missing = find_missing(search, relations, limit, calibration, (slot, entity))
            probabilities = optional_floats(missing.probabilities, len(missing))
            columns = missing.triples.to_rows().tolist(), missing.scores.tolist(), probabilities
            for row, score, probability in zip(*columns, strict=True):
                if slot is Slot.HEAD or row[0] != entity:  # a loop is listed once
                    facts.append(Prediction(*self.names.of(row), None, open_slot, score, probability))
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
        query, opened = ask(self.graph, *ids), self.opened
        if len(query.open) != 1:
            raise HarmoniumError("give exactly two of head, relation and tail")
        slot = query.slot
        ((_, best),) = answer(opened, [query], top=limit, new_only=new_only, typed=typed)
        predictions = []
        for each in best:
            named = [Named(*pair) for pair in zip((each.head, each.relation, each.tail), each.names, strict=True)]
            rated = each.known, slot, each.score, each.probability
            predictions.append(Prediction(named[0], named[1], named[2], *rated))
        if slot is not Slot.RELATION and opened.traits.symmetric[query.triple.relation].all():
            predictions.sort(key=lambda prediction: -(prediction.probability or 0))  # one for both directions
        return Answers(query.text, slot, typed and opened.is_answered(slot, query.triple), predictions)

    @torch.no_grad()
    def guise(
        self, head: str, relation: str, tail: str, slot: Slot, count: int, typed: bool, faithfulness: float | None
    ) -> GuiseView:
        """Neighbours of an entity in one fact by composed vector and by token, at any lambda that tokens allow."""
        triple, scorer, space = self.names.triple(head, relation, tail), self.opened.vectors, None
        if self.lambdas is None:
            faithfulness = FAITHFULNESS if faithfulness is None else faithfulness
            space, allowed = self.opened.tokens, range_of_truth(faithfulness)
        else:
            faithfulness = self.lambdas.harmony.faithfulness if faithfulness is None else faithfulness
            allowed = self.lambdas.range(faithfulness)
            harmony, scorer = self.lambdas.at(faithfulness)
        guise = PreparedGuise(self.opened.model, self.graph, triple, slot, typed, space, faithfulness, prepared=scorer)
        if space is None:
            composed, tokens = guise.composed, guise.composed @ harmony.token_map()
        else:
            composed, tokens = guise.spaces.values()
        return GuiseView(
            Fact(*self.names.of(triple.to_rows()[0].tolist()), self.graph.splits_of(triple)[0]),
            slot,
            guise.ranks(triple[slot])[0],
            guise.nearest(composed, count),
            guise.nearest(tokens, count),
            allowed,
            guise_points(guise, self.entities, composed, tokens),
            len(guise.candidates) - 1,
        )

    def explain(self, head: str, relation: str, tail: str, count: int, details: bool) -> dict[str, Any]:
        return self.explainer.explain(self.names.triple(head, relation, tail), count, details).to_json()

    def map(self, limit: int, name: str | None, n_links: int) -> EntityMap:
        """The most connected entities, and one more, with some of the facts between them."""
        order = self.entities.by_count
        positions = list(range(min(limit, len(order))))  # among all entities, the most connected first
        if name is not None:
            wanted = order.index(self.entities.index(name))
            positions = [position for position in positions if position != wanted] + [wanted]
        entities = torch.tensor([order[position] for position in positions])
        links = links_between(self.graph, entities, n_links) if n_links else []
        return replace(self.full_map, points=[self.full_map.points[position] for position in positions], links=links)


def _without_folders(command: str) -> str:
    """A command with the names of files, but not their folders on this machine."""
    try:
        words = shlex.split(command)
    except ValueError:  # not written by a shell
        words = command.split()
    return " ".join(word.rpartition("/")[2] or word for word in words)
