"""Influence: what the score of a triple would change by if a training fact were removed, without training again.

Removing a fact takes its loss out of the sum that training minimised. The vectors v of the triple's head, relation and
tail then move by H^-1 dloss/dv, H the (Gauss-Newton) curvature of the loss of all training facts that v is part of, and
the score by ds/dv times that. Everything else stands still, so this is a local, first-order estimate. Beside really
removing facts and training again (tests/test_influence.py) it finds the facts that count most and makes their effect two
to five times too small; among facts that hardly count its order is not much better than chance. A fact that the model
is sure of has almost no gradient left, so its effect is understated most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.graph import Graph, Slot, Triples
from harmonium.model import GradientGraph, Snapshot

RIVALS = 64  # entities, a seeded sample, that compete with the truth in the loss of a fact
WITNESSES = 256  # facts, a seeded sample, whose loss holds a vector in its place
DAMPING = 0.1  # added to the curvature, as a share of its mean
NUMBERS = 1 << 22  # of a gradient, held at once


@dataclass(frozen=True)
class Vector:
    """One row of the model: an entity's vector or a relation's."""

    is_relation: bool
    id: int

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (Slot.RELATION,) if self.is_relation else (Slot.HEAD, Slot.TAIL)

    def within(self, facts: Triples) -> Tensor:
        """(n,) bool: which facts it is part of."""
        return torch.stack([facts[slot] == self.id for slot in self.slots]).any(0)


@dataclass(frozen=True)
class Influence:
    """Of the training facts of a graph on the scores of a model."""

    model: GradientGraph
    graph: Graph
    seed: int = 0

    @cached_property
    def snapshot(self) -> Snapshot:
        with torch.no_grad():
            return self.model.snapshot()

    @cached_property
    def rivals(self) -> Tensor:
        """(m,)."""
        return self.sample(self.graph.n_entities, RIVALS)

    def sample(self, count: int, limit: int) -> Tensor:
        return torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))[:limit]

    def of_removing(self, facts: Triples, triple: Triples) -> Tensor:
        """(n,): the change of the triple's score (one row, asked for its tail) as each fact alone is removed."""
        total = self.snapshot.entities.new_zeros(len(facts))
        for vector in {Vector(slot is Slot.RELATION, int(triple[slot])) for slot in Slot}:
            touched = vector.within(facts)
            if touched.any():
                pull = self.pull(triple, vector)
                total[touched] += torch.cat([gradients @ pull for gradients, _ in self.losses(facts[touched], vector)])
        return total

    def pull(self, triple: Triples, vector: Vector) -> Tensor:
        """(dim,): H^-1 ds/dv. Vectors of unit length move along the sphere, whose own curvature then counts too."""
        slope = self.slopes({slot: triple[slot][:, None] for slot in Slot}, vector)[1][0, 0].double()
        witnesses = self.graph.train[vector.within(self.graph.train)]
        chosen = witnesses[self.sample(len(witnesses), WITNESSES)]
        total, curvature = torch.zeros_like(slope), slope.new_zeros(len(slope), len(slope))
        for gradients, roots in self.losses(chosen, vector):
            total += gradients.sum(0)
            curvature += roots.T @ roots
        share, identity = len(witnesses) / max(len(chosen), 1), torch.eye(len(slope), dtype=slope.dtype)
        damping = DAMPING * curvature.trace() / len(slope) + 1e-12
        if self.model.normalise:
            value = (self.snapshot.relations if vector.is_relation else self.snapshot.entities)[vector.id].double()
            tangent = identity - torch.outer(value, value)
            slope, curvature = tangent @ slope, tangent @ curvature @ tangent
            damping = damping + (-value @ total).clamp(min=0)
        return torch.linalg.solve(share * (curvature + damping * identity), slope).to(self.snapshot.entities.dtype)

    def losses(self, facts: Triples, vector: Vector) -> Iterator[tuple[Tensor, Tensor]]:
        """By pieces: (b, dim) gradients of the facts' log-softmax losses in a vector v, and R (any, dim), H = R'R."""
        size = max(1, NUMBERS // ((1 + len(self.rivals)) * self.snapshot.entities.shape[1]))
        for some in facts.chunks(size):
            gradients, roots = [], []
            for slot, asked in self.questions(some):
                truth = asked[slot][:, None]
                ids = torch.cat([truth, self.rivals.expand(len(some), -1)], dim=1)  # (b, 1 + m)
                scores, slopes = self.slopes({s: ids if s is slot else asked[s][:, None] for s in Slot}, vector)
                again = ids == truth
                again[:, 0] = False
                chance = scores.masked_fill(again, -torch.inf).softmax(-1)[..., None]
                mean = (chance * slopes).sum(1)  # (b, dim)
                gradients.append(mean - slopes[:, 0])
                roots.append((chance.sqrt() * (slopes - mean[:, None])).flatten(0, 1))
            yield sum(gradients), torch.cat(roots)

    def questions(self, facts: Triples) -> list[tuple[Slot, Triples]]:
        """For heads and for tails; a reciprocal model asks for heads by the reversed fact."""
        if self.model.reciprocal:
            turned = Triples(facts.tail, facts.relation + self.model.n_relations, facts.head)
            return [(Slot.TAIL, turned), (Slot.TAIL, facts)]
        return [(Slot.HEAD, facts), (Slot.TAIL, facts)]

    def slopes(self, ids: Mapping[Slot, Tensor], vector: Vector) -> tuple[Tensor, Tensor]:
        """(b, m) scores of triples, ids (b, m) or (b, 1) in each slot, and (b, m, dim) their gradients in a vector."""
        shape = torch.broadcast_shapes(*(some.shape for some in ids.values()))
        rows = {s: (self.snapshot.relations if s is Slot.RELATION else self.snapshot.entities)[ids[s]] for s in Slot}
        with torch.enable_grad():
            for slot in vector.slots:
                rows[slot] = rows[slot].expand(*shape, -1).clone().requires_grad_()
            scores = self.snapshot.form(self.snapshot.composition.compose(*rows.values()))
            found = torch.autograd.grad(scores.sum(), [rows[slot] for slot in vector.slots])
        here = [(ids[slot] == vector.id)[..., None] for slot in vector.slots]
        return scores.detach(), sum(gradient * mask for gradient, mask in zip(found, here, strict=True))
