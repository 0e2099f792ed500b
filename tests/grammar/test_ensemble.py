"""Products of experts, and the runs that may be multiplied."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import harmonium
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.grammar.ensemble import Ensemble
from harmonium.grammar.expert_weights import learn_weights
from harmonium.grammar.path_rules import PathRules
from small import family, make_run, random_model

GRAPH = family()
RUNS = [
    make_run(GRAPH, random_model(GRAPH, "hole", 16)),
    make_run(GRAPH, random_model(GRAPH, "distmult", 10, harmony=False)),
    make_run(GRAPH, random_model(GRAPH, "complex", 8, reciprocal=True, rank=3)),
]
MODELS = [run.model for run in RUNS]


@pytest.mark.parametrize("slot", list(Slot))
def test_a_product_of_experts_adds_their_scores(slot: Slot) -> None:
    with torch.no_grad():
        scores = [model.score_slot(slot, GRAPH.test) for model in MODELS]
        product = Ensemble(MODELS).score_slot(slot, GRAPH.test)
        weighted = Ensemble(MODELS, [1.0, 0.5, 2.0]).score_slot(slot, GRAPH.test)
    torch.testing.assert_close(weighted, scores[0] + 0.5 * scores[1] + 2 * scores[2])
    probability = torch.stack([s.softmax(1) for s in scores]).prod(0)
    torch.testing.assert_close(product.softmax(1), probability / probability.sum(1, keepdim=True))


def test_path_rules_are_one_more_expert() -> None:
    rules = PathRules.learn(GRAPH.train, GRAPH.n_entities, GRAPH.n_relations)
    result = harmonium.evaluate(RUNS[:2], rules=True)
    weights = learn_weights([*MODELS[:2], rules], GRAPH).weights
    assert result.weights == pytest.approx(weights)
    assert result.metrics == evaluate_scorer(Ensemble([*MODELS[:2], rules], weights), GRAPH, result.protocol).metrics
    alone = harmonium.evaluate(RUNS[0], rules=True, weights=np.array([0, 1]))
    assert alone.metrics == evaluate_scorer(rules, GRAPH, alone.protocol).metrics
    assert alone.metrics["mrr"] > harmonium.evaluate(RUNS[0]).metrics["mrr"]  # an untrained model
    with pytest.raises(HarmoniumError, match="2 experts need as many weights, not 1"):
        harmonium.evaluate(RUNS[0], rules=True, weights=[1])
    with pytest.raises(HarmoniumError, match="rank test"):
        harmonium.evaluate(RUNS[0], rules=True, split="valid")


PEOPLE = list(GRAPH.entities.ids)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            replace(GRAPH, entities=Vocabulary([*PEOPLE[:5], "someone", *PEOPLE[6:]], kind="entity")),
            "entity names: number 5 is 'person 5' .* 'someone'",
        ),
        (
            replace(GRAPH, relations=Vocabulary(GRAPH.relations.ids[:2], kind="relation")),
            r"relation names: number 2 is 'twin' .* '\(none\)'",
        ),
        (replace(GRAPH, train=Triples.cat([GRAPH.train, GRAPH.test])), r"train triples \(100 and 110\)"),
    ],
)
def test_experts_of_other_graphs_are_refused(other: Graph, message: str) -> None:
    with pytest.raises(HarmoniumError, match=f"the first run and another have different {message}"):
        harmonium.evaluate([RUNS[0], replace(RUNS[1], graph=other)])


@pytest.mark.parametrize("weights", [[math.nan, 1.0], [1.0, math.inf], ["a", 1.0], [None, 1.0]])
def test_weights_that_are_no_finite_numbers_are_refused(weights: list[Any]) -> None:
    with pytest.raises(HarmoniumError, match="weight of an expert is a finite number"):
        Ensemble(MODELS[:2], weights)
