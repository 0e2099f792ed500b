from __future__ import annotations

import math
import typing

import pytest
import torch

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Slot, Triples
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.training.losses import (
    CONTRASTIVE_LOSSES,
    answer_weights,
    contrastive_loss,
    contrastive_scores,
    query_weights,
)
from harmonium.training.negatives import true_then_negatives
from laws import models

BATCH = Triples.from_rows([[0, 0, 1], [2, 1, 3], [4, 2, 4]])
NEGATIVES = {Slot.HEAD: torch.tensor([[5, 6], [2, 0], [9, 10]]), Slot.TAIL: torch.tensor([[1, 7], [8, 8], [0, 3]])}


def score(model: GradientGraph, head: int, relation: int, tail: int, reverse: bool) -> float:
    """One triple by the definition; reverse: as the reversed triple of a reciprocal model."""
    row = (tail, relation + model.n_relations, head) if reverse else (head, relation, tail)
    entity, relation_vectors = model.entities(), model.relations()
    vectors = (entity[row[0]], relation_vectors[row[1]], entity[row[2]])
    return model.form.fold()(model.composition.compose(*vectors)).item()


def scores_by_hand(model: GradientGraph, others: dict[Slot, list[list[int]]]) -> list[list[float]]:
    """The true triple's score, then the others', for each triple and side."""
    rows = []
    for number, (head, relation, tail) in enumerate(BATCH.to_rows().tolist()):
        heads = [(other, relation, tail) for other in [head, *others[Slot.HEAD][number]]]
        tails = [(head, relation, other) for other in [tail, *others[Slot.TAIL][number]]]
        for triples, reverse in ((heads, model.reciprocal), (tails, False)):
            rows.append([score(model, *triple, reverse) - model.form.fold().constant.item() for triple in triples])
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


def test_every_loss_is_a_setting_and_is_tested() -> None:
    assert set(BY_HAND) == set(CONTRASTIVE_LOSSES)


@pytest.mark.parametrize("name", ["hole", "complex"])
@pytest.mark.parametrize("loss", BY_HAND)
def test_losses_by_hand(loss: str, name: str) -> None:
    for model in models(find_composition(name), 4):
        rows = scores_by_hand(model, {slot: ids.tolist() for slot, ids in NEGATIVES.items()})
        expected = mean(BY_HAND[loss](true, others) for true, *others in rows)
        scorer = model.scorer().for_batch(BATCH)
        ids = true_then_negatives(BATCH, NEGATIVES)
        loss_value = scorer.sampled_loss(
            ids, lambda scores, _: contrastive_loss(scores, TrainConfig(loss=loss, margin=MARGIN))
        )
        assert loss_value.item() == pytest.approx(expected, rel=1e-9)


def test_the_cross_entropy_of_entities_is_against_all_of_them() -> None:
    for model in models(find_composition("hole"), 4):
        others = {
            Slot.HEAD: [[e for e in range(11) if e != head] for head in BATCH.head.tolist()],
            Slot.TAIL: [[e for e in range(11) if e != tail] for tail in BATCH.tail.tolist()],
        }
        expected = mean(softmax(true, rest) for true, *rest in scores_by_hand(model, others))
        assert model.scorer().for_batch(BATCH).entity_cross_entropy().item() == pytest.approx(expected, rel=1e-9)


def smoothed(true: float, others: list[float], smoothing: float) -> float:
    """Minus the sum over candidates of target * log probability, the target a mixture of the truth and all candidates."""
    scores = [true, *others]
    log_total = math.log(sum(math.exp(s) for s in scores))
    targets = [smoothing / len(scores)] * len(scores)
    targets[0] += 1 - smoothing
    return -sum(target * (s - log_total) for target, s in zip(targets, scores, strict=True))


