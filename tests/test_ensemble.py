from __future__ import annotations

import dataclasses

import pytest
import torch

import harmonium
from harmonium.ensemble import Ensemble, product_of_experts
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate, rank
from harmonium.graph import Graph, Slot, Triples, Vocabulary
from harmonium.prediction import answer, ask
from harmonium.run import Run
from small import family

KINDS = [
    "model.composition=hole model.entity_dim=16",
    "model.composition=distmult model.entity_dim=10 model.harmony=false",
    "model.composition=complex model.entity_dim=8 model.reciprocal=true model.rank=3",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder, graph = tmp_path_factory.mktemp("runs"), family()
    more = ["train.epochs=8", "train.learning_rate=0.03", "train.batch_size=32"]
    return [
        harmonium.train(data=graph, sets=[*kind.split(), *more], out=folder / str(i)) for i, kind in enumerate(KINDS)
    ]


@pytest.mark.parametrize("slot", list(Slot))
def test_a_product_of_experts_adds_their_scores(runs: list[Run], slot: Slot) -> None:
    queries, weights = runs[0].graph.test, [1.0, 0.5, 2.0]
    with torch.no_grad():
        scores = [run.model.score_slot(slot, queries) for run in runs]
        found = product_of_experts(runs, weights).score_slot(slot, queries)
        torch.testing.assert_close(found, scores[0] + 0.5 * scores[1] + 2 * scores[2])
        torch.testing.assert_close(product_of_experts(runs).score_slot(slot, queries), sum(scores))
        probability = torch.stack([s.softmax(1) for s in scores]).prod(0)  # a product of experts, by its name
        torch.testing.assert_close(sum(scores).softmax(1), probability / probability.sum(1, keepdim=True))


@pytest.mark.parametrize("slot", list(Slot))
def test_one_expert_alone_or_twice_ranks_as_itself(runs: list[Run], slot: Slot) -> None:
    for run in runs:
        alone = rank(run.model, run.graph.test, slot)
        for several in ([run.model], [run.model] * 2):
            assert rank(Ensemble(several), run.graph.test, slot).values().equal(alone.values())


def test_several_runs_are_evaluated_under_every_protocol(runs: list[Run]) -> None:
    together = product_of_experts(runs)
    for protocol in (
        {},
        {"candidates": "typed-train", "ties": "pessimistic", "unseen": "drop"},
        {"candidates": "typed-all", "side": "head", "split": "valid"},
        {"filtered": False, "side": "tail", "ties": "optimistic"},
    ):
        found = harmonium.evaluate([run.path for run in runs], **protocol)
        assert found.metrics == harmonium.evaluate(runs, chunk=3, **protocol).metrics
        assert found.metrics == evaluate(together, runs[0].graph, found.protocol).metrics
    assert harmonium.evaluate(runs[:2], weights=[1, 0]).metrics == harmonium.evaluate(runs[0]).metrics
    assert harmonium.evaluate(runs[:1]).metrics == harmonium.evaluate(runs[0]).metrics


def test_an_ensemble_answers_by_name(runs: list[Run]) -> None:
    query = ask(runs[0].graph, head="person 3", relation="next")
    assert len(answer(product_of_experts(runs), runs[0].graph, query, top=4)) == 4


def other(run: Run, **changes: object) -> Run:
    graph: Graph = dataclasses.replace(run.graph, **changes)
    return dataclasses.replace(run, graph=graph)


def test_experts_of_other_graphs_are_refused(runs: list[Run]) -> None:
    graph, path = runs[0].graph, runs[0].path
    people = list(graph.entities.ids)
    renamed = other(runs[1], entities=Vocabulary([*people[:5], "someone", *people[6:]], kind="entity"))
    fewer = other(runs[1], relations=Vocabulary(graph.relations.ids[:2], kind="relation"))
    leaking = other(runs[1], train=Triples.cat([graph.train, graph.test]))
    cases = [
        (renamed, "have other entity names: number 5 is 'person 5' in one and 'someone' in the other. Train both on"),
        (fewer, "have other relation names: number 2 is 'twin' in one and '(none)' in the other"),
        (leaking, "have other train triples (100 and 110): what one was trained on the other may be tested on"),
    ]
    for run, message in cases:
        with pytest.raises(HarmoniumError) as caught:
            product_of_experts([runs[0], run])
        assert str(caught.value).startswith(f"{path} and {run.path} {message}")
    with pytest.raises(HarmoniumError, match="3 experts need as many weights, not 2"):
        product_of_experts(runs, [1, 2])
    with pytest.raises(HarmoniumError, match="a product of experts needs at least one run"):
        harmonium.evaluate([])
