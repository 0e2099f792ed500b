"""Influence: the change of a triple's score if a training fact were removed, estimated without training again.

Removing a fact takes its loss out of the sum that training minimised. The vectors v of the triple's head, relation and
tail then move by H^-1 dloss/dv, H the (Gauss-Newton) curvature of the loss of all training facts that v is part of, and
the score by ds/dv times that. Everything else stays fixed, so this is a local, first-order estimate. Compared with really
removing facts and training again (tests/analysis/test_influence.py) it finds the facts that matter most and makes their
effect two to five times too small; among facts that hardly matter its order is not much better than chance. A fact that
the model is certain of has almost no gradient left, so its effect is underestimated most.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import EmbeddingScorer

NEGATIVES = 64  # entities, a seeded sample, that compete with the truth in the loss of a fact
CURVATURE_FACTS = 256  # a seeded sample of facts that the curvature of a vector is estimated from
DAMPING = 0.1  # added to the curvature, as a share of its mean
MAX_NUMBERS = 1 << 22  # of a gradient, held at once


@dataclass(frozen=True)
class Vector:
    """One row of the model: the vector of an entity or of a relation."""

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
    def scorer(self) -> EmbeddingScorer:
        with torch.no_grad():
            return self.model.prepare()

    @cached_property
    def negatives(self) -> Tensor:  # (m,)
        return self.sample(self.graph.n_entities, NEGATIVES)

    def sample(self, count: int, limit: int) -> Tensor:
        return torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))[:limit]

    def of_removing(self, facts: Triples, triple: Triples) -> Tensor:
        """(n,): the change of the score of a triple (one row, as an answer for the tail) as each fact alone is removed."""
        change = self.scorer.entities.new_zeros(len(facts))
        for vector in {Vector(slot is Slot.RELATION, int(triple[slot])) for slot in Slot}:
            touched = vector.within(facts)
            if touched.any():
                sensitivity = self.sensitivity(triple, vector)
                losses = self.loss_gradients(facts[touched], vector)
                change[touched] += torch.cat([gradients @ sensitivity for gradients, _ in losses])
        return change

    def sensitivity(self, triple: Triples, vector: Vector) -> Tensor:
        """(dim,): H^-1 ds/dv. Vectors of unit length move along the sphere, whose curvature then counts too."""
        gradient = self.score_gradients({slot: triple[slot][:, None] for slot in Slot}, vector)[1][0, 0].double()
        facts = self.graph.train[vector.within(self.graph.train)]
        sample = facts[self.sample(len(facts), CURVATURE_FACTS)]
        total, curvature = torch.zeros_like(gradient), gradient.new_zeros(len(gradient), len(gradient))
        for gradients, roots in self.loss_gradients(sample, vector):
            total += gradients.sum(0)
            curvature += roots.T @ roots
        weight, identity = len(facts) / max(len(sample), 1), torch.eye(len(gradient), dtype=gradient.dtype)
        damping = DAMPING * curvature.trace() / len(gradient) + 1e-12
        if self.model.normalise:
            value = self._table(vector.is_relation)[vector.id].double()
            tangent = identity - torch.outer(value, value)
            gradient, curvature = tangent @ gradient, tangent @ curvature @ tangent
            damping = damping + (-value @ total).clamp(min=0)
        solution: Tensor = torch.linalg.solve(weight * (curvature + damping * identity), gradient)
        return solution.to(self.scorer.entities.dtype)

    def loss_gradients(self, facts: Triples, vector: Vector) -> Iterator[tuple[Tensor, Tensor]]:
        """In chunks: gradients (b, dim) of the facts' log-softmax losses in a vector, and R (any, dim) with H = R'R."""
        size = max(1, MAX_NUMBERS // ((1 + len(self.negatives)) * self.scorer.entities.shape[1]))
        for chunk in facts.chunks(size):
            gradients, roots = [], []
            for slot, queries in self._queries(chunk):
                truth = queries[slot][:, None]
                ids = torch.cat([truth, self.negatives.expand(len(chunk), -1)], dim=1)  # (b, 1 + m)
                columns = {s: ids if s is slot else queries[s][:, None] for s in Slot}
                scores, slopes = self.score_gradients(columns, vector)
                repeats_truth = ids == truth
                repeats_truth[:, 0] = False
                probability = scores.masked_fill(repeats_truth, -torch.inf).softmax(-1)[..., None]
                mean = (probability * slopes).sum(1)  # (b, dim)
                gradients.append(mean - slopes[:, 0])
                roots.append((probability.sqrt() * (slopes - mean[:, None])).flatten(0, 1))
            yield torch.stack(gradients).sum(0), torch.cat(roots)

    def _queries(self, facts: Triples) -> list[tuple[Slot, Triples]]:
        """For heads and for tails; a reciprocal model asks for heads by the reversed fact."""
        if self.model.reciprocal:
            reversed_facts = Triples(facts.tail, facts.relation + self.model.n_relations, facts.head)
            return [(Slot.TAIL, reversed_facts), (Slot.TAIL, facts)]
        return [(Slot.HEAD, facts), (Slot.TAIL, facts)]

    def _table(self, is_relation: bool) -> Tensor:
        return self.scorer.relations if is_relation else self.scorer.entities

    def score_gradients(self, ids: Mapping[Slot, Tensor], vector: Vector) -> tuple[Tensor, Tensor]:
        """(b, m) scores of triples, ids (b, m) or (b, 1) in each slot, and (b, m, dim) their gradients in a vector."""
        shape = torch.broadcast_shapes(*(column.shape for column in ids.values()))
        rows = {slot: self._table(slot is Slot.RELATION)[ids[slot]] for slot in Slot}
        with torch.enable_grad():
            for slot in vector.slots:
                rows[slot] = rows[slot].expand(*shape, -1).clone().requires_grad_()
            composed = self.scorer.composition.compose(rows[Slot.HEAD], rows[Slot.RELATION], rows[Slot.TAIL])
            scores = self.scorer.form(composed)
            gradients = torch.autograd.grad(scores.sum(), [rows[slot] for slot in vector.slots])
        is_vector = [(ids[slot] == vector.id)[..., None] for slot in vector.slots]
        return scores.detach(), torch.stack([g * mask for g, mask in zip(gradients, is_vector, strict=True)]).sum(0)
