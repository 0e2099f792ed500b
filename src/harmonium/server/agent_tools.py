"""What agents can ask of a run: tools that answer with small typed results.

Names are those of the graph; an unknown one is answered with similar names, so that an agent can correct itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from harmonium.analysis.similar import similar
from harmonium.answers.contradictions import Contradiction
from harmonium.answers.fact_check import check_facts, supporting
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import optional_floats
from harmonium.answers.reasons import Reason, find_reasons
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.server.agent_results import (
    AgentFact,
    Conflict,
    FactCheck,
    FactExplanation,
    MissingFacts,
    RatedFact,
    Rival,
    SimilarEntitiesResult,
    SimilarEntity,
    Support,
    UnknownNameResult,
)
from harmonium.server.explorer import Explorer
from harmonium.server.results import UnknownName

INSTRUCTIONS = """\
A knowledge graph, '{name}', of {facts:,} facts (head, relation, tail) about {entities:,} entities, and a model of it.
Ask check_fact before you write a fact: one that it calls contradicted cannot hold together with known facts.
Relations: {relations}.
Names are those of the graph; a name that it does not have is answered with similar ones."""
MOST_RELATIONS = 100  # named in the instructions
MOST_SUPPORT = 3  # pieces of evidence for a fact
MOST_FACTS = 3  # that a piece of evidence names
SLOTS: tuple[Literal["head", "relation", "tail"], ...] = ("head", "relation", "tail")

Head = Annotated[str, Field(description="Name of the head entity (the subject).")]
Relation = Annotated[str, Field(description="Name of the relation; the server's instructions list them.")]
Tail = Annotated[str, Field(description="Name of the tail entity (the object).")]
Entity = Annotated[str, Field(description="Name of an entity.")]
RoleRelation = Annotated[
    str | None, Field(description="Relation of the fact in which it is looked at; default: in general.")
]
RoleTail = Annotated[str | None, Field(description="Tail of that fact.")]
Limit = Annotated[int, Field(description="Number of results.", ge=1, le=50)]


@dataclass(frozen=True, eq=False)
class AgentTools:
    """The tools, as functions of names; their docstrings are the descriptions that an agent reads."""

    explorer: Explorer
    lock: Lock = field(default_factory=Lock)  # one answer at a time: each uses all cores

    @property
    def opened(self) -> OpenRun:
        return open_run(self.explorer.run)

    @property
    def graph(self) -> Graph:
        return self.explorer.graph

    @property
    def instructions(self) -> str:
        """What the graph is about, and the names of its most frequent relations."""
        relations = self.explorer.relations
        shown = [relations.vocabulary.name(index) for index in relations.by_count[:MOST_RELATIONS]]
        rest = len(relations.by_count) - len(shown)
        return INSTRUCTIONS.format(
            name=self.graph.name,
            facts=len(self.graph.facts()),
            entities=self.graph.n_entities,
            relations=", ".join(shown) + (f" and {rest:,} more" if rest else ""),
        )

    @property
    def all(self) -> list[Callable[..., BaseModel]]:
        return [self.check_fact, self.missing_facts, self.similar_entities, self.explain_fact]

    def prepare(self) -> None:
        """Open the run and fit its probabilities, so that the first answer does not wait for it."""
        with self.lock:
            self.opened.fact_calibration()
            _ = self.opened.types

    def check_fact(self, head: Head, relation: Relation, tail: Tail) -> FactCheck:
        """Check a fact before you write it: whether it is known, how probable it is, what supports and what contradicts it.

        An unknown name is no error: the result lists similar names.
        """
        fact, unknown = AgentFact(head=head, relation=relation, tail=tail), self._unknown_names(head, relation, tail)
        if unknown:
            nothing: dict[str, Any] = {"status": None, "probability": None, "support": [], "contradictions": []}
            return FactCheck(fact=fact, known=False, unknown_names=unknown, **nothing)
        with self.lock:
            opened, triple = self.opened, self.explorer.names.triple(head, relation, tail)
            (check,) = check_facts(opened, triple)
            probability = None if check.known else optional_floats(opened.probabilities(triple), 1)[0]
            return FactCheck(
                fact=self._facts(triple.to_rows().tolist())[0],
                known=check.known,
                status=check.status,
                probability=probability,
                support=self._support(triple, check.reason) if check.is_supported else [],
                contradictions=[self._conflict(each) for each in check.contradictions],
                unknown_names=[],
            )

    def missing_facts(self, entity: Entity, limit: Limit = 10) -> MissingFacts:
        """List facts about an entity that the graph lacks, most probable first, each with its probability and a reason."""
        with self.lock:
            found = self.explorer.predictions(entity, limit)
            triples = Triples.from_rows([self._row(fact.ids) for fact in found.facts])
            reasons = find_reasons(self.opened.evidence, triples)
            names = self._facts(triples.to_rows().tolist())
            rated = [
                RatedFact(**name.model_dump(), probability=fact.probability, reason=reason.text)
                for name, fact, reason in zip(names, found.facts, reasons, strict=True)
            ]
            return MissingFacts(entity=found.entity.name, facts=rated)

    def similar_entities(
        self, entity: Entity, relation: RoleRelation = None, tail: RoleTail = None, limit: Limit = 10
    ) -> SimilarEntitiesResult:
        """List the entities most like one: in general, or, with a relation and a tail, as the head of that fact."""
        with self.lock:
            found = similar(self.opened, entity, relation, tail, top=limit)
        return SimilarEntitiesResult(
            entity=found.entity,
            role=None if found.role is None else " ".join(found.role),
            entities=[
                SimilarEntity(name=each.name, similarity=each.similarity, shares=list(each.shared)) for each in found
            ],
        )

    def explain_fact(self, head: Head, relation: Relation, tail: Tail) -> FactExplanation:
        """Explain why a fact is likely or not: evidence, the best other candidates for its tail, and what decides."""
        triple = self.explorer.names.triple(head, relation, tail)
        with self.lock:
            found = self.explorer.explainer.explain(triple)
            tableau = found.tableau
            rivals = [] if tableau is None else [each for each in tableau.candidates if not each.asked]
            return FactExplanation(
                fact=self._facts(triple.to_rows().tolist())[0],
                known=found.known is not None,
                evidence=found.evidence,
                verdict=found.verdict if tableau is None else tableau.verdict,
                rivals=[Rival(name=each.name, probability=each.probability) for each in rivals],
                constraints=self._support(triple, find_reasons(self.opened.evidence, triple)[0]),
                rests_on=[_named(fact.fact) for fact in found.necessary],
            )

    def _unknown_names(self, *names: str) -> list[UnknownNameResult]:
        unknown = []
        for slot, name in zip(SLOTS, names, strict=True):
            index = self.explorer.relations if slot == "relation" else self.explorer.entities
            try:
                index.index(name)
            except UnknownName as error:
                near = [match.name for match in error.suggestions]
                unknown.append(UnknownNameResult(slot=slot, name=name, problem=str(error), did_you_mean=near))
        return unknown

    def _row(self, ids: tuple[str, str, str]) -> list[int]:
        entities, relations = self.graph.entities, self.graph.relations
        return [entities.index(ids[0]), relations.index(ids[1]), entities.index(ids[2])]

    def _facts(self, rows: list[tuple[int, int, int]] | list[list[int]]) -> list[AgentFact]:
        return [_named(names) for names in self.graph.names_of(Triples.from_rows(rows))] if rows else []

    def _support(self, triple: Triples, reason: Reason) -> list[Support]:
        """The strongest evidence for a fact (one row) with its counts, then what else speaks for it."""
        if reason.kind == "none":
            return []
        evidence = {part.evidence.text: part.evidence.facts for part in supporting(self.opened, triple, MOST_SUPPORT)}
        of_reason = next((text for text in evidence if reason.text.startswith(text)), None)
        facts = () if of_reason is None else evidence.pop(of_reason)
        texts = {reason.text: facts, **evidence}
        return [Support(text=text, facts=self._facts(list(facts[:MOST_FACTS]))) for text, facts in texts.items()][
            :MOST_SUPPORT
        ]

    def _conflict(self, contradiction: Contradiction) -> Conflict:
        return Conflict(rule=contradiction.rule, facts=self._facts(list(contradiction.facts)))


def _named(names: tuple[str, str, str]) -> AgentFact:
    return AgentFact(head=names[0], relation=names[1], tail=names[2])
