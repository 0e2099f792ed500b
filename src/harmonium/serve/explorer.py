"""What the explorer can be asked: names, facts, predictions, guises and maps of one run, as plain objects."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from harmonium import commands, prediction
from harmonium.analysis.neighbours import Guise, Neighbour
from harmonium.calibration import Calibration, calibration_of
from harmonium.errors import HarmoniumError
from harmonium.evaluation import rank
from harmonium.graph import SPLITS, Answers, Graph, Groups, Slot, Triples, Vocabulary
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph
from harmonium.run import Run

PER_QUESTION = 5  # predicted facts for one relation of an entity
QUESTIONS = 12  # relations of an entity that are asked with all entities, the most promising ones
MOST_CANDIDATES = 30_000  # scored to find those
MOST_POINTS = 400  # in the map of a guise
ROOM = 1.02  # how far lambda stays above the largest eigenvalue of W, times that


class Unknown(HarmoniumError):
    """A name that is not in the graph, and those like it."""

    def __init__(self, message: str, name: str, suggestions: list[Found]) -> None:
        super().__init__(message)
        self.name, self.suggestions = name, suggestions


@dataclass(frozen=True)
class Named:
    """An entity or a relation; the id tells apart what has the same name."""

    id: str
    name: str


@dataclass(frozen=True)
class Found(Named):
    """A name that was searched for, and how many facts mention it."""

    facts: int


@dataclass(frozen=True)
class Fact:
    head: Named
    relation: Named
    tail: Named
    split: str | None  # where it is a fact; None for a prediction


@dataclass(frozen=True)
class Facts:
    """One page of the facts of an entity."""

    entity: Named
    total: int
    facts: list[Fact]


@dataclass(frozen=True)
class Prediction(Fact):
    open: Slot  # the slot that the model filled
    score: float  # harmony above that of the zero triplet
    probability: float | None  # None where the run has no validation facts to calibrate with


@dataclass(frozen=True)
class Predictions:
    """The likeliest new facts of an entity, among the relations it is seen with and the entities seen there."""

    entity: Named
    asked: int  # relations and sides that were asked
    questions: int  # those that could be
    facts: list[Prediction]


@dataclass(frozen=True)
class Replies:
    """The answers to a query with one slot open."""

    query: str
    open: Slot
    answers: list[Prediction]


@dataclass(frozen=True)
class Lambda:
    """The faithfulness, and the values it may take with the trained W; None is infinity."""

    now: float | None
    trained: float | None
    largest_eigenvalue: float
    lowest: float


@dataclass(frozen=True)
class Place:
    """Where one entity stands in two maps; `token` is None in a model without tokens."""

    id: str
    name: str
    true: bool
    here: bool
    composed: tuple[float, float]
    token: tuple[float, float] | None


@dataclass(frozen=True)
class Surroundings:
    """The neighbourhood of an entity in the guise that one fact gives it, and maps of who could stand in its place."""

    fact: Fact
    slot: Slot
    rank: float
    composed: list[Neighbour]
    token: list[Neighbour]
    faithfulness: Lambda | None
    places: list[Place]
    others: int  # entities that could stand there; `places` has the nearest of them


@dataclass(frozen=True)
class Point:
    id: str
    name: str
    x: float
    y: float
    role: int  # in the list of roles


@dataclass(frozen=True)
class Map:
    """The most connected entities by the principal axes of all entity vectors."""

    roles: list[str]  # the commonest ways of being mentioned; the last is "other"
    share: float  # of the variance that the two axes show
    points: list[Point]


@dataclass(frozen=True)
class OneQuestion(Guise):
    """A guise that ranks all its entities by the scores of the one question they answer."""

    @cached_property
    def scores(self) -> Tensor:
        """(1, n_entities)."""
        return self.snapshot.score_slot(self.slot, self.triple)

    def ranks(self, others: Tensor) -> list[float]:
        candidates = self.graph.fillers(self.slot) if self.typed else None
        return rank(Scores(self.scores), self.triplets(others), self.slot, self.known, candidates).values().tolist()


@dataclass(frozen=True)
class Scores:
    """Scores of one question, (1, n), to rank many of its answers by."""

    row: Tensor

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        return self.row.repeat(len(queries), 1)


class Indexed(Graph):
    """A graph that keeps its indexes, as a server is asked again and again."""

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    def answers(self, slot: Slot, splits: Sequence[str] = SPLITS, queries: Triples | None = None) -> Answers:
        key = "answers", slot, tuple(splits)
        if key not in self._kept:
            self._kept[key] = super().answers(slot, splits)
        return self._kept[key]

    def fillers(self, slot: Slot, splits: Sequence[str] = SPLITS) -> Groups:
        key = "fillers", slot, tuple(splits)
        if key not in self._kept:
            self._kept[key] = super().fillers(slot, splits)
        return self._kept[key]


def plain(text: str) -> str:
    """Text as people type it: no accents, no capitals."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in parts if not unicodedata.combining(letter)).split())


