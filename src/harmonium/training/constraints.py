"""Learn the symbolic part of a model, after its vectors: path rules from train facts, weights from held-out ones."""

from __future__ import annotations

from harmonium.data.graph import Graph
from harmonium.grammar.known_facts import KnownFacts
from harmonium.grammar.learn import MAX_FACTS, learn_weights
from harmonium.grammar.parameters import GrammarParameters, build_families
from harmonium.grammar.path_rules import PathRules
from harmonium.model.scoring import Scorer
from harmonium.runtime.distributed import World
from harmonium.training.notebook_progress import OnProgress, stage_counter

MIN_HELD_OUT = 30  # facts: with fewer, weights would be guesses
REACHED_A_SECOND = 1e7  # entities that a rule reaches from a fact, walked and learned from, on a nominal CPU


def learn_constraints(
    vectors: Scorer,
    graph: Graph,
    *,
    seed: int = 0,
    seconds: float | None = None,
    report: OnProgress | None = None,
    world: World | None = None,
) -> GrammarParameters | None:
    """The constraints of a graph, beside vectors trained on its train facts; None if too few facts are held out.

    `seconds` bounds the learning of path rules, in counted work of a nominal CPU, so that machines learn the same rules.
    `report` receives the progress of two stages. The processes of a `world` share the relations and the held-out queries.
    """
    held_out = graph.valid.positive()
    if len(held_out) < MIN_HELD_OUT:
        return None
    train = graph.train
    rules = PathRules.learn(
        train,
        graph.n_entities,
        graph.n_relations,
        seed=seed,
        budget=None if seconds is None else seconds * REACHED_A_SECOND,
        progress=stage_counter(report, "learning path rules", len(train.positive()), "facts"),
        world=world,
    )
    families = build_families(KnownFacts(graph, rules, ("train",)))
    n_queries = 2 * min(len(held_out), MAX_FACTS)
    weighing = stage_counter(report, "weighing constraints", n_queries, "held-out queries")
    weights = learn_weights(vectors, families, graph, held_out, ("train", "valid"), weighing, world)
    return GrammarParameters(weights, rules)
