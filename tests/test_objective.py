from __future__ import annotations

import math
import typing

import pytest
import torch

from harmonium.composition import find_composition
from harmonium.config import ModelConfig, TrainConfig
from harmonium.graph import Slot, Triples
from harmonium.model import GradientGraph
from harmonium.objective import CONTRASTIVE, TypeHead, contrast, draw_negatives, full_softmax, n3, relation_softmax
from harmonium.training import build_model
from laws import models

BATCH = Triples.from_rows([[0, 0, 1], [2, 1, 3], [4, 2, 4]])
NEGATIVES = {Slot.HEAD: torch.tensor([[5, 6], [2, 0], [9, 10]]), Slot.TAIL: torch.tensor([[1, 7], [8, 8], [0, 3]])}


def score(model: GradientGraph, head: int, relation: int, tail: int, turned: bool) -> float:
    """One triple by the definition; turned: as the reversed triple of a reciprocal model."""
    row = (tail, relation + model.n_relations, head) if turned else (head, relation, tail)
    entity, relation_vectors = model.entities(), model.relations()
    vectors = (entity[row[0]], relation_vectors[row[1]], entity[row[2]])
    return model.form.fold()(model.composition.compose(*vectors)).item()


def scores_by_hand(model: GradientGraph, others: dict[Slot, list[list[int]]]) -> list[list[float]]:
    """The true triple's score, then the others', for each triple and side."""
    rows = []
    for number, (head, relation, tail) in enumerate(BATCH.rows().tolist()):
        heads = [(other, relation, tail) for other in [head, *others[Slot.HEAD][number]]]
        tails = [(head, relation, other) for other in [tail, *others[Slot.TAIL][number]]]
        for triples, turned in ((heads, model.reciprocal), (tails, False)):
            rows.append([score(model, *triple, turned) - model.form.fold().constant.item() for triple in triples])
    return rows


def softmax(true: float, others: list[float]) -> float:
    return -math.log(math.exp(true) / sum(math.exp(s) for s in [true, *others]))


def mean(numbers: typing.Iterable[float]) -> float:
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def sigmoid(number: float) -> float:
    return 1 / (1 + math.exp(-number))


MARGIN = 0.3
BY_HAND: dict[str, typing.Callable[[float, list[float]], float]] = {  # the loss of one triple and side
    "sampled": softmax,
    "linear-margin": lambda true, others: mean(max(0, MARGIN - true + s) for s in others),
    "logistic-margin": lambda true, others: mean(max(0, MARGIN - sigmoid(true) + sigmoid(s)) for s in others),
    "logistic": lambda true, others: -(math.log(sigmoid(true)) + mean(math.log(sigmoid(-s)) for s in others)) / 2,
}


def test_every_loss_can_be_asked_for_and_is_tested() -> None:
    assert set(BY_HAND) == set(CONTRASTIVE)
    assert {*CONTRASTIVE, "full"} == set(typing.get_args(typing.get_type_hints(TrainConfig)["loss"]))


@pytest.mark.parametrize("name", ["hole", "complex"])
@pytest.mark.parametrize("loss", BY_HAND)
def test_losses_by_hand(loss: str, name: str) -> None:
    for model in models(find_composition(name), 4):
        rows = scores_by_hand(model, {slot: ids.tolist() for slot, ids in NEGATIVES.items()})
        expected = mean(BY_HAND[loss](true, others) for true, *others in rows)
        found = CONTRASTIVE[loss](contrast(model.snapshot(), BATCH, NEGATIVES), MARGIN)
        assert found.item() == pytest.approx(expected, rel=1e-9)


def test_margins_let_go_of_what_is_won() -> None:
    scores = torch.tensor([[2.0, 0.5, 1.9], [0.0, -5.0, -5.0]], requires_grad=True)
    CONTRASTIVE["linear-margin"](scores, 1.0).backward()
    assert scores.grad.tolist() == [[-0.25, 0, 0.25], [0, 0, 0]]


def test_full_softmax_is_against_everyone() -> None:
    for model in models(find_composition("hole"), 4):
        others = {
            Slot.HEAD: [[e for e in range(11) if e != head] for head in BATCH.head.tolist()],
            Slot.TAIL: [[e for e in range(11) if e != tail] for tail in BATCH.tail.tolist()],
        }
        expected = mean(softmax(true, rest) for true, *rest in scores_by_hand(model, others))
        assert full_softmax(model.snapshot(), BATCH).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["hole", "concatenation"])
def test_relation_softmax_is_against_all_relations_and_both_ways(name: str) -> None:
    for model in models(find_composition(name), 4):
        losses = []
        for head, relation, tail in BATCH.rows().tolist():
            for turned in (False, True) if model.reciprocal else (False,):
                rows = [score(model, head, other, tail, turned) for other in range(model.n_relations)]
                losses.append(softmax(rows[relation], [s for r, s in enumerate(rows) if r != relation]))
        assert relation_softmax(model.snapshot(), BATCH).item() == pytest.approx(mean(losses), rel=1e-9)


def test_types_are_slots_of_relations() -> None:
    model = build_model(ModelConfig("hole", 4, harmony=False), 11, 3).double()
    types = TypeHead(4, 3).double()
    assert types(model.snapshot(), BATCH).item() == pytest.approx(math.log(6))
    with torch.no_grad():
        types.weight.normal_(generator=torch.Generator().manual_seed(0))
        types.bias.copy_(torch.arange(6))
    losses = []
    for head, relation, tail in BATCH.rows().tolist():
        for entity, own in ((head, relation), (tail, 3 + relation)):
            logits = (types.weight @ model.entities()[entity] + types.bias).tolist()
            losses.append(softmax(logits[own], [s for t, s in enumerate(logits) if t != own]))
    loss = types(model.snapshot(), BATCH)
    assert loss.item() == pytest.approx(mean(losses), rel=1e-9)
    loss.backward()
    moved = model.entity.grad.abs().sum(dim=1) > 0
    assert moved.nonzero().flatten().tolist() == [0, 1, 2, 3, 4]  # those of the batch


def test_negatives_are_uniform_and_apart_for_each_side() -> None:
    drawn = draw_negatives(5, 1000, 20, torch.Generator().manual_seed(0))
    for ids in drawn.values():
        assert ids.shape == (1000, 20)
        assert ids.flatten().bincount(minlength=5).tolist() == pytest.approx([4000] * 5, rel=0.05)
    assert not torch.equal(drawn[Slot.HEAD], drawn[Slot.TAIL])


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
    assert n3(model.snapshot(), batch).item() == pytest.approx((entities + 2 * relation) / 2)


def test_n3_of_complex_numbers_is_of_their_sizes() -> None:
    model = build_model(ModelConfig("complex", 4, harmony=False, normalise=False), 2, 1)
    with torch.no_grad():
        model.entity.copy_(torch.tensor([[3.0, 0.0, 4.0, 1.0], [0.0, 0.0, 0.0, 2.0]]))  # 3 + 4i, i; 0, 2i
        model.relation.copy_(torch.tensor([[0.0, 1.0, -1.0, 0.0]]))  # -i, 1
    expected = (5**3 + 1) + 2**3 + (1 + 1)
    assert n3(model.snapshot(), Triples.from_rows([[0, 0, 1]])).item() == pytest.approx(expected, rel=1e-6)
