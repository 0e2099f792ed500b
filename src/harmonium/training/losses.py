"""Losses: what training minimises, with the regularisers of regularisers.py.

In the equations s is the score of a true triple and s_i those of its negatives; each loss is a mean over triples and sides.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium.data.triples import Slot
from harmonium.model.scoring import BatchScorer
from harmonium.runtime.config import TrainConfig
from harmonium.training.negatives import true_then_negatives

ContrastiveLoss = Callable[[Tensor, float], Tensor]  # of scores (m, 1 + n), the true triple's first, and the margin


def sampled_softmax(scores: Tensor, margin: float, label_smoothing: float = 0.0) -> Tensor:
    """-log(exp(s) / (exp(s) + sum of exp(s_i))): cross-entropy against the negatives (the paper). Ignores the margin."""
    truth = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    return F.cross_entropy(scores, truth, label_smoothing=label_smoothing)


def linear_margin(scores: Tensor, margin: float) -> Tensor:
    """Mean of max(0, margin - s + s_i): margin ranking (Yang et al. 2015, margin 1), the paper's HolE*."""
    return (margin - scores[:, :1] + scores[:, 1:]).relu().mean()


def logistic_margin(scores: Tensor, margin: float) -> Tensor:
    """Mean of max(0, margin - sigmoid(s) + sigmoid(s_i)): HolE's pairwise loss (Nickel et al. 2016, margin 0.2)."""
    return linear_margin(scores.sigmoid(), margin)


def logistic(scores: Tensor, margin: float) -> Tensor:
    """(log(1 + exp(-s)) + mean of log(1 + exp(s_i))) / 2: logistic loss (Nickel et al. 2016). Ignores the margin."""
    return (F.softplus(-scores[:, :1]).mean() + F.softplus(scores[:, 1:]).mean()) / 2


CONTRASTIVE_LOSSES: dict[str, ContrastiveLoss] = {  # by the values of train.loss
    "sampled": sampled_softmax,
    "linear-margin": linear_margin,
    "logistic-margin": logistic_margin,
    "logistic": logistic,
}


def contrastive_loss(scores: Tensor, settings: TrainConfig) -> Tensor:
    """The loss that the settings choose, of scores (m, 1 + n); only the softmax can smooth its labels."""
    if settings.label_smoothing:
        return sampled_softmax(scores, settings.margin, settings.label_smoothing)
    return CONTRASTIVE_LOSSES[settings.loss](scores, settings.margin)


def contrastive_scores(scorer: BatchScorer, negatives: Mapping[Slot, Tensor]) -> Tensor:
    """(2b, 1 + n): the scores of each true triple and of its negatives; corrupted heads first, then tails.

    Negatives are ids (b, n), or (g, n) where b / g consecutive triples share a row; one side alone has b rows of scores.
    """
    batch = scorer.batch
    if all(len(ids) == len(batch) for ids in negatives.values()):
        return torch.cat(list(scorer.score_sampled(true_then_negatives(batch, negatives)).values()))
    true = scorer.score_sampled({slot: batch[slot][:, None] for slot in negatives})
    corrupted = {slot: scorer.score_shared(slot, ids) for slot, ids in negatives.items()}
    return torch.cat([torch.cat([true[slot], corrupted[slot]], dim=1) for slot in negatives])


class TypeHead(nn.Module):
    """Auxiliary loss: predict an entity's types from its vector. Trained with the model, but no part of it.

    The types of an entity are the slots of relations in which it stands, and each training triple is a sample of one
    type of its head and one of its tail. (The authors' code predicts types given with the data from the head's token;
    this works for any graph and for plain models.)
    """

    def __init__(self, entity_dim: int, n_relations: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * n_relations, entity_dim))  # types: heads of relations, then tails
        self.bias = nn.Parameter(torch.zeros(2 * n_relations))

    def forward(self, scorer: BatchScorer) -> Tensor:
        """Cross-entropy over the heads and tails of the batch."""
        types = torch.cat([scorer.batch.relation, scorer.batch.relation + scorer.n_relations])
        return F.cross_entropy(F.linear(scorer.entity_rows, self.weight, self.bias), types)
