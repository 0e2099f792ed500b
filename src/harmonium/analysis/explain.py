"""Why a fact scores as it does: harmony in its parts, the directions of W that pushed it, and the facts behind it.

Along the eigenvectors u_k of W harmony falls apart: with A = sum_k a_k u_k u_k' and p = u_k.x the score is the sum of
a_k p^2 + (c.u_k) p, and of c.x outside the span of W. What removing a training fact would do: influence.py.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.influence import Influence
from harmonium.evaluation import rank
from harmonium.graph import SPLITS, Answers, Graph, Slot, Triples
from harmonium.harmony import Harmony, QuadraticForm
from harmonium.model import GradientGraph, Snapshot

SURVEYED = 20_000  # training facts, a seeded sample, that a direction is named by
WEIGHED = 200  # training facts of the head or the tail, the nearest, whose removal is weighed

Names = tuple[str, str, str]


@dataclass(frozen=True)
class Parts:
    """Harmony = core harmony + faithfulness."""

    core: float
    faithfulness: float

    @property
    def total(self) -> float:
        return self.core + self.faithfulness


@dataclass(frozen=True)
class Shift:
    """From the composed vector x to the token mu."""

    length: float  # |mu - x|
    shared: float  # the length of what b shifts every fact by
    own: float  # the length of what W shifts this fact by
    gain: float  # H(mu, x) - H(x, x)


@dataclass(frozen=True)
class Extreme:
    """A fact or an entity that lies far along a direction."""

    name: str | Names
    reach: float  # u.x


@dataclass(frozen=True)
class Direction:
    """An eigenvector u of W, turned so that the fact reaches along it."""

    strength: float  # a, its eigenvalue in A
    reach: float  # u.x, not negative
    quadratic: float  # a (u.x)^2
    linear: float  # (c.u) (u.x)
    facts: list[Extreme]  # training facts that reach furthest
    heads: list[Extreme]  # entities that would reach furthest in the place of the head
    tails: list[Extreme]

    @property
    def push(self) -> float:
        return self.quadratic + self.linear


@dataclass(frozen=True)
class Reason:
    """A training fact, how near it is, and what the score would change by if it were removed (an estimate)."""

    fact: Names
    distance: float  # of tokens; of composed vectors for a plain model
    effect: float


@dataclass(frozen=True)
class Explanation:
    """Why a fact scores as it does; `score` is harmony above that of the empty triplet, x = 0."""

    triple: Names
    known: str | None  # the split in which it is a fact
    score: float
    rank: dict[str, float]  # as a head and as a tail: filtered, all entities
    harmony: dict[str, Parts]  # at the composed vector, at the token, at the token of the empty triplet
    shift: Shift | None
    directions: list[Direction]  # by falling |push|
    rest: float  # what all that is not listed adds to the score
    nearest: list[Reason]  # training facts, by rising distance
    reasons: list[Reason]  # training facts of the head or the tail, by falling |effect|
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["harmony"] = {place: asdict(parts) | {"total": parts.total} for place, parts in self.harmony.items()}
        found["directions"] = [asdict(direction) | {"push": direction.push} for direction in self.directions]
        return found


@dataclass(frozen=True)
class Explainer:
    """What the explanations of one model have in common is made once, when first needed."""

    model: GradientGraph
    graph: Graph
    seed: int = 0

    @cached_property
    def influence(self) -> Influence:
        return Influence(self.model, self.graph, self.seed)

    @property
    def snapshot(self) -> Snapshot:
        return self.influence.snapshot

    @cached_property
    def form(self) -> QuadraticForm:
        """The score without its constant, in float64."""
        return self.snapshot.form.double()

    @cached_property
    def harmony(self) -> Harmony | None:
        return deepcopy(self.model.form).double() if isinstance(self.model.form, Harmony) else None

    @cached_property
    def eigen(self) -> tuple[Tensor, Tensor]:
        """a (k,) and u (k, dim) of A = WS/2; u are the eigenvectors of W too."""
        return self.form.principal

    @cached_property
    def known(self) -> dict[Slot, Answers]:
        return {slot: self.graph.answers(slot) for slot in (Slot.HEAD, Slot.TAIL)}

    @cached_property
    def survey(self) -> tuple[Triples, Tensor]:
        """Training facts, and how far they reach (n, k) along every direction."""
        facts = self.graph.train[self.influence.sample(len(self.graph.train), SURVEYED)]
        directions = self.eigen[1].T.to(self.snapshot.entities.dtype)
        return facts, torch.cat([self.compose(some) @ directions for some in facts.chunks(4096)])

    def compose(self, triples: Triples, everyone: Slot | None = None) -> Tensor:
        """(n, dim): as tails are asked for; with `everyone`, one triple with each entity in that slot."""
        vectors = {s: self.snapshot.entities[triples[s]] for s in (Slot.HEAD, Slot.TAIL)}
        if everyone is not None:
            vectors[everyone] = self.snapshot.entities
        relation = self.snapshot.relations[triples.relation]
        return self.model.composition.compose(vectors[Slot.HEAD], relation, vectors[Slot.TAIL])

    @torch.no_grad()
    def explain(self, triple: Triples, count: int = 5, same_relation: bool = True) -> Explanation:
        """One triple (one row), with `count` of everything listed; nearest facts of its relation, or of any."""
        composed = self.compose(triple)[0].double()
        directions, rest = self.directions(triple, composed, count)
        ranks = {slot.value: rank(self.snapshot, triple, slot, known) for slot, known in self.known.items()}
        return Explanation(
            self.graph.spell(triple)[0],
            self.split_of(triple),
            self.form(composed).item(),
            {side: found.values().item() for side, found in ranks.items()},
            self.parts(composed),
            self.shift(composed),
            directions,
            rest,
            *self.facts(triple, count, same_relation),
            self.notes(),
        )

    def split_of(self, triple: Triples) -> str | None:
        row = triple.rows()
        return next((split for split in SPLITS if (getattr(self.graph, split).rows() == row).all(1).any()), None)

    def notes(self) -> list[str]:
        found = []
        if self.harmony is None:
            found.append(
                "a plain model: no harmony and no W, so no parts, shift or directions; distances of composed vectors"
            )
        elif self.harmony.tau == 0:
            found.append("lambda = infinity: the token is the composed vector")
        if self.model.reciprocal:
            found.append("reciprocal relations: explained as an answer for the tail")
        return found

    # Harmony ---------------------------------------------------------------------------------------------------------

    def parts(self, composed: Tensor) -> dict[str, Parts]:
        """At x, at mu(x) and at mu(0)."""
        if self.harmony is None:
            return {}
        empty = torch.zeros_like(composed)
        places = {
            "composed": (composed, composed),
            "token": (self.harmony.optimise(composed), composed),
            "empty": (self.harmony.optimise(empty), empty),
        }
        found = {}
        for name, (hidden, given) in places.items():
            core = self.harmony.coherence(hidden)
            found[name] = Parts(core.item(), (self.harmony(hidden, given) - core).item())
        return found

    def shift(self, composed: Tensor) -> Shift | None:
        """mu(x) - x = mu(0) + (S - I) x."""
        if self.harmony is None:
            return None
        token, shared = self.harmony.optimise(composed), self.harmony.optimise(torch.zeros_like(composed))
        lengths = [part.norm().item() for part in (token - composed, shared, token - composed - shared)]
        return Shift(*lengths, (self.harmony(token, composed) - self.harmony(composed, composed)).item())

    def directions(self, triple: Triples, composed: Tensor, count: int) -> tuple[list[Direction], float]:
        """The directions that pushed most, and what is left of the score."""
        if self.harmony is None:
            return [], self.form(composed).item()
        strength, vectors = self.eigen
        reach = vectors @ composed  # (k,)
        quadratic, linear = strength * reach.square(), (vectors @ self.form.vector) * reach
        push = quadratic + linear
        listed = push.abs().topk(min(count, len(push))).indices
        named, along = self.survey
        places = [self.compose(triple, everyone=slot) for slot in (Slot.HEAD, Slot.TAIL)]
        found = []
        for k in listed.tolist():
            sign = 1.0 if reach[k] >= 0 else -1.0
            numbers = (strength[k], sign * reach[k], quadratic[k], linear[k])
            far = [_furthest(sign * along[:, k], lambda index: self.graph.spell(named[index]), count)]
            for place in places:
                reached = place @ (sign * vectors[k]).to(place.dtype)
                far.append(_furthest(reached, lambda index: map(self.graph.entities.name, index.tolist()), count))
            found.append(Direction(*(number.item() for number in numbers), *far))
        return found, (self.form(composed) - push[listed].sum()).item()

    # Facts -----------------------------------------------------------------------------------------------------------

    def facts(self, triple: Triples, count: int, same_relation: bool) -> tuple[list[Reason], list[Reason]]:
        """The nearest training facts, of the same relation or of any, and those whose removal would change most."""
        facts, ends = self.graph.train, torch.cat([triple.head, triple.tail])
        facts = facts[(facts.rows() != triple.rows()).any(1)]
        around = facts[facts.relation == triple.relation] if same_relation else facts
        touching = facts[torch.isin(facts.head, ends) | torch.isin(facts.tail, ends)]
        near, weighed = self.nearest(triple, around, count), self.nearest(triple, touching, WEIGHED)
        effects = self.influence.of_removing(Triples.cat([near, weighed]), triple)
        best = effects[len(near) :].abs().topk(min(count, len(weighed))).indices
        strongest = self.reasons(triple, weighed[best], effects[len(near) :][best])
        return self.reasons(triple, near, effects[: len(near)]), strongest

    def nearest(self, triple: Triples, facts: Triples, count: int) -> Triples:
        """The facts whose tokens are nearest to that of the triple."""
        far = [self.distances(triple, some) for some in facts.chunks(4096)]
        return facts[torch.cat(far).topk(min(count, len(facts)), largest=False).indices] if far else facts

    def distances(self, triple: Triples, facts: Triples) -> Tensor:
        """(n,): |S (x' - x)|; S stretches each u_k by (1 - tau w_k)^-1 = 1 + 2 tau a_k and leaves the rest."""
        between = self.compose(facts) - self.compose(triple)
        square = between.square().sum(-1)
        if self.harmony is not None:
            stretch = 1 + 2 * self.harmony.tau * self.eigen[0]
            along = between @ self.eigen[1].T.to(between.dtype)
            square = square + along.square() @ (stretch.square() - 1).to(between.dtype)
        return square.clamp(min=0).sqrt()

    def reasons(self, triple: Triples, facts: Triples, effects: Tensor) -> list[Reason]:
        if not len(facts):
            return []
        columns = self.graph.spell(facts), self.distances(triple, facts).tolist(), effects.tolist()
        return [Reason(*row) for row in zip(*columns, strict=True)]


def _furthest(reach: Tensor, names: Any, count: int) -> list[Extreme]:
    best = reach.topk(min(count, len(reach)))
    return [Extreme(*pair) for pair in zip(names(best.indices), best.values.tolist(), strict=True)]
