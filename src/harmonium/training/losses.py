"""Losses: what training minimises, with the regularisers of regularisers.py.

In the equations s is the score of a true triple and s_i those of its negatives. A contrastive loss is a function of
scores (m, 1 + n), the true triple's first, and of the margin; it returns the losses (m,). `@contrastive` registers it as a
value of train.loss under its name, and its docstring becomes part of the help. The mean over
triples and the weights of facts are applied here (see relative_weights.py).
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.scoring import BatchScorer, SharedQueries
from harmonium.training.negatives import true_then_negatives

ContrastiveLoss = Callable[[Tensor, float], Tensor]
CONTRASTIVE_LOSSES: dict[str, ContrastiveLoss] = {}  # by value of train.loss
FULL = (
    "full"  # the one loss that is not contrastive: its candidates are all entities (BatchScorer.entity_cross_entropy)
)


def contrastive(loss: ContrastiveLoss) -> ContrastiveLoss:
    """Register a loss: `def linear_margin` becomes train.loss=linear-margin."""
    CONTRASTIVE_LOSSES[loss.__name__.replace("_", "-")] = loss
    return loss


@contrastive
def sampled(scores: Tensor, margin: float) -> Tensor:
    """Softmax over sampled negatives, -log(exp(s) / (exp(s) + sum of exp(s_i))): the paper's. Ignores the margin."""
    return _cross_entropy(scores)


@contrastive
def linear_margin(scores: Tensor, margin: float) -> Tensor:
    """Hinge on scores, mean of max(0, margin - s + s_i) (Yang et al. 2015, margin 1), the paper's HolE*."""
    return (margin - scores[:, :1] + scores[:, 1:]).relu().mean(1)


@contrastive
def logistic_margin(scores: Tensor, margin: float) -> Tensor:
    """Hinge on sigmoids, mean of max(0, margin - sigmoid(s) + sigmoid(s_i)) (Nickel et al. 2016, margin 0.2)."""
    return linear_margin(scores.sigmoid(), margin)


@contrastive
def logistic(scores: Tensor, margin: float) -> Tensor:
    """Log loss of true and negative triples, (log(1 + exp(-s)) + mean of log(1 + exp(s_i))) / 2. Ignores the margin."""
    return (F.softplus(-scores[:, 0]) + F.softplus(scores[:, 1:]).mean(1)) / 2


def loss_help() -> dict[str, str]:
    """Value of train.loss -> its description, the first line of its docstring."""
    described = {name: (loss.__doc__ or "").partition("\n")[0] for name, loss in CONTRASTIVE_LOSSES.items()}
    return {FULL: "Softmax over all entities.", **described}


def find_loss(name: str) -> ContrastiveLoss:
    """The contrastive loss of this name; for `full`, which is a softmax over all entities, that over samples."""
    if name not in loss_help():
        raise HarmoniumError(f"there is no train.loss={name}; there are {', '.join(loss_help())}")
    return CONTRASTIVE_LOSSES.get(name, sampled)


def contrastive_loss(scores: Tensor, settings: TrainConfig, weights: Tensor | None = None) -> Tensor:
    """The weighted mean loss of scores (m, 1 + n), weights (m,). Label smoothing applies to the softmax only."""
    if settings.label_smoothing:
        losses = _cross_entropy(scores, settings.label_smoothing)
    else:
        losses = find_loss(settings.loss)(scores, settings.margin)
    return losses.mean() if weights is None else (losses * weights).mean()


def _cross_entropy(scores: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """(m,): the cross-entropy of the first column."""
    truth = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    return F.cross_entropy(scores, truth, label_smoothing=label_smoothing, reduction="none")


def contrastive_scores(scorer: BatchScorer, negatives: Mapping[Slot, Tensor]) -> Tensor:
    """(2b, 1 + n): the scores of each true triple and of its negatives; corrupted heads first, then tails.

    Negatives are ids (b, n), or (g, n) where b / g consecutive triples share a row. One side only: b rows of scores.
    """
    batch = scorer.batch
    if all(len(ids) == len(batch) for ids in negatives.values()):
        return torch.cat(list(scorer.score_sampled(true_then_negatives(batch, negatives)).values()))
    true = scorer.score_sampled({slot: batch[slot][:, None] for slot in negatives})
    corrupted = {slot: scorer.score_shared(slot, ids) for slot, ids in negatives.items()}
    return torch.cat([torch.cat([true[slot], corrupted[slot]], dim=1) for slot in negatives])


def answer_weights(train: Triples, n_entities: int, share: float) -> Tensor | None:
    """(n_entities,): the weight of each entity as an answer; None if all are equal.

    A `share` of it is the entity's frequency in the training facts, divided by the largest one (Zhang et al. 2020).
    """
    if not share:
        return None
    frequency = torch.bincount(torch.cat([train.head, train.tail]), minlength=n_entities).float()
    return 1 - share + share * frequency / frequency.max()


def query_weights(weights: Tensor, batch: Triples, queries: SharedQueries | None = None) -> Tensor:
    """(2b,): the weights of the true tails, then heads, with mean one; with shared queries (b,), a tail or head each."""
    tails, heads = slice(0, len(batch)), slice(0, len(batch))
    if queries is not None:
        tails, heads = slice(0, queries.tails), slice(queries.tails, len(batch))
    of_answers = weights[torch.cat([batch.tail[tails], batch.head[heads]])]
    return of_answers / of_answers.mean()