class Names:
    """A vocabulary to search in: names that start with the text, then words that do, then the like-sounding."""

    def __init__(self, vocabulary: Vocabulary, counts: Tensor) -> None:
        self.vocabulary, self.counts = vocabulary, counts.tolist()
        self.plain = [plain(vocabulary.name(index)) for index in range(len(vocabulary))]

    def named(self, index: int) -> Named:
        return Named(self.vocabulary.ids[index], self.vocabulary.name(index))

    def index(self, name: str) -> int:
        try:
            return self.vocabulary.index(name)
        except HarmoniumError as error:
            raise Unknown(str(error).partition("; did you mean")[0], name, self.search(name, 5)) from None

    def search(self, text: str, limit: int) -> list[Found]:
        wanted = plain(text)
        matches = []
        for index in [index for index, name in enumerate(self.plain) if wanted in name]:
            name, at = self.plain[index], self.plain[index].find(wanted)
            starts_word = at == 0 or f" {wanted}" in name
            order = 0 if name == wanted else 1 if at == 0 else 2 if starts_word else 3
            matches.append((order, -self.counts[index], len(name), index))
        best = [match[-1] for match in sorted(matches)[:limit]]
        if len(best) < limit:
            from rapidfuzz import fuzz, process

            like = process.extract(wanted, self.plain, scorer=fuzz.WRatio, limit=limit, score_cutoff=60)
            seen = set(best)
            best += [index for *_, index in like if index not in seen]
        return [Found(*vars(self.named(index)).values(), self.counts[index]) for index in best[:limit]]


