"""The reference backend, which defines the scores: every candidate is composed. Slow, plain, right."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.kernels.cross_entropy import Shard
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
    shard: Shard | None = None,
) -> Tensor:
    """The mean cross-entropy of answers, target (m,), against all candidates (n, slot_dim), or this process's shard.

    The loss of an answer is multiplied by its weight (m,), if there are weights; `query_of` (m,) is its query.
    """
    scores = torch.cat([all_scores(form, slot_map, candidates) for slot_map in slot_maps])
    scores = scores if query_of is None else scores[query_of]
    return weighted_cross_entropy(scores, target, smoothing, weights, shard)


def weighted_cross_entropy(
    scores: Tensor, target: Tensor, smoothing: float, weights: Tensor | None, shard: Shard | None = None
) -> Tensor:
    """The mean over rows (m, n) of the cross-entropy of the true column (m,), times the weight of the row (m,)."""
    if shard is not None:
        losses: Tensor = _sharded_losses(scores, target, smoothing, shard)
    else:
        losses = F.cross_entropy(scores, target, label_smoothing=smoothing, reduction="none")
    return losses.mean() if weights is None else (weights * losses).mean()


def _sharded_losses(scores: Tensor, target: Tensor, smoothing: float, shard: Shard) -> Tensor:
    """This process's equal part of each row's loss; its gradient is that through the candidates of this process."""
    held, column = shard.local(target, scores.shape[1])
    truth = scores.new_zeros(len(scores)).index_put((held,), scores[held, column])
    mean, log_normaliser = scores.sum(1) / shard.n_candidates, scores.logsumexp(1)
    others = torch.stack([truth, mean]).detach().flatten()
    total, summed = shard.processes.sum_of_exponentials(log_normaliser.detach(), others)
    whole_truth, whole_mean = summed.view(2, -1)
    mass = (log_normaliser.detach() - total).exp()  # d log(sum of Z_i) = sum of Z_i / Z d log Z_i
    own = torch.where(mass > 0, mass * log_normaliser, 0) - (1 - smoothing) * truth - smoothing * mean
    whole = total - (1 - smoothing) * whole_truth - smoothing * whole_mean
    losses: Tensor = own + (whole / shard.processes.size - own).detach()
    return losses


def sampled_scores(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor]
) -> list[Tensor]:
    """(b, n) for each slot map: scores of the candidates of each query, rows ids (b, n) of the table."""
    return [
        form(slot_map.beside_candidates().apply(F.embedding(candidates, table)))
        for slot_map, candidates in zip(slot_maps, ids, strict=True)
    ]