@pytest.mark.parametrize("name", ["hole", "complex", "concatenation"])
def test_smoothed_labels_are_a_mixture_of_the_truth_and_all_candidates(name: str) -> None:
    for model in models(find_composition(name), 4):
        scorer = model.scorer().for_batch(BATCH)
        every = {slot: [[e for e in range(11) if e != true] for true in BATCH[slot].tolist()] for slot in NEGATIVES}
        expected = mean(smoothed(true, others, 0.3) for true, *others in scores_by_hand(model, every))
        assert scorer.entity_cross_entropy(0.3).item() == pytest.approx(expected, rel=1e-9)
        sampled = {slot: ids.tolist() for slot, ids in NEGATIVES.items()}
        expected = mean(smoothed(true, others, 0.3) for true, *others in scores_by_hand(model, sampled))
        loss = scorer.sampled_loss(
            true_then_negatives(BATCH, NEGATIVES),
            lambda scores, _: contrastive_loss(scores, TrainConfig(label_smoothing=0.3)),
        )
        assert loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["hole", "complex", "concatenation"])
def test_frequent_answers_weigh_more(name: str) -> None:
    """Entity 1 occurs three times, 0 and 5 twice, all others of the batch once or, in training, not at all."""
    train = Triples.from_rows([[0, 0, 1], [1, 0, 5], [5, 1, 1], [0, 2, 7]])
    frequency = {0: 2, 1: 3, 5: 2, 7: 1}
    weights = answer_weights(train, 11, 0.9)
    assert weights is not None
    for model in models(find_composition(name), 4):
        every = {slot: [[e for e in range(11) if e != true] for true in BATCH[slot].tolist()] for slot in NEGATIVES}
        losses = [smoothed(true, others, 0.0) for true, *others in scores_by_hand(model, every)]
        answers = torch.stack([BATCH.head, BATCH.tail], dim=1).flatten().tolist()
        by_hand = [0.1 + 0.9 * frequency.get(answer, 0) / 3 for answer in answers]
        expected = sum(w * loss for w, loss in zip(by_hand, losses, strict=True)) / sum(by_hand)
        scorer = model.scorer().for_batch(BATCH)
        measured = scorer.entity_cross_entropy(answer_weights=query_weights(weights.double(), BATCH))
        assert measured.item() == pytest.approx(expected, rel=1e-6)


def test_equal_weights_need_no_tensor() -> None:
    assert answer_weights(BATCH, 11, 0.0) is None


@pytest.mark.parametrize("name", ["hole", "complex", "concatenation"])
def test_the_cross_entropy_of_relations_is_over_the_relations_of_the_augmented_graph(name: str) -> None:
    """Each fact (h, r, t), and with reciprocal relations also (t, r + R, h), asks for its relation among all vectors."""
    for model in models(find_composition(name), 4):
        facts = BATCH.to_rows().tolist()
        if model.reciprocal:
            facts += [[tail, relation + model.n_relations, head] for head, relation, tail in facts]
        entities, relations, form = model.entities(), model.relations(), model.form.fold()
        losses = []
        for head, relation, tail in facts:
            scores = [form(model.composition.compose(entities[head], r, entities[tail])).item() for r in relations]
            losses.append(softmax(scores.pop(relation), scores))
        assert model.scorer().for_batch(BATCH).relation_cross_entropy().item() == pytest.approx(mean(losses), rel=1e-9)


@pytest.mark.parametrize("name", ["hole", "distmult", "tensorproduct", "concatenation"])
def test_shared_negatives_score_as_if_each_triple_had_them(name: str) -> None:
    batch = Triples.from_rows([[0, 0, 1], [2, 1, 3], [4, 2, 4], [5, 0, 6]])
    shared = {slot: torch.tensor([[5, 6, 1], [9, 10, 2]]) for slot in (Slot.HEAD, Slot.TAIL)}
    expanded = {slot: ids[[0, 0, 1, 1]] for slot, ids in shared.items()}
    composition = find_composition(name)
    dim = composition.dim(4, composition.relation_dim(4))
    low_rank = GradientGraph(composition, 11, 3, 4, Harmony(dim, 2.0, rank=2)).initialise().double()
    for model in [*models(composition, 4), low_rank]:
        scores = [contrastive_scores(model.scorer().for_batch(batch), ids) for ids in (shared, expanded)]
        torch.testing.assert_close(*scores, rtol=1e-9, atol=1e-9)
        gradients = [torch.autograd.grad(s.square().sum(), model.entity)[0] for s in scores]
        torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)
