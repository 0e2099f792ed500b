"""Batches of whole queries: an epoch holds every answer once, and the loss of facts is that of their answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import Config
from harmonium.data.triples import Triples
from harmonium.kernels import dispatch
from harmonium.model.build import build_model
from harmonium.training.query_batches import QueryBatches
from harmonium.training.step import TrainingStep
from small import make_graph

GRAPH = make_graph(n_entities=9, n_relations=2, sizes=(60, 0, 0))


def settings(*more: str) -> Config:
    return Config.read(None, ["model.entity_dim=6", "train.loss=full", "train.batch_size=8", *more])


def loss_and_gradients(step: TrainingStep, index: Tensor) -> list[Tensor]:
    loss = step.loss(step.draw_sample(index))
    return [loss, *torch.autograd.grad(loss, [p for p in step.model.parameters() if p.requires_grad])]


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "terms", ["", "n3=.1 label_smoothing=.2", "dura=.1 frequency_weight=.5 relation_prediction=.7"]
)
@pytest.mark.parametrize("model_settings", ["reciprocal=true harmony=false", "reciprocal=false rank=2", "rank=6"])
def test_the_loss_of_all_facts_is_that_of_all_answers(model_settings, terms, weighted, backend, monkeypatch) -> None:
    more = [f"model.{setting}" for setting in model_settings.split()] + [f"train.{term}" for term in terms.split()]
    config = settings("model.composition=complex", "model.normalise=false", *more)
    model = build_model(config.model, GRAPH.n_entities, GRAPH.n_relations, 0).double()
    weight = torch.rand(len(GRAPH.train), dtype=torch.float64) if weighted else None
    train, measured = replace(GRAPH.train, weight=weight), []
    for shares in (True, False):
        monkeypatch.setattr("harmonium.training.step.shares_queries", lambda *_: shares)  # noqa: B023
        step = TrainingStep(model, train, config.train, torch.Generator())
        if step.answer_weights is not None:
            step.answer_weights = step.answer_weights.double()
        with dispatch.use(backend):
            measured.append(loss_and_gradients(step, torch.cat(list(step.epoch_batches(torch.Generator())))))
    torch.testing.assert_close(*measured, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reciprocal", [False, True])
def test_an_epoch_gives_every_answer_once_and_batches_hold_whole_queries(reciprocal: bool) -> None:
    batches = QueryBatches(GRAPH.train, GRAPH.n_relations, reciprocal)
    order = batches.order(torch.Generator().manual_seed(1))
    assert order.sort().values.equal(torch.arange(2 * len(GRAPH.train)))
    answered, asked = set(), 0
    for index in order.split(16):
        facts, queries = batches.batch(index)
        asked += len(queries.first)
        for number, (head, relation, tail) in enumerate(facts.to_rows().tolist()):
            known, answer = (head, tail) if number < queries.tails else (tail, head)
            first = facts.to_rows()[queries.first[queries.of_fact[number]]].tolist()
            assert (known, relation) == (first[0] if number < queries.tails else first[2], first[1])
            is_head = number >= queries.tails or relation >= GRAPH.n_relations
            answered.add((known, relation % GRAPH.n_relations, answer, is_head))
    rows = GRAPH.train.to_rows().tolist()
    assert answered == {(h, r, t, False) for h, r, t in rows} | {(t, r, h, True) for h, r, t in rows}
    assert asked <= batches.n_queries + len(order.split(16)) - 1  # only a query at the end of a batch is cut


def test_facts_that_answer_one_query_share_it() -> None:
    facts = Triples.from_rows([(0, 0, 1), (0, 0, 2), (3, 0, 2)])
    batches = QueryBatches(facts, 1, reciprocal=False)
    assert batches.n_answers == 6
    assert batches.n_queries == 4  # (0, 0, ?) and (?, 0, 2) have two answers each
