"""The candidate "no (further) answer": whether a slot of an entity has an answer that the graph lacks.

Each known fact is hidden once from its own slot: the slot as it then is has a further answer. Each slot as it stands has
none that anybody knows of. A logistic regression tells the two apart by what entities like this one have:

    how many answers of the slot are known (those that are hidden left out), and whether there are any,
    of the entities that share an attribute with it, other than itself: how many have an answer, at most, at least, and on
    average (rare attributes count more), and how many answers they have,

with weights common to all slots, and deviations for each relation and slot. Its log-odds are those of a density: if there
are `m` missing facts for each known one of the relation, an entity lacks m * exp(log_odds) answers on average. Beyond
`FEW` known answers that number grows in proportion to them: an entity with many lacks many.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot
from harmonium.grammar.attributes import Attributes
from harmonium.grammar.family import Array, Ids

ENTITIES = 4000  # from which a relation learns: so many with an answer, and so many without one
COMMON_SLOTS = 60  # slots of relations from which common weights are learned
SHRINK = 2.0  # entities that are assumed to have answers as often as all do
COMMON_PRECISION, PRECISION = 1.0, 10.0  # of the priors of common weights and of deviations, per standardised input
N_INPUTS = 7
FEW = 3  # known answers of a slot
LEAST_SCALE = 0.3  # of an input
MAX_STEPS = 30  # of Newton's method
LARGEST = 30.0  # log-odds
KEPT_SLOTS = 8  # of relations, whose descriptions of entities are kept


class FurtherAnswers:
    """How many answers the slots of entities are likely to lack, learned from the facts of a graph hidden one by one.

    Nothing is learned before it is asked for; a relation takes a pass over the attributes of all entities.
    """

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self._learned = lru_cache(None)(self._learn)
        self._alike = lru_cache(KEPT_SLOTS)(self._describe)

    @classmethod
    def of(cls, graph: Graph, splits: Sequence[str] = SPLITS) -> FurtherAnswers:
        """Learned from the facts of some splits; those of other splits are unknown."""
        return cls(Attributes.of(graph, splits))

    def log_odds(self, slot: Slot, relation: int, given: Ids, n_hidden: int = 0) -> Array:
        """(m,): how likely queries about the known entities `given` have an answer in the open slot that is not known.

        Log of the expected number of unknown answers, if there were one unknown fact for each known one of the relation:
        0 says that the entity is as likely to lack an answer as to have one. Comparable between relations. `n_hidden`
        known answers of each entity are treated as absent.

        >>> no_further_answer = -further.log_odds(Slot.TAIL, born_in, np.array([person]))
        """
        inputs, offset = self._inputs(slot, relation, given, n_hidden)
        weights, base = self._learned(slot, relation)
        log_odds: Array = (inputs @ weights + offset + base).clip(-LARGEST, LARGEST)
        return log_odds

    def no_answer(self, slot: Slot, relation: int, given: Ids, missing: float) -> Array:
        """(m,): P(no further answer), where the relation has `missing` unknown facts for each known one (Poisson)."""
        probability: Array = np.exp(-missing * np.exp(self.log_odds(slot, relation, given)))
        return probability

    def _inputs(self, slot: Slot, relation: int, given: Ids, n_hidden: int = 0) -> tuple[Array, Array]:
        """(m, 7): what the log-odds are computed from, the constant 1 last; (m,): an offset."""
        n_answers = np.maximum(self._n_answers(slot, relation)[given] - n_hidden, 0)
        return _inputs(n_answers, *self._alike(slot, relation)[given].T)

    def _n_answers(self, slot: Slot, relation: int) -> Array:
        """(n_entities,): known answers of each entity."""
        n_answers: Array = np.diff(self.attributes.answers(slot, relation).indptr).astype(np.float64)
        return n_answers

    @cached_property
    def _rarity(self) -> Array:
        """(attributes,): inverse document frequency."""
        frequency = np.maximum(np.diff(self.attributes.transposed.indptr), 1)
        rarity: Array = np.log(1 + self.attributes.n_entities / frequency)
        return rarity

    def _describe(self, slot: Slot, relation: int) -> Array:
        """(n_entities, 4): the highest, lowest and mean log-odds of an answer, and log(1 + answers), of entities alike."""
        facts = self.attributes
        n_answers = self._n_answers(slot, relation)
        has = (n_answers > 0).astype(np.float64)
        step = relation if slot is Slot.TAIL else relation + facts.n_relations
        own = np.append(facts.codes // facts.n_entities == step, np.arange(2 * facts.n_relations) == step)
        size = np.diff(facts.transposed.indptr).astype(np.float64)
        with_answer, answers = facts.transposed @ has, facts.transposed @ n_answers
        base, mean = has.mean(), n_answers.sum() / max(1.0, has.sum())
        entity = np.repeat(np.arange(facts.n_entities), np.diff(facts.matrix.indptr))
        attribute = facts.matrix.indices
        kept = ~own[attribute]
        entity, attribute = entity[kept], attribute[kept]
        others = size[attribute] - 1  # the entity itself is left out
        filled = with_answer[attribute] - has[entity]
        rate = (filled + SHRINK * base) / (others + SHRINK)
        logit = np.log(rate + 1e-4) - np.log(1 - rate + 1e-4)
        count = (answers[attribute] - n_answers[entity] + SHRINK * base * mean) / (others + SHRINK)
        usual = np.log(base + 1e-4) - np.log(1 - base + 1e-4)
        highest, lowest = np.full(facts.n_entities, usual), np.full(facts.n_entities, usual)
        np.maximum.at(highest, entity, logit)
        np.minimum.at(lowest, entity, logit)
        weight = self._rarity[attribute]
        total = np.bincount(entity, weight, facts.n_entities) + 1
        average = (np.bincount(entity, weight * logit, facts.n_entities) + usual) / total
        amount = (np.bincount(entity, weight * np.log1p(count), facts.n_entities) + np.log1p(base * mean)) / total
        return np.stack([highest, lowest, average, amount], axis=1)

    # Learning ---------------------------------------------------------------------------------------------------------

    def _learn(self, slot: Slot, relation: int) -> tuple[Array, float]:
        """The weights of the inputs, and what is added to them: over all entities exp(log-odds) adds up to the facts."""
        examples = self._examples(slot, relation)
        weights = _fit(*examples, self._common, PRECISION) if examples[2].any() else self._common
        inputs, offset = self._inputs(slot, relation, np.arange(self.attributes.n_entities))
        log_odds = inputs @ weights + offset
        n_facts = max(1.0, self._n_answers(slot, relation).sum())
        return weights, float(np.log(n_facts) - log_odds.max() - np.log(np.exp(log_odds - log_odds.max()).sum()))

    @cached_property
    def _common(self) -> Array:
        """The weights learned from slots of several relations together, each relation counting alike."""
        facts = self.attributes
        sizes = np.bincount(facts.relation, minlength=facts.n_relations)
        used = np.argsort(-sizes, kind="stable")[: COMMON_SLOTS // 2]
        parts = [self._examples(slot, int(r)) for r in used if sizes[r] for slot in (Slot.HEAD, Slot.TAIL)]
        if not parts:
            return np.zeros(N_INPUTS)
        inputs, offset, label, weight = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return _fit(inputs, offset, label, weight, np.zeros(inputs.shape[1]), COMMON_PRECISION)

    def _examples(self, slot: Slot, relation: int) -> tuple[Array, Array, Array, Array]:
        """Inputs, offsets, 1 for a slot with a hidden answer, and weights: of slots as they are, and with answers hidden."""
        n_answers, random = self._n_answers(slot, relation), np.random.default_rng(relation)
        entities, share = [], []
        for group in (np.flatnonzero(n_answers > 0), np.flatnonzero(n_answers == 0)):
            drawn = random.choice(group, ENTITIES, replace=False) if len(group) > ENTITIES else group
            entities.append(drawn)
            share.append(np.full(len(drawn), len(group) / max(1, len(drawn))))
        entity, weight = np.concatenate(entities), np.concatenate(share)
        alike, count = self._alike(slot, relation)[entity], n_answers[entity]
        filled = count > 0
        parts = _inputs(count, *alike.T), _inputs(count[filled] - 1, *alike[filled].T)
        inputs, offset = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        n_facts = max(1.0, n_answers.sum())
        weight_of_hidden = weight[filled] * count[filled] * len(n_answers) / n_facts  # both classes weigh the same
        label = np.concatenate([np.zeros(len(entity)), np.ones(len(weight_of_hidden))])
        weights = np.concatenate([weight, weight_of_hidden])
        return inputs, offset, label, weights * len(weights) / weights.sum()


def _inputs(n_answers: Array, highest: Array, lowest: Array, average: Array, amount: Array) -> tuple[Array, Array]:
    few, any_known = np.log1p(np.minimum(n_answers, FEW)), (n_answers > 0).astype(np.float64)
    inputs = np.stack([few, any_known, highest, lowest, average, amount, np.ones_like(few)], axis=1)
    return inputs, np.log1p(n_answers) - few


def _fit(inputs: Array, offset: Array, label: Array, weight: Array, centre: Array, precision: float) -> Array:
    """Logistic regression with a Gaussian prior around `centre`, by Newton's method with halved steps."""
    scale = np.sqrt(np.average(inputs**2, axis=0, weights=weight)).clip(min=LEAST_SCALE)
    prior = precision * scale**2

    def loss(weights: Array) -> float:
        z = inputs @ weights + offset
        return float(weight @ (np.logaddexp(0, z) - label * z) + prior @ (weights - centre) ** 2 / 2)

    weights = centre.copy()
    value = loss(weights)
    for _ in range(MAX_STEPS):
        p = 1 / (1 + np.exp(-(inputs @ weights + offset).clip(-500, 500)))
        slope = inputs.T @ (weight * (p - label)) + prior * (weights - centre)
        curvature = (inputs.T * (weight * p * (1 - p))) @ inputs + np.diag(prior)
        step = np.linalg.solve(curvature, slope)
        size = 1.0
        while (attempt := loss(weights - size * step)) > value and size > 1e-4:
            size /= 2
        if value - attempt < 1e-6 * len(label):
            break
        weights, value = weights - size * step, attempt
    return weights
