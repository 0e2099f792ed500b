"""How a score comes about inside a model: its harmony in parts, the directions of W that contribute most, nearest facts.

Along the eigenvectors u_k of W the score is a sum: with A = sum_k a_k u_k u_k' and p_k = u_k.x it is the sum of
a_k p_k^2 + (c.u_k) p_k, plus c.x outside the span of W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import EmbeddingScorer
from harmonium.runtime.displayed import Part, Table

FACTS_SAMPLED = 20_000  # training facts that may illustrate a direction
FACTS_PER_CHUNK = 4096

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
    """From the composed vector x to the token mu: mu(x) - x = mu(0) + (S - I) x."""

    length: float  # |mu - x|
    shared: float  # |mu(0)|: b shifts every fact by it
    specific: float  # |(S - I) x|: W shifts this fact by it
    gain: float  # H(mu, x) - H(x, x)


@dataclass(frozen=True)
class Example:
    """A fact or an entity that lies far along a direction."""

    name: str | Names
    projection: float  # u.x


@dataclass(frozen=True)
class Direction:
    """An eigenvector u of W, with the sign that makes the fact's projection positive."""

    eigenvalue: float  # a, in A
    projection: float  # u.x >= 0
    quadratic: float  # a (u.x)^2
    linear: float  # (c.u) (u.x)
    facts: list[Example]  # training facts furthest along u
    heads: list[Example]  # entities furthest along u as the head of this fact
    tails: list[Example]

    @property
    def contribution(self) -> float:
        """To the score."""
        return self.quadratic + self.linear


@dataclass(frozen=True)
class NearFact:
    """A training fact and its distance."""

    fact: Names
    distance: float  # of tokens; of composed vectors for a plain model


@dataclass(frozen=True)
class ScoreDetails:
    """The parts of one score."""

    harmony: dict[str, Parts]  # at the composed vector, at the token, at the token of the empty triple
    shift: Shift | None
    directions: list[Direction]  # by descending |contribution|
    rest: float  # the part of the score that the listed directions do not contribute
    nearest: list[NearFact]  # training facts, by rising distance

    def display(self) -> Iterator[Part]:
        """Parts of harmony, directions of W and the nearest facts."""
        if self.shift:
            yield self._harmony_table(self.shift)
            yield self._direction_table()
        rows = [[" · ".join(near.fact), near.distance] for near in self.nearest]
        yield Table("Nearest training facts", ["training fact", "distance"], rows)

    def _harmony_table(self, shift: Shift) -> Table:
        states = [self.harmony[state] for state in ("composed", "token", "empty")]
        rows = []
        for name in ("core", "faithfulness", "total"):
            values = [getattr(parts, name) for parts in states]
            rows.append([name, *(f"{value:,.3f}" for value in values), f"{values[1] - values[2]:+,.3f}"])
        columns = ["", "composed x", "token", "token of x = 0", "difference of tokens"]
        parts = f"{shift.shared:.3f} shared by all facts, {shift.specific:.3f} specific to this one"
        caption = f"from x to its token: length {shift.length:.3f} ({parts}), harmony {shift.gain:+,.3f}"
        return Table("Harmony", columns, rows, caption)

    def _direction_table(self) -> Table:
        rows = []
        for direction in self.directions:
            examples = [
                *(" · ".join(fact.name) for fact in direction.facts[:2]),
                "heads: " + ", ".join(str(entity.name) for entity in direction.heads[:3]),
                "tails: " + ", ".join(str(entity.name) for entity in direction.tails[:3]),
            ]
            parts = f"{direction.contribution:+.3f}", f"{direction.quadratic:+.2g}", f"{direction.linear:+.2g}"
            rows.append([*parts, "\n".join(examples)])
        names = ["contribution", "a (u.x)²", "(c.u) (u.x)", "training facts, heads and tails furthest along u"]
        caption = f"contribution: the sum of both terms; the rest of the score: {self.rest:+.3f}"
        return Table("Directions u of W with most effect on the score", names, rows, caption)

    def to_json(self) -> dict[str, Any]:
        totals = {state: asdict(parts) | {"total": parts.total} for state, parts in self.harmony.items()}
        directions = [asdict(each) | {"contribution": each.contribution} for each in self.directions]
        return asdict(self) | {"harmony": totals, "directions": directions}


