"""What the tools for agents return: small typed results, whose descriptions an agent reads in the output schema."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Status = Literal["supported", "unsupported", "contradicted"]
STATUSES = (
    "supported: other facts speak for it; unsupported: nothing speaks for or against it, as for many true but rare "
    "facts; contradicted: known facts cannot hold together with it, so compare their evidence before you write"
)


class AgentFact(BaseModel):
    """A fact by the names of its entities and its relation."""

    head: str
    relation: str
    tail: str


class Support(BaseModel):
    """Evidence for a fact."""

    text: str = Field(description="What speaks for the fact, in words.")
    facts: list[AgentFact] = Field(default=[], description="Known facts on which it rests.")


class Conflict(BaseModel):
    """A rule of the graph that a fact breaks."""

    rule: str
    facts: list[AgentFact] = Field(description="Known facts that cannot hold together with it.")


class UnknownNameResult(BaseModel):
    """A name that the graph does not have, or that several entities have."""

    slot: Literal["head", "relation", "tail"]
    name: str
    problem: str
    did_you_mean: list[str] = Field(description="Similar names of the graph; try one of them if it is meant.")


class FactCheck(BaseModel):
    """What a graph says about one fact."""

    fact: AgentFact
    known: bool = Field(description="Whether the graph has this fact.")
    status: Status | None = Field(description=f"{STATUSES}. null: a name is unknown.")
    probability: float | None = Field(
        description="That a fact which the graph lacks is true, by calibration on held-out facts. null: it is known, or a "
        "name is unknown."
    )
    support: list[Support] = Field(description="Strongest evidence first; of a known fact without the fact itself.")
    contradictions: list[Conflict]
    unknown_names: list[UnknownNameResult] = Field(
        description="If not empty, nothing else is known of the fact: correct the names, or it is about new entities."
    )


class RatedFact(AgentFact):
    probability: float | None = Field(description="That the fact is true.")
    reason: str = Field(description="The strongest evidence for it.")


class MissingFacts(BaseModel):
    """Facts of an entity that the graph lacks, most probable first."""

    entity: str
    facts: list[RatedFact]


class SimilarEntity(BaseModel):
    name: str
    similarity: float = Field(description="Larger is more similar; comparable within one answer only.")
    shares: list[str] = Field(description="What both have in common.")


class SimilarEntitiesResult(BaseModel):
    """Entities like one, in general or in the role that a fact gives it."""

    entity: str
    role: str | None
    entities: list[SimilarEntity]


class Rival(BaseModel):
    """Another candidate for the tail of a fact."""

    name: str
    probability: float | None


class FactExplanation(BaseModel):
    """Why a fact is likely or not."""

    fact: AgentFact
    known: bool
    evidence: str = Field(description="The strongest evidence, in words.")
    verdict: str = Field(description="What decides between this fact and the best other candidate for its tail.")
    rivals: list[Rival] = Field(description="The best other candidates for the tail, best first.")
    constraints: list[Support] = Field(description="Everything that speaks for it, strongest first.")
    rests_on: list[AgentFact] = Field(description="Training facts without which the learned patterns rank it lower.")
