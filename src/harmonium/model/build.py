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
    """Build the model that the settings describe, initialised by `seed` (None: not yet). In a world, only local rows."""
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
    """The name of a model in the paper: HHolE, HDistMult, ..."""
    name = MODEL_TITLES.get(config.model.composition, config.model.composition)
    return f"H{name}" if config.model.harmony else name
