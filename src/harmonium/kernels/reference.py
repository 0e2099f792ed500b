"""The reference backend, which defines the scores: every candidate is composed. Slow, plain, right."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.kernels.interfaces import SlotMapLike
from harmonium.kernels.quadratic_form import QuadraticForm


def all_scores(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor) -> Tensor:
    """(b, n): form(compose(...)) of each query with each of the shared candidates (n, slot_dim)."""
    return form(slot_map.beside_candidates().apply(candidates))


def cross_entropy(
    form: QuadraticForm,
    slot_maps: Sequence[SlotMapLike],
    candidates: Tensor,
    target: Tensor,
    smoothing: float,
    weights: Tensor | None = None,
    query_of: Tensor | None = None,
) -> Tensor:
    """The mean cross-entropy of answers, target (m,), against all candidates (n, slot_dim).

    The loss of an answer is multiplied by its weight (m,), if there are weights; `query_of` (m,) is its query.
    """
    scores = torch.cat([all_scores(form, slot_map, candidates) for slot_map in slot_maps])
    scores = scores if query_of is None else scores[query_of]
    return weighted_cross_entropy(scores, target, smoothing, weights)


def weighted_cross_entropy(scores: Tensor, target: Tensor, smoothing: float, weights: Tensor | None) -> Tensor:
    """The mean over rows (m, n) of the cross-entropy of the true column (m,), times the weight of the row (m,)."""
    if weights is None:
        return F.cross_entropy(scores, target, label_smoothing=smoothing)
    return (weights * F.cross_entropy(scores, target, label_smoothing=smoothing, reduction="none")).mean()


def sampled_scores(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor]
) -> list[Tensor]:
    """(b, n) for each slot map: scores of the candidates of each query, rows ids (b, n) of the table."""
    return [
        form(slot_map.beside_candidates().apply(F.embedding(candidates, table)))
        for slot_map, candidates in zip(slot_maps, ids, strict=True)
    ]
