"""Build a model from its settings."""

import torch

from harmonium.config.settings import Config, ModelConfig
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony, Sum
from harmonium.runtime.distributed import World


def build_model(
    config: ModelConfig, n_entities: int, n_relations: int, seed: int | None = 0, world: World | None = None
) -> GradientGraph:
    """The model that the settings describe, initialised (without a seed: not yet); in a world, this process's rows."""
    composition = find_composition(config.composition)
    relation_dim = config.relation_dim or composition.relation_dim(config.entity_dim)
    dim = composition.dim(config.entity_dim, relation_dim)
    form: Harmony | Sum
    if config.harmony:
        form = Harmony(dim, config.faithfulness, config.constraint, config.cap, config.rank, config.dropout)
    else:
        form = Sum(dim, learn_scale=config.initialisation == "calibrated" and config.normalise)
    model = GradientGraph(
        composition, n_entities, n_relations, config.entity_dim, form, relation_dim, config.normalise,
        config.reciprocal, world, getattr(torch, config.entity_dtype),
    )  # fmt: skip
    if seed is None:
        return model
    return model.initialise(config.initialisation, torch.Generator().manual_seed(seed), config.initial_spread)


MODEL_TITLES = {
    "distmult": "DistMult",
    "hole": "HolE",
    "complex": "ComplEx",
    "tensorproduct": "TPR",
    "rescalproduct": "RESCAL",
}


def title(config: Config) -> str:
    """HHolE, HDistMult, ...: the paper's name of a model."""
    name = MODEL_TITLES.get(config.model.composition, config.model.composition)
    return f"H{name}" if config.model.harmony else name
