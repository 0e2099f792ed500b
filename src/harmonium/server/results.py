"""Results of the explorer: plain dataclasses, which FastAPI encodes as JSON."""

from dataclasses import dataclass

from pydantic import BaseModel

from harmonium.analysis.neighbours import Neighbour
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError


@dataclass(frozen=True)
class Named:
    """An entity or a relation; names may repeat, identifiers do not."""

    id: str
    name: str


@dataclass(frozen=True)
class Match(Named):
    """A search result."""

    facts: int  # number of facts that mention it


class Problem(BaseModel):
    """An error: a message, and suggestions of similar names."""

    error: str
    unknown: str | None = None
    suggestions: list[Named] = []


class UnknownName(HarmoniumError):
    """A name that is not in the graph, or not unique, with similar ones."""

    def __init__(self, message: str, name: str, suggestions: list[Match]) -> None:
        super().__init__(message)
        self.name, self.suggestions = name, suggestions


@dataclass(frozen=True)
class Fact:
    head: Named
    relation: Named
    tail: Named
    split: str | None  # in which it is a fact; None for a prediction

    @property
    def ids(self) -> tuple[str, str, str]:
        return self.head.id, self.relation.id, self.tail.id


@dataclass(frozen=True)
class FactPage:
    """One page of the facts of an entity, of a relation, or of an entity and a relation."""

    entity: Named | None
    relation: Named | None
    total: int
    facts: list[Fact]


@dataclass(frozen=True)
class Prediction(Fact):
    open: Slot  # the slot that the model filled
    score: float  # harmony minus that of the zero triple
    probability: float | None  # None if the run has too few validation facts to calibrate
    reason: str | None = None  # in words; None if not requested


@dataclass(frozen=True)
class Predictions:
    """The most probable new facts of an entity."""

    entity: Named
    queries: int  # relations and sides that the entity could have
    facts: list[Prediction]


@dataclass(frozen=True)
class MissingFactList:
    """Probable facts that the graph lacks, each with a reason."""

    facts: list[Prediction]
    relations: int  # that could be searched
    searched: int  # of these, within the time limit


@dataclass(frozen=True)
class Answers:
    """The best answers to a query with one open slot."""

    query: str
    open: Slot
    has_one_answer: bool  # and it is known, so no other is possible
    answers: list[Prediction]


@dataclass(frozen=True)
class RelationGroup:
    """The facts of an entity that have it in the same slot of the same relation."""

    relation: Named
    slot: Slot  # of the entity; HEAD for a symmetric relation
    total: int
    facts: list[Fact]  # those with the most connected entities


@dataclass(frozen=True)
class Neighbourhood:
    """The known facts of an entity by relation."""

    entity: Named
    total: int
    groups: list[RelationGroup]


@dataclass(frozen=True)
class Role:
    """A role of an entity: it fills a slot of a relation, and another entity fills the other slot."""

    relation: Named
    slot: Slot
    other: Named


@dataclass(frozen=True)
class Roles:
    total: int
    roles: list[Role]  # the first of them


@dataclass(frozen=True)
class Comparison:
    """Two entities side by side."""

    first: Named
    second: Named
    similarity: float  # cosine of their vectors
    rank: int  # of the second among the entities most similar to the first
    entities: int  # that were ranked
    common: Roles
    only_first: Roles
    only_second: Roles
    links: list[Fact]  # known facts between the two
    predicted: list[Prediction]  # facts between the two that the graph lacks, in descending order of probability


@dataclass(frozen=True)
class RelationSummary:
    """A relation: how many facts it has, and which entities are its heads and tails."""

    relation: Named
    facts: int
    heads: int
    tails: int
    head_examples: list[Named]  # the most connected
    tail_examples: list[Named]
    symmetric: bool
    one_tail: bool  # a head has one tail
    one_head: bool  # a tail has one head
    complete: str | None  # how complete it is, in words; None where that was not estimated


@dataclass(frozen=True)
class RunSummary:
    """One of the runs that are served."""

    number: int
    name: str
    graph: str
    composition: str
    entities: int
    relations: int
    facts: int
    is_reviewed: bool  # whether reviewers judge its facts


@dataclass(frozen=True)
class LambdaRange:
    """The faithfulness (lambda) and its allowed range with the trained W; None is infinity."""

    current: float | None
    trained: float | None
    largest_eigenvalue: float | None  # of W; None: tokens have a truth unit instead
    minimum: float


@dataclass(frozen=True)
class GuisePoint(Named):
    """One entity in the two maps of a guise."""

    true: bool  # a known fact with this entity in the slot
    selected: bool  # the entity whose guise it is
    composed: tuple[float, float]
    token: tuple[float, float]


@dataclass(frozen=True)
class GuiseView:
    """The neighbourhood of an entity in the guise that one fact gives it, and maps of its candidates."""

    fact: Fact
    slot: Slot
    rank: float
    composed: list[Neighbour]
    token: list[Neighbour]
    faithfulness: LambdaRange | None
    points: list[GuisePoint]  # the nearest
    candidates: int  # number of entities that could fill the slot


@dataclass(frozen=True)
class MapPoint(Named):
    x: float
    y: float
    role: int  # position in the list of roles


@dataclass(frozen=True)
class EntityMap:
    """The most connected entities along the principal axes of all entity vectors."""

    roles: list[str]  # the most common main roles of entities; the last is "other"
    share: float  # of the variance along the two axes
    points: list[MapPoint]
    links: list[tuple[int, int]]  # pairs of points with a known fact
