from __future__ import annotations

import math
import typing

import pytest
import torch

from harmonium.composition import find_composition
from harmonium.config import ModelConfig, TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph
from harmonium.objective import (
    CONTRASTIVE,
    SAMPLERS,
    TypeHead,
    contrast,
    draw_negatives,
    full_softmax,
    n3,
    relation_softmax,
    spread,
)
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


def star() -> Triples:
    """Entity 0 in nine facts, 1 to 9 in one each, 10 in none; relation 1 has one."""
    return Triples.from_rows([[0, 0, other] for other in range(1, 9)] + [[9, 1, 0]])


def test_samplers_draw_as_they_say() -> None:
    assert set(SAMPLERS) == set(typing.get_args(typing.get_type_hints(TrainConfig)["sampler"]))
    batch, train = Triples.from_rows([[0, 0, 1], [9, 1, 0]] * 500), star()
    drawn = {name: kind(train, 11).draw(batch, 40, torch.Generator().manual_seed(0)) for name, kind in SAMPLERS.items()}
    again = {name: kind(train, 11).draw(batch, 40, torch.Generator().manual_seed(0)) for name, kind in SAMPLERS.items()}
    for name, sides in drawn.items():
        assert all(ids.shape == (1000, 40) and ids.equal(again[name][slot]) for slot, ids in sides.items())
        assert not sides[Slot.HEAD].equal(sides[Slot.TAIL])
    weights = [10**0.75, *[2**0.75] * 9, 1]
    for ids in drawn["degree"].values():
        assert ids.flatten().bincount(minlength=11).tolist() == pytest.approx(
            [40_000 * w / sum(weights) for w in weights], rel=0.06
        )
    typed = drawn["typed"]
    assert typed[Slot.HEAD][0::2, :20].unique().tolist() == [0]
    assert typed[Slot.HEAD][1::2, :20].unique().tolist() == [9]
    seen = typed[Slot.TAIL][0::2, :20].flatten().bincount(minlength=11)
    assert seen.tolist() == [0, *[pytest.approx(1250, rel=0.1)] * 8, 0, 0]
    anyone = typed[Slot.TAIL][:, 20:].flatten().bincount(minlength=11)
    assert anyone.tolist() == pytest.approx([20_000 / 11] * 11, rel=0.1)


@pytest.mark.parametrize("name", ["degree", "typed"])
def test_the_softmax_of_drawn_negatives_is_corrected_for_how_they_were_drawn(name: str) -> None:
    """With the shift the best scores are log p whatever q is: there the gradient vanishes in the mean."""
    n, generator = 5, torch.Generator().manual_seed(0)
    sampler = SAMPLERS[name](Triples.from_rows([[t, 0, t] for t in [0] * 16 + [1] * 4 + [2]]), n)
    p = torch.tensor([0.1, 0.15, 0.2, 0.25, 0.3], dtype=torch.float64)
    truth = torch.multinomial(p, 400_000, replacement=True, generator=generator)
    batch = Triples(truth, torch.zeros_like(truth), truth)
    negatives = sampler.draw(batch, 4, generator)
    places = torch.rand(len(truth), 4, generator=generator).argsort(dim=1)  # halves mixed: each is drawn by q
    ids = torch.cat(
        [torch.cat([truth[:, None], negatives[s].gather(1, places)], dim=1) for s in (Slot.HEAD, Slot.TAIL)]
    )
    shift = sampler.shift(batch, {slot: some.gather(1, places) for slot, some in negatives.items()})
    for by, is_zero in ((shift, True), (torch.zeros_like(shift), False)):
        scores = p.log().requires_grad_()
        (gradient,) = torch.autograd.grad(CONTRASTIVE["sampled"](scores[ids] - by, 1.0), scores)
        assert (
            gradient.abs().max() < (2e-3 if name == "degree" else 1e-2)
        ) == is_zero  # typed: half and half, so nearly


@pytest.mark.parametrize("name", ["hole", "distmult", "tensorproduct", "concatenation"])
def test_shared_negatives_score_as_if_each_triple_had_them(name: str) -> None:
    batch = Triples.from_rows([[0, 0, 1], [2, 1, 3], [4, 2, 4], [5, 0, 6]])
    shared = {slot: torch.tensor([[5, 6, 1], [9, 10, 2]]) for slot in (Slot.HEAD, Slot.TAIL)}
    own = {slot: ids[[0, 0, 1, 1]] for slot, ids in shared.items()}
    composition = find_composition(name)
    dim = composition.dim(4, composition.relation_dim(4))
    low_rank = GradientGraph(composition, 11, 3, 4, Harmony(dim, 2.0, rank=2)).initialise().double()
    for model in [*models(composition, 4), low_rank]:
        scores = [contrast(model.snapshot(), batch, ids) for ids in (shared, own)]
        torch.testing.assert_close(*scores, rtol=1e-9, atol=1e-9)
        found, wanted = (torch.autograd.grad(s.square().sum(), model.entity)[0] for s in scores)
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


def test_triples_share_their_negatives_in_even_parts() -> None:
    sampler = SAMPLERS["uniform"](star(), 11, shared=4)
    for size, rows in ((12, 3), (10, 5), (7, 7)):
        assert sampler.draw(star()[[0] * size], 6, torch.Generator())[Slot.TAIL].shape == (rows, 6)
    assert spread(torch.tensor([[1], [2]]), 6).flatten().tolist() == [1, 1, 1, 2, 2, 2]
    with pytest.raises(HarmoniumError, match="leave train.shared at 1"):
        SAMPLERS["typed"](star(), 11, shared=4)


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
