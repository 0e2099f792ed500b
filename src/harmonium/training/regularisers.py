"""Regularisers: penalties on the vectors of a batch, as (weighted) means over its triples.

With reciprocal relations a triple (head, r, tail) also stands for (tail, r', head), and the mean is over both.
"""

import torch
from torch import Tensor

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Slot
from harmonium.kernels.sum_of_cubes import sum_of_cubes
from harmonium.model.composition import SlotMap
from harmonium.model.scoring import BatchScorer


def regularisation(scorer: BatchScorer, settings: TrainConfig) -> Tensor | None:
    """The sum of the regularisers with a positive weight; None if there is none."""
    terms: list[Tensor] = []
    if settings.n3:
        terms.append(settings.n3 * n3(scorer))
    if settings.f2:
        terms.append(settings.f2 * f2(scorer))
    if settings.dura:
        terms.append(settings.dura * dura(scorer, settings.dura_entities))
    return torch.stack(terms).sum() if terms else None


def n3(scorer: BatchScorer) -> Tensor:
    """N3: |head|_3^3 + |relation|_3^3 + |tail|_3^3 (Lacroix et al. 2018)."""
    parts = scorer.composition.parts
    entities, relations = (_scaled(scorer, rows, 3) for rows in (scorer.entity_rows, scorer.relation_rows))
    return _mean(scorer, sum_of_cubes(entities, parts), sum_of_cubes(relations, parts))


def f2(scorer: BatchScorer) -> Tensor:
    """F2: |head|^2 + |relation|^2 + |tail|^2."""
    return _mean(scorer, _squares(scorer, scorer.entity_rows), _squares(scorer, scorer.relation_rows))


def dura(scorer: BatchScorer, entities: float = 1.0) -> Tensor:
    """DURA: entities (|head|^2 + |tail|^2) + |query of the tail|^2 + |query of the head|^2 (Zhang et al. 2020).

    The query of a slot is the vector q with score = q . candidate, T'c for the slot map T and the form's vector c: hR
    and tR' of a bilinear score hRt'. For a harmonic model, that is the linear part of the score. Dropout is not applied.
    """
    head, relation, tail = scorer.head, scorer.relation_rows, scorer.tail
    if scorer.reciprocal:
        head, tail = scorer.entity_rows, torch.cat([tail, head])
    tails = SlotMap(scorer.composition, Slot.TAIL, head, relation, tail.shape[-1])
    heads = SlotMap(scorer.composition, Slot.HEAD, relation, tail, head.shape[-1])
    queries = [_squares(scorer, slot_map.transpose(scorer.form.vector)) for slot_map in (tails, heads)]
    return _mean(scorer, entities * _squares(scorer, scorer.entity_rows), queries[0] + queries[1])


def _squares(scorer: BatchScorer, rows: Tensor) -> Tensor:
    return _scaled(scorer, rows, 2).square().sum()


def _scaled(scorer: BatchScorer, rows: Tensor, power: int) -> Tensor:
    """Rows (b or 2b, dim) such that the sums of their powers are multiplied by the weights of the facts."""
    weights = scorer.weights(len(rows) // len(scorer.batch))
    return rows if weights is None else rows * weights.pow(1 / power)[:, None]


def _mean(scorer: BatchScorer, entities: Tensor, directions: Tensor) -> Tensor:
    """The mean over triples of the entity terms, which both directions share, plus the terms of each direction."""
    return (entities + directions / (2 if scorer.reciprocal else 1)) / len(scorer.batch)
