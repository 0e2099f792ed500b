"""Experts that are ranked together: models of several runs, and path rules learned from the facts of their graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from harmonium.data.graph import Graph
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.grammar.ensemble import Ensemble
from harmonium.grammar.expert_weights import learn_weights
from harmonium.grammar.path_rules import PathRules
from harmonium.model.scoring import Scorer


def combine_experts(
    models: Sequence[Scorer],
    graph: Graph,
    weights: Sequence[float] | str = "equal",
    rules: bool = False,
    split: str = "test",
) -> Ensemble:
    """A weighted product of models. Weights are numbers, "equal" (all 1) or "learned" on the validation facts of the graph.

    With `rules`, path rules learned from the training facts are one more expert, the last one. Weights are then learned
    unless they are given as numbers. With learned weights the validation split cannot be evaluated.
    """
    if isinstance(weights, str) and weights not in ("equal", "learned"):
        raise HarmoniumError(f"weights must be equal, learned or one number per run, not '{weights}'")
    is_learned = isinstance(weights, str) and (weights == "learned" or rules) and len(models) + rules > 1
    if is_learned and split == "valid":
        raise HarmoniumError(
            "weights were learned on the validation facts, so metrics there would be too good; rank test"
        )
    if not (isinstance(weights, str) and weights == "equal") and len(models) + rules == 1:
        raise HarmoniumError("weights are for several runs, or a run and path rules (rules=True); one run needs none")
    experts = list(models)
    if rules:
        experts.append(PathRules.learn(graph.train, graph.n_entities, graph.n_relations))
    if is_learned:
        return Ensemble(experts, learn_weights(experts, graph).weights)
    return Ensemble(experts, None if isinstance(weights, str) else weights)


def check_same_facts(first: Graph, other: Graph, pair: str) -> None:
    """Refuse to rank models of two graphs together unless both have the same names and the same facts."""
    _check_same_names(first.entities, other.entities, pair)
    _check_same_names(first.relations, other.relations, pair)
    for split, facts in other.splits.items():
        if not first.splits[split].to_rows().equal(facts.to_rows()):
            raise HarmoniumError(
                f"{pair} have different {split} triples ({len(first.splits[split]):,} and {len(facts):,}): one may be "
                "tested on what the other was trained on. Train both on the same graph"
            )


def _check_same_names(first: Vocabulary, second: Vocabulary, pair: str) -> None:
    for number, (one, other) in enumerate(zip_longest(first.ids, second.ids, fillvalue="(none)")):
        if one != other:
            raise HarmoniumError(
                f"{pair} have different {first.kind} names: number {number} is '{one}' in one and '{other}' in the other. "
                "Train both on the same graph"
            )