@dataclass(frozen=True)
class Explorer:
    """One run, opened for questions. Everything that takes a while is made once, on first use or by `prepare`."""

    run: Run

    def prepare(self, watch: Callable[[int], None] | None = None) -> None:
        if len(self.graph.valid):
            calibration_of(self.run, watch)
        for slot in Slot:
            self.graph.answers(slot)
        self.facts_of, self.calibration, self.map_of_all, self.info  # noqa: B018

    # What is kept ----------------------------------------------------------------------------------------------------

    @cached_property
    def graph(self) -> Indexed:
        return Indexed(**{part.name: getattr(self.run.graph, part.name) for part in fields(Graph)})

    @cached_property
    def entities(self) -> Names:
        facts = self.graph.facts()
        return Names(self.graph.entities, torch.cat([facts.head, facts.tail]).bincount(minlength=self.graph.n_entities))

    @cached_property
    def relations(self) -> Names:
        return Names(self.graph.relations, self.graph.facts().relation.bincount(minlength=self.graph.n_relations))

    @cached_property
    def facts_of(self) -> Groups:
        """entity -> positions in `graph.facts()`."""
        facts = self.graph.facts()
        return Groups.build(torch.cat([facts.head, facts.tail]), torch.arange(len(facts)).repeat(2))

    @cached_property
    @torch.no_grad()
    def model(self) -> GradientGraph:
        return _with_snapshot(copy(self.run.model), self.run.model.snapshot())

    @cached_property
    def calibration(self) -> Calibration | None:
        """What turns scores into probabilities; None where validation facts are too few."""
        return calibration_of(self.run) if len(self.graph.valid) else None

    @cached_property
    @torch.no_grad()
    def largest_eigenvalue(self) -> float:
        """Of W, or 0 outside the span of a low rank."""
        return max(0.0, 2 * self.model.harmony.still().double().spectrum()[0].item())

    @cached_property
    def at(self) -> Any:
        """lambda -> the same model with another lambda; the last two are kept, each may hold all entity vectors again."""
        return lru_cache(maxsize=2)(self._at)

    @torch.no_grad()
    def _at(self, faithfulness: float) -> GradientGraph:
        form = copy(self.model.harmony)
        form.faithfulness = faithfulness
        other = copy(self.model)
        other._modules = {**self.model._modules, "form": form}
        folded = form.fold()
        bare = replace(folded, constant=torch.zeros_like(folded.constant))
        return _with_snapshot(other, replace(self.model.snapshot(), form=bare))

    @cached_property
    def info(self) -> dict[str, Any]:
        """The graph and the run, without where it lies on this machine."""
        found = commands.info(replace(self.run, graph=self.graph))
        del found["run"]["path"]
        name = self.run.path.resolve().name if self.run.path else self.graph.name
        tokens = isinstance(self.model.form, Harmony)
        return found | {
            "name": name,
            "lambda": self.allowed() if tokens else None,
            "probabilities": self.calibration is not None,
        }

    @cached_property
    def explainer(self) -> Any:
        from harmonium.analysis.explain import Explainer

        return Explainer(self.model, self.graph)

    # Questions -------------------------------------------------------------------------------------------------------

    def search(self, text: str, kind: str, limit: int) -> list[Found]:
        return (self.relations if kind == "relation" else self.entities).search(text, limit)

    def facts(self, name: str, offset: int, limit: int) -> Facts:
        """The facts that mention an entity, those where it is the head first, by relation."""
        entity = self.entities.index(name)
        rows = self.facts_of.lookup(torch.tensor([entity]))[1]
        facts = self.graph.facts()[rows]
        order = ((facts.head != entity) * self.graph.n_relations + facts.relation).argsort(stable=True)[offset:][:limit]
        ends = torch.tensor([len(getattr(self.graph, split)) for split in SPLITS]).cumsum(0)
        splits = [SPLITS[i] for i in torch.bucketize(rows[order], ends, right=True).tolist()]
        chosen = facts[order].rows().tolist()
        shown = [Fact(*self._names(row), split) for row, split in zip(chosen, splits, strict=True)]
        return Facts(self.entities.named(entity), len(rows), shown)

    @torch.no_grad()
    def predictions(self, name: str, limit: int) -> Predictions:
        """The likeliest new facts of an entity: one question for each relation and side it is seen with."""
        entity = self.entities.index(name)
        questions, facts = self._questions(entity), []
        asked = questions[:QUESTIONS]
        for slot in (Slot.HEAD, Slot.TAIL):
            queries = Triples.from_rows(
                [[entity, relation, entity] for open_slot, relation in asked if open_slot is slot]
            )
            facts += self._best(slot, queries, PER_QUESTION, new_only=True, typed=True)
        facts = [fact for fact in facts if fact.head.id != fact.tail.id]
        facts.sort(key=lambda fact: (-(fact.probability or 0), -fact.score))
        return Predictions(self.entities.named(entity), len(asked), len(questions), facts[:limit])

    def _questions(self, entity: int) -> list[tuple[Slot, int]]:
        """Open slots and relations that an entity is seen with; where the best new candidate stands out most, first."""
        known, found, work = self.graph.facts()[self.facts_of.lookup(torch.tensor([entity]))[1]], [], 0
        snapshot = self.model.snapshot()
        for given, slot in ((Slot.HEAD, Slot.TAIL), (Slot.TAIL, Slot.HEAD)):
            for relation in known.relation[known[given] == entity].unique().tolist():
                query = Triples.from_rows([[entity, relation, entity]])
                typed = self.graph.fillers(slot).lookup(query.relation)[1]
                new = ~torch.isin(typed, torch.cat([self.graph.answers(slot).of(query)[1], query[slot]]))
                if new.any() and work + len(typed) <= MOST_CANDIDATES:
                    work += len(typed)
                    scores = snapshot.form(snapshot.slot_map(slot, query).apply(snapshot.entities[typed]))
                    found.append((scores[new].max() - scores.logsumexp(0), slot, relation))
        return [(slot, relation) for _, slot, relation in sorted(found, key=lambda entry: -entry[0])]

    @torch.no_grad()
    def answers(self, head: str | None, relation: str | None, tail: str | None, limit: int, new_only: bool) -> Replies:
        """The best answers to a query with one slot open."""
        given = dict(zip(Slot, (head, relation, tail), strict=True))
        ids = {slot: name and self._vocabulary(slot).ids[self._index(slot, name)] for slot, name in given.items()}
        query = prediction.ask(self.graph, *ids.values())
        return Replies(query.text, query.slot, self._best(query.slot, query.triple, limit, new_only))

    def _best(self, slot: Slot, queries: Triples, limit: int, new_only: bool, typed: bool = False) -> list[Prediction]:
        """The best answers to each query, with the probability that each is true."""
        names = self.relations if slot is Slot.RELATION else self.entities
        found = prediction.answer_all(
            self.model.snapshot(), self.graph, slot, queries, limit, new_only, self.calibration, typed=typed
        )
        facts = []
        for row, answers in zip(queries.rows().tolist(), found, strict=True):
            for one in answers:
                row[list(Slot).index(slot)] = names.index(one.id)
                facts.append(Prediction(*self._names(row), one.known, slot, one.score, one.probability))
        return facts

    def _split(self, triple: Triples) -> str | None:
        return next((split for split in SPLITS if self.graph.answers(Slot.TAIL, (split,)).contain(triple)), None)

    @torch.no_grad()
    def surroundings(
        self, head: str, relation: str, tail: str, slot: Slot, count: int, typed: bool, faithfulness: float | None
    ) -> Surroundings:
        """Neighbours of an entity in one fact by composed vector and by token, at any lambda that W allows."""
        row = [self._index(s, name) for s, name in zip(Slot, (head, relation, tail), strict=True)]
        triple, model = Triples.from_rows([row]), self.model
        allowed = None
        if isinstance(model.form, Harmony):
            allowed = self.allowed(faithfulness)
            model = model if faithfulness in (None, model.form.faithfulness) else self.at(faithfulness)
        elif faithfulness is not None:
            model.harmony  # noqa: B018 - says that a plain model has no tokens
        guise = OneQuestion(model, self.graph, triple, slot, typed)
        spaces = [guise.composed]
        if isinstance(model.form, Harmony):
            spaces.append(guise.composed @ model.form.token_map())
        near = [guise.nearest(vectors, vectors[guise.here], count) for vectors in spaces]
        return Surroundings(
            Fact(*self._names(row), self._split(triple)), slot, guise.ranks(triple[slot])[0],
            near[0], near[1] if len(near) > 1 else [], allowed, self._places(guise, spaces), len(guise.others) - 1,
        )  # fmt: skip

    def allowed(self, faithfulness: float | None = None) -> Lambda:
        """The range of lambda; one outside it is an error that says so."""
        trained, top = self.model.harmony.faithfulness, self.largest_eigenvalue
        lowest = float(f"{max(ROOM * top, 1e-3):.4g}")
        now = trained if faithfulness is None else faithfulness
        if not now >= lowest:
            raise HarmoniumError(
                f"lambda must be at least {lowest:.4g}, not {now:.4g}: at the largest eigenvalue of W, {top:.4g}, "
                "and below it harmony has no maximum"
            )
        return Lambda(_finite(now), _finite(trained), top, lowest)

    def explain(self, head: str, relation: str, tail: str, count: int) -> dict[str, Any]:
        """Why a fact scores as it does."""
        row = [self._index(slot, name) for slot, name in zip(Slot, (head, relation, tail), strict=True)]
        return self.explainer.explain(Triples.from_rows([row]), count).to_json()

    @cached_property
    @torch.no_grad()
    def map_of_all(self) -> Map:
        """Every entity, the most connected first, coloured by how it is most often mentioned."""
        vectors = self.model.snapshot().entities.float()
        plane, share = _plane(vectors)
        facts, n = self.graph.facts(), self.graph.n_relations
        entity, role = torch.cat([facts.head, facts.tail]), torch.cat([facts.relation, facts.relation + n])
        pairs, counts = (entity * 2 * n + role).unique(return_counts=True)
        pairs = pairs[counts.argsort(stable=True)]
        pairs = pairs[(pairs // (2 * n)).argsort(stable=True)]  # by entity, its commonest role last
        who, main = pairs // (2 * n), torch.full((self.graph.n_entities,), 2 * n)
        last = who.diff(append=who.new_tensor([-1])) != 0
        main[who[last]] = pairs[last] % (2 * n)
        common = main[main < 2 * n].bincount(minlength=2 * n).topk(min(7, 2 * n))
        kept = common.indices[common.values > 0].tolist()
        number = {role: place for place, role in enumerate(kept)}
        titles = [f"{self.graph.relations.name(role % n)} ({'tail' if role >= n else 'head'})" for role in kept]
        connected = torch.tensor(self.entities.counts).argsort(descending=True, stable=True).tolist()
        points = [
            Point(*vars(self.entities.named(e)).values(), *_short(plane[e]), number.get(int(main[e]), len(kept)))
            for e in connected
        ]
        return Map([*titles, "other"], share, points)

    def map(self, limit: int, name: str | None) -> Map:
        """The most connected entities, and one more if it is asked for."""
        found = self.map_of_all
        points = found.points[:limit]
        if name is not None:
            wanted = self.graph.entities.ids[self.entities.index(name)]
            points = [p for p in points if p.id != wanted] + [p for p in found.points if p.id == wanted]
        return replace(found, points=points)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _vocabulary(self, slot: Slot) -> Vocabulary:
        return prediction.vocabulary(self.graph, slot)

    def _index(self, slot: Slot, name: str) -> int:
        return (self.relations if slot is Slot.RELATION else self.entities).index(name)

    def _names(self, row: Sequence[int]) -> tuple[Named, Named, Named]:
        head, relation, tail = row
        return self.entities.named(head), self.relations.named(relation), self.entities.named(tail)

    def _places(self, guise: Guise, spaces: list[Tensor]) -> list[Place]:
        """The nearest entities of a guise on two planes, that of tokens turned to lie as the other does."""
        near = (spaces[-1] - spaces[-1][guise.here]).norm(dim=-1).argsort()
        near = near[:MOST_POINTS].sort().values
        planes = [_plane(space[near])[0] for space in spaces]
        if len(planes) > 1:
            left, _, right = torch.linalg.svd(planes[1].T @ planes[0])
            planes[1] = planes[1] @ left @ right
        points = zip(*([_short(point) for point in plane] for plane in planes), strict=True)
        columns = zip(
            guise.others[near].tolist(), guise.truth[near].tolist(), guise.here[near].tolist(), points, strict=True
        )
        return [
            Place(*vars(self.entities.named(e)).values(), true, here, at[0], at[1] if len(at) > 1 else None)
            for e, true, here, at in columns
        ]


def _with_snapshot(model: GradientGraph, snapshot: Any) -> GradientGraph:
    """The model, which gives this snapshot from now on."""
    model.snapshot = lambda: snapshot
    return model


def _plane(vectors: Tensor) -> tuple[Tensor, float]:
    """(n, 2): the coordinates along the two principal axes, and their share of the variance; by subspace iteration."""
    centred = (vectors - vectors.mean(0)).double()
    axes = torch.randn(centred.shape[1], 8, dtype=centred.dtype, generator=torch.Generator().manual_seed(0))
    for _ in range(12):
        axes = torch.linalg.qr(centred.T @ (centred @ axes))[0]
    seen = centred @ axes
    values, turn = torch.linalg.eigh(seen.T @ seen)
    plane = torch.nn.functional.pad((seen @ turn).flip(-1)[:, :2], (0, 2))[:, :2]
    return plane, (values[-2:].sum() / centred.square().sum().clamp(min=1e-300)).item()


def _short(point: Tensor) -> tuple[float, float]:
    x, y = (float(f"{value:.4g}") for value in point.tolist())
    return x, y


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