@dataclass(frozen=True)
class ScoreAnatomy:
    """Takes scores of one model apart; what they have in common is computed once, when first needed."""

    model: GradientGraph
    graph: Graph
    scorer: EmbeddingScorer
    seed: int = 0

    @cached_property
    def form(self) -> QuadraticForm:
        """The score without its constant, in float64; the u of its principal (a, u) are the eigenvectors of W too."""
        return self.scorer.form.double()

    @cached_property
    def harmony(self) -> Harmony | None:
        return deepcopy(self.model.form).double() if isinstance(self.model.form, Harmony) else None

    @cached_property
    def examples(self) -> tuple[Triples, Tensor]:
        """A sample of training facts, and their projections (n, k) on every direction."""
        order = torch.randperm(len(self.graph.train), generator=torch.Generator().manual_seed(self.seed))
        facts = self.graph.train[order[:FACTS_SAMPLED]]
        directions = self.form.principal[1].T.to(self.scorer.entities.dtype)
        return facts, torch.cat([self.compose(chunk) @ directions for chunk in facts.chunks(FACTS_PER_CHUNK)])

    def compose(self, triples: Triples, vary: Slot | None = None) -> Tensor:
        """(n, dim): composed vectors of queries for the tail; with `vary`, one triple with each entity in that slot."""
        scorer = self.scorer
        vectors = {s: scorer.entities if s is vary else scorer.entities[triples[s]] for s in (Slot.HEAD, Slot.TAIL)}
        relation = scorer.relations[triples.relation]
        return self.model.composition.compose(vectors[Slot.HEAD], relation, vectors[Slot.TAIL])

    @torch.no_grad()
    def details(self, triple: Triples, count: int = 5, same_relation: bool = True) -> ScoreDetails:
        """Of one triple (one row): `count` directions and nearest facts, of the same relation or of any."""
        composed = self.compose(triple)[0].double()
        directions, rest = self._directions(triple, composed, count)
        parts, shift = self._harmony_parts(composed)
        return ScoreDetails(parts, shift, directions, rest, self._nearest(triple, count, same_relation))

    def _harmony_parts(self, composed: Tensor) -> tuple[dict[str, Parts], Shift | None]:
        """Harmony at x, at mu(x) and at mu(0), and the shift from x to mu(x)."""
        if self.harmony is None:
            return {}, None
        zero = torch.zeros_like(composed)
        token, shared = self.harmony.optimise(composed), self.harmony.optimise(zero)
        parts = {}
        for name, hidden, given in (
            ("composed", composed, composed),
            ("token", token, composed),
            ("empty", shared, zero),
        ):
            core = self.harmony.coherence(hidden)
            parts[name] = Parts(core.item(), (self.harmony(hidden, given) - core).item())
        shift = token - composed
        gain = self.harmony(token, composed) - self.harmony(composed, composed)
        length, shared_length, specific = (vector_norm(vector).item() for vector in (shift, shared, shift - shared))
        return parts, Shift(length, shared_length, specific, gain.item())

    def _directions(self, triple: Triples, composed: Tensor, count: int) -> tuple[list[Direction], float]:
        """The directions that contribute most, and the rest of the score."""
        score = self.form(composed)
        if self.harmony is None:
            return [], score.item()
        eigenvalues, vectors = self.form.principal
        projections = vectors @ composed  # (k,)
        quadratic, linear = eigenvalues * projections.square(), (vectors @ self.form.vector) * projections
        contributions = quadratic + linear
        listed = contributions.abs().topk(min(count, len(contributions))).indices
        facts, along = self.examples
        by_head, by_tail = self.compose(triple, vary=Slot.HEAD), self.compose(triple, vary=Slot.TAIL)

        def fact_name(row: int) -> Names:
            return self.graph.names_of(facts[row : row + 1])[0]

        directions = []
        for k in listed.tolist():
            sign = 1.0 if projections[k] >= 0 else -1.0
            direction = (sign * vectors[k]).to(by_head.dtype)
            terms = eigenvalues[k].item(), sign * projections[k].item(), quadratic[k].item(), linear[k].item()
            examples = _furthest(sign * along[:, k], fact_name, count)
            entity_name = self.graph.entities.name
            heads, tails = (_furthest(by_slot @ direction, entity_name, count) for by_slot in (by_head, by_tail))
            directions.append(Direction(*terms, examples, heads, tails))
        return directions, (score - contributions[listed].sum()).item()

    def _nearest(self, triple: Triples, count: int, same_relation: bool) -> list[NearFact]:
        """The training facts whose tokens are nearest to that of the triple."""
        facts = self.graph.train
        others = (facts.to_rows() != triple.to_rows()).any(1)
        facts = facts[others & (facts.relation == triple.relation)] if same_relation else facts[others]
        if not len(facts):
            return []
        distance = torch.cat([self._distances(triple, chunk) for chunk in facts.chunks(FACTS_PER_CHUNK)])
        nearest = distance.topk(min(count, len(facts)), largest=False)
        names = self.graph.names_of(facts[nearest.indices])
        return [NearFact(fact, value) for fact, value in zip(names, nearest.values.tolist(), strict=True)]

    def _distances(self, triple: Triples, facts: Triples) -> Tensor:
        """(n,): |S (x' - x)|; S scales each u_k by (1 - tau w_k)^-1 = 1 + 2 tau a_k and keeps what is orthogonal to all."""
        difference = self.compose(facts) - self.compose(triple)
        square = difference.square().sum(-1)
        if self.harmony is not None:
            eigenvalues, vectors = self.form.principal
            scale = 1 + 2 * self.harmony.tau * eigenvalues
            along = difference @ vectors.T.to(difference.dtype)
            square = square + along.square() @ (scale.square() - 1).to(difference.dtype)
        return square.clamp(min=0).sqrt()


def _furthest(projections: Tensor, name: Callable[[int], str | Names], count: int) -> list[Example]:
    """The `count` largest projections (n,), by name."""
    furthest = projections.topk(min(count, len(projections)))
    return [
        Example(name(i), value) for i, value in zip(furthest.indices.tolist(), furthest.values.tolist(), strict=True)
    ]
