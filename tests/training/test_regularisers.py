"""Regularisers against the formulas of their papers, triple by triple in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Triples
from harmonium.model.build import build_model
from harmonium.model.composition import Composition, find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training.regularisers import dura, n3
from laws import models

BATCH = Triples.from_rows([[0, 0, 1], [2, 1, 3], [4, 2, 4], [0, 1, 0]])
LINEAR = sorted(
    name for name, kind in Composition.registry.items() if kind.is_linear and kind.__module__.startswith("harmonium")
)


def directions(model: GradientGraph) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The vectors of every triple of the batch and, with reciprocal relations, of every reversed one."""
    entities, relations = model.entities(), model.relations()
    vectors = []
    for head, relation, tail in BATCH.to_rows().tolist():
        vectors.append((entities[head], relations[relation], entities[tail]))
        if model.reciprocal:
            vectors.append((entities[tail], relations[relation + model.n_relations], entities[head]))
    return vectors


def mean(terms: list[Tensor]) -> float:
    return torch.stack(terms).mean().item()


def by_autograd(model: GradientGraph, head: Tensor, relation: Tensor, tail: Tensor, entities: float) -> Tensor:
    """A query vector is the slope of the score's linear part in the candidate."""
    head, tail = head.detach().requires_grad_(), tail.detach().requires_grad_()
    linear = model.composition.compose(head, relation, tail) @ model.form.fold().vector
    slopes = torch.autograd.grad(linear, [head, tail])
    return entities * (head.square().sum() + tail.square().sum()) + sum(slope.square().sum() for slope in slopes)


@pytest.mark.parametrize("entities", [1.0, 0.25])
@pytest.mark.parametrize("name", LINEAR)
def test_dura_is_of_entities_and_query_vectors(name: str, entities: float) -> None:
    for model in models(find_composition(name), 4):
        expected = mean([by_autograd(model, *vectors, entities) for vectors in directions(model)])
        assert dura(model.scorer().for_batch(BATCH), entities).item() == pytest.approx(expected, rel=1e-9)


def relation_matrix(name: str, relation: Tensor) -> Tensor:
    """R with the score h' R t."""
    if name == "distmult":
        return relation.diag()
    if name == "rescal":
        return relation.view(4, 4)
    real, imaginary = relation[:2].diag(), relation[2:].diag()  # Re(h r conj t), vectors as [real | imaginary]
    return torch.cat([torch.cat([real, imaginary], dim=1), torch.cat([-imaginary, real], dim=1)])


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("name", ["distmult", "complex", "rescal"])
def test_dura_of_bilinear_models_is_the_papers_formula(name: str, reciprocal: bool) -> None:
    """|h|^2 + |t|^2 + |hR|^2 + |tR'|^2 (Zhang et al. 2020)."""
    config = ModelConfig(name, 4, harmony=False, normalise=False, reciprocal=reciprocal)
    model = build_model(config, 5, 3).double()
    terms = []
    for head, relation, tail in directions(model):
        matrix = relation_matrix(name, relation)
        assert (head @ matrix @ tail).item() == pytest.approx(
            model.form.fold()(model.composition.compose(head, relation, tail)).item()
        )
        terms.append(sum(vector.square().sum() for vector in (head, tail, head @ matrix, matrix @ tail)))
    assert dura(model.scorer().for_batch(BATCH)).item() == pytest.approx(mean(terms), rel=1e-9)


@pytest.mark.parametrize("reciprocal", [False, True])
def test_n3_by_hand(reciprocal: bool) -> None:
    config = ModelConfig("distmult", 2, harmony=False, normalise=False, reciprocal=reciprocal)
    model = build_model(config, 3, 1)
    with torch.no_grad():
        model.entity.copy_(torch.tensor([[1.0, -2.0], [0.0, 3.0], [-1.0, 1.0]]))
        model.relation.copy_(torch.tensor([[2.0, 1.0], [0.0, -1.0]])[: len(model.relation)])
    batch = Triples.from_rows([[0, 0, 1], [2, 0, 0]])
    entities = (1 + 8) + 27 + (1 + 1) + (1 + 8)
    relation = ((8 + 1) + 1) / 2 if reciprocal else 8 + 1  # its two vectors count half each
    assert n3(model.scorer().for_batch(batch)).item() == pytest.approx((entities + 2 * relation) / 2)


def test_n3_of_complex_numbers_is_of_their_moduli() -> None:
    model = build_model(ModelConfig("complex", 4, harmony=False, normalise=False), 2, 1)
    with torch.no_grad():
        model.entity.copy_(torch.tensor([[3.0, 0.0, 4.0, 1.0], [0.0, 0.0, 0.0, 2.0]]))  # 3 + 4i, i; 0, 2i
        model.relation.copy_(torch.tensor([[0.0, 1.0, -1.0, 0.0]]))  # -i, 1
    expected = (5**3 + 1) + 2**3 + (1 + 1)
    assert n3(model.scorer().for_batch(Triples.from_rows([[0, 0, 1]]))).item() == pytest.approx(expected, rel=1e-6)
