"""How much work a training is, in seconds of a nominal machine: counted from sizes, never timed.

A time budget is divided by counted work, so that the same command chooses the same settings whatever else the machine
does. The nominal CPU is two quiet cores; a faster machine is done earlier, a busy one later.
"""

import math
from typing import NamedTuple

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.model.composition import find_composition


class Speed(NamedTuple):
    """What a nominal machine does in a second, and what a step costs beside that."""

    operations: float  # multiplications and additions of a matrix product
    scores: float  # entries of a softmax, forward and backward
    bytes: float
    step_seconds: float


SPEEDS = {"cpu": Speed(240e9, 600e6, 15e9, 1.3e-3), "cuda": Speed(20e12, 40e9, 1e12, 3e-4)}
PASSES = 3  # forward, and backward with respect to both factors
UPDATE_PASSES = 6  # reads and writes of a parameter, its gradient and its optimiser state


def epoch_seconds(config: Config, graph: Graph, device: str) -> float:
    """The nominal seconds of an epoch.

    Each fact asks for its head and for its tail; against all entities on a CPU equal queries count once
    (query_batches.py). A query is compared with all entities or with its negatives: two operations per coordinate and
    pass, and a softmax over the scores. A dense optimiser updates every vector in every step.
    """
    model, train, speed = config.model, config.train, SPEEDS[device]
    facts, steps = len(graph.train), math.ceil(len(graph.train) / train.batch_size)
    queries, composition = 2 * facts, find_composition(model.composition)
    if train.loss == "full" and device == "cpu" and not (train.vector_dropout or train.composed_dropout):
        queries = graph.n_train_queries
    width = composition.dim(model.entity_dim, model.relation_dim or composition.relation_dim(model.entity_dim))
    factors = 1 + (model.rank or width) if model.harmony else 1  # of the products with W
    candidates = graph.n_entities if train.loss == "full" else 1 + train.negatives
    relations = 2 * graph.n_relations if train.relation_prediction else 0
    products = candidates * model.entity_dim * factors + width
    gathered = 0 if train.loss == "full" else 2 * facts * train.negatives * model.entity_dim / train.negative_group_size
    used = 2 * (train.batch_size + train.negatives * math.ceil(train.batch_size / train.negative_group_size))
    updated = graph.n_entities if train.loss == "full" else min(graph.n_entities, used)
    numbers = PASSES * gathered + UPDATE_PASSES * steps * (updated + graph.n_relations) * model.entity_dim
    return (
        2 * PASSES * (queries * products + 2 * facts * relations * width) / speed.operations
        + (queries * candidates + 2 * facts * relations) / speed.scores
        + 4 * numbers / speed.bytes
        + steps * speed.step_seconds
    )


def training_seconds(config: Config, graph: Graph, device: str) -> float:
    """The nominal seconds of all epochs."""
    return config.train.epochs * epoch_seconds(config, graph, device)
