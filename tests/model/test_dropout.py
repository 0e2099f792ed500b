"""Dropout on queries, against the formula triple by triple."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from harmonium.data.triples import Slot, Triples
from harmonium.kernels import dispatch
from harmonium.model.composition import Composition, find_composition
from harmonium.model.dropout import QueryDropout, dropout_mask
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import BatchScorer
from laws import BACKENDS, gradients, models

BATCH = Triples.from_rows([[0, 0, 1], [2, 1, 3], [4, 2, 4], [0, 1, 0]])
IDS = torch.tensor([[1, 5], [3, 0], [4, 10], [0, 9]])
NAMES = sorted(name for name, kind in Composition.registry.items() if kind.__module__.startswith("harmonium"))
SHARES = [(0.4, 0.0), (0.0, 0.3), (0.4, 0.3)]


def masked(model: GradientGraph, dropout: QueryDropout, slot: Slot, candidates: Tensor) -> Tensor:
    """(b, n): form(mask * compose(...)) of each query with each candidate vector, one by one."""
    first_mask, second_mask, composed_mask = dropout.masks[slot]
    entities, relations, form = model.entities(), model.relations(), model.form.fold()
    rows = []
    for number, (head, relation, tail) in enumerate(BATCH.to_rows().tolist()):
        asked = slot
        known = {Slot.HEAD: entities[head], Slot.RELATION: relations[relation], Slot.TAIL: entities[tail]}
        if slot is Slot.HEAD and model.reciprocal:  # asked as a tail query of the reversed triple
            reverse = relations[relation + model.n_relations]
            asked, known = Slot.TAIL, {Slot.HEAD: entities[tail], Slot.RELATION: reverse, Slot.TAIL: entities[head]}
        del known[asked]
        for position, mask in zip(list(known), (first_mask, second_mask), strict=True):
            known[position] = known[position] if mask is None else known[position] * mask[number]
        scores = []
        for candidate in candidates:
            vectors = known | {asked: candidate}
            composed = model.composition.compose(vectors[Slot.HEAD], vectors[Slot.RELATION], vectors[Slot.TAIL])
            scores.append(form(composed if composed_mask is None else composed * composed_mask[number]))
        rows.append(torch.stack(scores))
    return torch.stack(rows) - form.constant


def scorer_with_dropout(model: GradientGraph, vectors: float, composed: float) -> tuple[BatchScorer, QueryDropout]:
    dropout = QueryDropout(vectors, composed, torch.Generator().manual_seed(3))
    return model.scorer().for_batch(BATCH, dropout), dropout


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("vectors", "composed"), SHARES)
def test_scores_are_those_of_masked_vectors(name: str, vectors: float, composed: float) -> None:
    """All-entity and sampled scores and their gradients, by every backend, for plain, harmonic and reciprocal models."""
    for model in models(find_composition(name), 4):
        for backend in BACKENDS:
            with dispatch.use(backend):
                for slot in (Slot.HEAD, Slot.TAIL):
                    scorer, dropout = scorer_with_dropout(model, vectors, composed)
                    scores = scorer.score_slot(slot)
                    expected = masked(model, dropout, slot, model.entities())
                    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)
                    weight = torch.linspace(-1, 1, scores.numel(), dtype=scores.dtype).view_as(scores)
                    slopes = [gradients(model, (values * weight).sum(), True) for values in (scores, expected)]
                    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)
                    picked = scorer.score_sampled({slot: IDS})[slot]
                    torch.testing.assert_close(picked, expected.gather(1, IDS), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["complex", "hole"])
def test_the_loss_against_all_entities_has_the_masks_of_each_side(name: str) -> None:
    for model in models(find_composition(name), 4):
        scorer, dropout = scorer_with_dropout(model, 0.4, 0.3)
        loss = scorer.entity_cross_entropy()
        losses = [
            functional.cross_entropy(masked(model, dropout, slot, model.entities()), BATCH[slot])
            for slot in (Slot.HEAD, Slot.TAIL)
        ]
        torch.testing.assert_close(loss, torch.stack(losses).mean(), rtol=1e-9, atol=1e-9)


def test_masks_drop_a_share_and_keep_the_mean() -> None:
    like = torch.zeros((), dtype=torch.float64)
    mask = dropout_mask((200, 300), 0.3, like, torch.Generator().manual_seed(0))
    assert sorted(mask.unique().tolist()) == [0, pytest.approx(1 / 0.7)]
    assert (mask == 0).double().mean().item() == pytest.approx(0.3, abs=0.01)  # standard error 0.002
    assert mask.mean().item() == pytest.approx(1, abs=0.01)
