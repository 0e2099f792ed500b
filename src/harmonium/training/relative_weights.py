"""What the weights of facts mean in training: how often a fact counts, compared with the others.

A weight w multiplies everything that a fact adds to the loss: its queries for head, tail and relation, and its share of
the regularisers. w is any number from 0 on. A confidence between 0 and 1 makes the loss the expectation over which facts
are true; 2 is the fact given twice, 0 the fact left out. The weights are divided by their mean, so that only their ratios
matter: the loss is the weighted mean over facts, and learning rate and regularisers keep their meaning.

Where facts of low weight are wrong more often than their weights say, `train.weight_power` 2 (weights squared) makes them
count for less (docs/decisions/017-weights-multiply-the-loss.md).
"""

from dataclasses import replace

from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError


def relative_weights(train: Triples, power: float = 1.0) -> Triples:
    """The facts of positive weight, with powers of their weights of mean 1; without any where all weigh the same."""
    train = train.positive()
    if train.weight is not None and not len(train):
        raise HarmoniumError("all training facts have the weight 0, so that nothing can be learned; check the weights")
    return normalised(train, power)


def normalised(train: Triples, power: float = 1.0) -> Triples:
    """All facts, with powers of their weights of mean 1; without weights where all weigh the same."""
    weight = train.weight
    if weight is None or power == 0 or (weight == weight[0]).all():
        return replace(train, weight=None)
    weight = (weight / weight.max()).pow(power)  # their sum may be too large for a number
    return replace(train, weight=weight / weight.mean())
