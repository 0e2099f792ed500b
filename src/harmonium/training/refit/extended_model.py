"""Extend a model by rows for new entities and relations: the starting point of a local refit."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from harmonium.data.graph_changes import GraphChange
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training.negatives import SIDES


def extend_model(model: GradientGraph, change: GraphChange) -> GradientGraph:
    """A copy of the model with initialised rows for new entities and relations."""
    graph, n_relations = change.graph, change.before.n_relations
    larger = deepcopy(model)
    larger.n_entities, larger.local_rows, larger.n_relations = (
        graph.n_entities,
        slice(0, graph.n_entities),
        graph.n_relations,
    )
    with torch.no_grad():
        entity, relation = model.entity.detach().clone(), model.relation.detach().clone()
        if graph.n_entities > len(entity):
            entity = torch.cat([entity, start_entities(model, change).to(entity)])
        if graph.n_relations > n_relations:
            new = start_relations(model, change, entity)
            halves = zip(
                relation.split(n_relations), new.split(len(new) // (2 if model.reciprocal else 1)), strict=True
            )
            relation = torch.cat([part for half in halves for part in half])
    larger.entity, larger.relation = nn.Parameter(entity), nn.Parameter(relation)
    return larger


def start_entities(model: GradientGraph, change: GraphChange) -> Tensor:
    """(k, dim): initial vector of each new entity, the mean of known entities that fill the same slots.

    As scores are affine in a vector, its scores are the means of theirs: no query prefers it to all of them.
    """
    first, train, vectors = change.before.n_entities, change.graph.train, model.entities().detach()
    total = vectors.new_zeros(change.graph.n_entities - first, vectors.shape[1])
    for slot in SIDES:
        known = train[train[slot] < first]
        by_relation = vectors.new_zeros(change.graph.n_relations, vectors.shape[1])
        by_relation.index_add_(0, known.relation, vectors[known[slot]])
        counts = known.relation.bincount(minlength=len(by_relation))[:, None]
        by_relation = torch.where(counts > 0, by_relation / counts.clamp(min=1), vectors.mean(0))
        new = change.added[change.added[slot] >= first]
        total.index_add_(0, new[slot] - first, by_relation[new.relation])
    ends = torch.cat([change.added.head, change.added.tail]) - first
    return total / ends[ends >= 0].bincount(minlength=len(total)).clamp(min=1)[:, None]


def start_relations(model: GradientGraph, change: GraphChange, entity: Tensor) -> Tensor:
    """(k, dim), or (2k, dim) with reciprocal relations: the direction in which the scores of their facts increase."""
    first, facts = change.before.n_relations, change.added
    count, facts = change.graph.n_relations - first, facts[facts.relation >= first]
    head, tail, relation = facts.head, facts.tail, facts.relation - first
    if model.reciprocal:
        head, tail, relation = torch.cat([head, tail]), torch.cat([tail, head]), torch.cat([relation, relation + count])
    rows = model.relation.new_zeros(count * (2 if model.reciprocal else 1), model.relation.shape[1]).requires_grad_()
    vectors, form = entity.to(model.relation), deepcopy(model.form).requires_grad_(False).fold()
    with torch.enable_grad():
        scores = form(model.composition.compose(vectors[head], rows[relation], vectors[tail]))
        (gradient,) = torch.autograd.grad(scores.sum(), rows)
    return _at_mean_length(gradient, model.relations().detach())


def _at_mean_length(directions: Tensor, vectors: Tensor) -> Tensor:
    """Directions scaled to the mean length of `vectors`; the mean vector in place of a zero direction."""
    length: Tensor = torch.linalg.vector_norm(directions, dim=-1, keepdim=True)
    directions = torch.where(length > 1e-12, directions / length.clamp(min=1e-12), vectors.mean(0))
    usual: Tensor = torch.linalg.vector_norm(vectors, dim=-1).mean()
    return directions * usual
