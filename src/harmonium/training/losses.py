"""Losses: what training minimises, with the regularisers of regularisers.py.

In the equations s is the score of a true triple and s_i those of its negatives; each loss is a mean over triples and sides.
Where facts have weights, the loss of a triple is multiplied by its weight; relative_weights.py says what they are.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium.config.settings import TrainConfig
from harmonium.data.triples import Slot, Triples
from harmonium.kernels.reference import weighted_cross_entropy
from harmonium.model.scoring import BatchScorer
from harmonium.training.negatives import true_then_negatives

# Of scores (m, 1 + n), the true triple's first, of the margin, and of the weights of the triples (m,), if they have any.
ContrastiveLoss = Callable[[Tensor, float, Tensor | None], Tensor]


def sampled_softmax(
    scores: Tensor, margin: float, weights: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """-log(exp(s) / (exp(s) + sum of exp(s_i))): cross-entropy against the negatives (the paper). Ignores the margin."""
    truth = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    return weighted_cross_entropy(scores, truth, label_smoothing, weights)


def linear_margin(scores: Tensor, margin: float, weights: Tensor | None = None) -> Tensor:
    """Mean of max(0, margin - s + s_i): margin ranking (Yang et al. 2015, margin 1), the paper's HolE*."""
    return _mean((margin - scores[:, :1] + scores[:, 1:]).relu(), weights)


def logistic_margin(scores: Tensor, margin: float, weights: Tensor | None = None) -> Tensor:
    """Mean of max(0, margin - sigmoid(s) + sigmoid(s_i)): HolE's pairwise loss (Nickel et al. 2016, margin 0.2)."""
    return linear_margin(scores.sigmoid(), margin, weights)


def logistic(scores: Tensor, margin: float, weights: Tensor | None = None) -> Tensor:
    """(log(1 + exp(-s)) + mean of log(1 + exp(s_i))) / 2: logistic loss (Nickel et al. 2016). Ignores the margin."""
    return (_mean(F.softplus(-scores[:, :1]), weights) + _mean(F.softplus(scores[:, 1:]), weights)) / 2


def _mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of losses (m, n), each row multiplied by its weight (m,)."""
    return losses.mean() if weights is None else (losses * weights[:, None]).mean()


CONTRASTIVE_LOSSES: dict[str, ContrastiveLoss] = {  # by the values of train.loss
    "sampled": sampled_softmax,
    "linear-margin": linear_margin,
    "logistic-margin": logistic_margin,
    "logistic": logistic,
}


def contrastive_loss(scores: Tensor, settings: TrainConfig, weights: Tensor | None = None) -> Tensor:
    """The loss that the settings choose, of scores (m, 1 + n) and weights (m,); only the softmax can smooth its labels."""
    if settings.label_smoothing:
        return sampled_softmax(scores, settings.margin, weights, settings.label_smoothing)
    return CONTRASTIVE_LOSSES[settings.loss](scores, settings.margin, weights)


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


def answer_weights(train: Triples, n_entities: int, share: float) -> Tensor | None:
    """(n_entities,): the weight of each entity as an answer; None where all are equal.

    A `share` of it is the entity's frequency in the training facts, divided by the largest one (Zhang et al. 2020).
    """
    if not share:
        return None
    frequency = torch.bincount(torch.cat([train.head, train.tail]), minlength=n_entities).float()
    return 1 - share + share * frequency / frequency.max()


def query_weights(weights: Tensor, batch: Triples) -> Tensor:
    """(2b,): the weights of the true tails, then heads, with mean one."""
    of_answers = weights[torch.cat([batch.tail, batch.head])]
    return of_answers / of_answers.mean()


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
        scores = F.linear(scorer.entity_rows, self.weight, self.bias)
        return weighted_cross_entropy(scores, types, 0.0, scorer.weights(2))
