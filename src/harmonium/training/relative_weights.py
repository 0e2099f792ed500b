"""Weights of facts in training: how much a fact counts relative to the others.

A weight w multiplies all that a fact contributes to the loss: its queries for head, tail and relation, and its share of
the regularisers. w is any number >= 0. A confidence between 0 and 1 makes the loss the expectation over which facts
are true; 2 equals giving the fact twice, 0 leaving it out. The weights are divided by their mean, so that only their ratios
matter: the loss is the weighted mean over facts, and learning rate and regularisers keep their meaning.

If facts of low weight are wrong more often than their weights say, `train.weight_power` 2 (squared weights) reduces their
influence (docs/decisions/017-weights-multiply-the-loss.md).
"""

from dataclasses import replace

from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError


def relative_weights(train: Triples, power: float = 1.0) -> Triples:
    """The facts of positive weight, with weights raised to `power` and divided by their mean; none if all are equal."""
    train = train.positive()
    if train.weight is not None and not len(train):
        raise HarmoniumError("all training facts have the weight 0, so that nothing can be learned; check the weights")
    return normalised(train, power)


def normalised(train: Triples, power: float = 1.0) -> Triples:
    """All facts, with weights raised to `power` and divided by their mean; no weights if all are equal."""
    weight = train.weight
    if weight is None or power == 0 or (weight == weight[0]).all():
        return replace(train, weight=None)
    weight = (weight / weight.max()).pow(power)  # otherwise their sum could overflow
    return replace(train, weight=weight / weight.mean())
