"""Learned weights of a product of experts: against the likelihood written out, and on models of which one is noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

import harmonium
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.grammar import expert_weights
from harmonium.grammar.ensemble import Ensemble
from harmonium.grammar.expert_weights import learn_weights
from harmonium.model.scoring import Scorer
from small import PlainScorer, TableScorer, make_graph, make_run, random_model

GRAPH = make_graph(n_entities=30, n_relations=2, sizes=(200, 150, 150))


@dataclass
class Scaled(PlainScorer):
    """Another scale and, for each query, another offset: neither changes what an expert says."""

    scorer: Scorer
    scale: float

    def all_scores(self, slot: Slot, queries: Triples) -> Tensor:
        return self.scale * self.scorer.score_slot(slot, queries) + 1000 * queries.relation[:, None]


def noisy(graph: Graph, signal: float, seed: int) -> TableScorer:
    """Normal scores, raised by `signal` for facts of the graph."""
    shape = (graph.n_relations, graph.n_entities, graph.n_entities)
    heads, tails = (torch.randn(shape, generator=torch.Generator().manual_seed(seed + side)) for side in (0, 1000))
    facts = graph.facts()
    heads[facts.relation, facts.tail, facts.head] += signal
    tails[facts.relation, facts.head, facts.tail] += signal
    return TableScorer(heads, tails)


def log_likelihood(experts: list[Scorer], weights: np.ndarray, graph: Graph) -> float:
    """Mean over validation facts and sides of log p(truth); answers known in train or validation do not compete."""
    known = {tuple(row) for split in ("train", "valid") for row in graph.splits[split].to_rows().tolist()}
    total, count = 0.0, 0
    for head, relation, tail in graph.valid.to_rows().tolist():
        for slot, truth in ((Slot.HEAD, head), (Slot.TAIL, tail)):
            query = Triples.from_rows([[head, relation, tail]])
            scores = [expert.score_slot(slot, query)[0].double().tolist() for expert in experts]
            sums = []
            for candidate in range(graph.n_entities):
                fact = (candidate, relation, tail) if slot is Slot.HEAD else (head, relation, candidate)
                if candidate == truth or fact not in known:
                    sums.append(sum(w * (s[candidate] - s[truth]) for w, s in zip(weights, scores, strict=True)))
            total -= math.log(sum(math.exp(value) for value in sums))
            count += 1
    return total / count


def spread_of_scores(expert: Scorer, graph: Graph) -> float:
    """The standard deviation over candidates, a mean over queries."""
    spreads = [expert.score_slot(slot, graph.valid).std(dim=1) for slot in (Slot.HEAD, Slot.TAIL)]
    return torch.cat(spreads).mean().item()


def test_learned_weights_maximise_the_likelihood_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_weights, "SCORES_PER_CHUNK", 700)  # several chunks of queries
    graph = make_graph(n_entities=12, n_relations=2, sizes=(60, 25, 5))
    experts = [noisy(graph, 1.0, 0), Scaled(noisy(graph, 1.5, 1), 0.1), noisy(graph, 0.8, 2)]
    learned = learn_weights(experts, graph)
    assert learned.log_likelihood == pytest.approx(log_likelihood(experts, np.array(learned.weights), graph), abs=1e-4)
    assert learned.equal_log_likelihood == pytest.approx(log_likelihood(experts, np.ones(3), graph), abs=1e-4)
    scale = np.array([1, 10, 1])
    spread = np.array([spread_of_scores(expert, graph) for expert in experts])

    def cost(scaled: np.ndarray) -> float:
        prior = ((spread * scaled * scale) ** 2).sum() / 2  # a standard normal, beside fifty queries
        return float(prior / 50 - log_likelihood(experts, scaled * scale, graph))

    best = minimize(cost, np.ones(3), bounds=[(0, None)] * 3)
    assert all(weight > 0 for weight in learned.weights)
    assert np.array(learned.weights) / scale == pytest.approx(best.x, rel=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_noise_gets_no_weight_and_ranks_stay_those_of_the_better_model(seed: int) -> None:
    experts = [noisy(GRAPH, 2.0, 2 * seed), noisy(GRAPH, 0.0, 2 * seed + 1)]
    weights = learn_weights(experts, GRAPH).weights
    assert weights[0] > 0.5
    assert weights[1] == 0
    alone, learned, equal = (
        evaluate_scorer(scorer, GRAPH).metrics["mrr"]
        for scorer in (experts[0], Ensemble(experts, weights), Ensemble(experts))
    )
    assert equal < alone <= learned


def test_test_facts_play_no_part() -> None:
    experts = [noisy(GRAPH, 1.0, 0), noisy(GRAPH, 1.0, 1)]
    assert learn_weights(experts, GRAPH) == learn_weights(experts, replace(GRAPH, test=GRAPH.test[:3]))


def test_experts_that_are_never_wrong_have_finite_weights() -> None:
    graph = replace(GRAPH, test=Triples.from_rows([]))  # whose facts would compete
    learned = learn_weights([noisy(graph, 100.0, 0), noisy(graph, 100.0, 1)], graph)
    assert all(math.isfinite(weight) for weight in learned.weights)
    assert learned.log_likelihood > -0.01


def test_runs_are_ranked_with_learned_weights() -> None:
    runs = [make_run(GRAPH, random_model(GRAPH, "hole", 16)), make_run(GRAPH, random_model(GRAPH, "complex", 8))]
    evaluation = harmonium.evaluate(runs, weights="learned")
    weights = learn_weights([run.model for run in runs], GRAPH).weights
    assert evaluation.weights == weights
    assert evaluation.metrics == harmonium.evaluate(runs, weights=weights).metrics
    with pytest.raises(HarmoniumError, match="weights were learned on the validation facts"):
        harmonium.evaluate(runs, weights="learned", split="valid")
    bare = replace(GRAPH, valid=Triples.from_rows([]))
    with pytest.raises(HarmoniumError, match="learned weights need validation facts"):
        harmonium.evaluate([replace(run, graph=bare) for run in runs], weights="learned")
    with pytest.raises(HarmoniumError, match="not 'best'"):
        harmonium.evaluate(runs, weights="best")
