"""Learn the symbolic part of a model, after its vectors: path rules from train facts, weights from held-out ones."""

from __future__ import annotations

from collections.abc import Callable

from harmonium.data.graph import Graph
from harmonium.grammar.learn import learn_weights
from harmonium.grammar.parameters import GrammarParameters, build_families
from harmonium.grammar.path_rules import PathRules
from harmonium.model.scoring import Scorer
from harmonium.runtime.distributed import World

MIN_HELD_OUT = 30  # facts: with fewer, weights would be guesses


def learn_constraints(
    vectors: Scorer,
    graph: Graph,
    *,
    seed: int = 0,
    budget: float | None = None,
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> GrammarParameters | None:
    """The constraints of a graph, beside vectors trained on its train facts; None where too few facts are held out.

    `budget` bounds the learning of path rules, in operations. `progress` receives numbers of finished facts, train facts
    first and then each held-out fact twice. The processes of a `world` share the relations and the held-out queries.
    """
    held_out = graph.valid.positive()
    if len(held_out) < MIN_HELD_OUT:
        return None
    train = graph.train
    size = graph.n_entities, graph.n_relations
    rules = PathRules.learn(train, *size, seed=seed, budget=budget, progress=progress, world=world)
    families = build_families(graph, rules, ("train",))
    weights = learn_weights(vectors, families, graph, held_out, ("train", "valid"), progress, world)
    return GrammarParameters(weights, rules)
