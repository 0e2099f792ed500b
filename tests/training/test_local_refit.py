from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harmonium.config.settings import Config, ModelConfig, TrainConfig
from harmonium.data.graph import Graph
from harmonium.data.graph_changes import GraphChange, change_graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.composition import Composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training.fit import fit
from harmonium.training.refit.extended_model import extend_model
from harmonium.training.refit.local_refit import refit
from small import family, make_graph

SETTINGS = [
    "model.composition=complex",
    "model.entity_dim=16",
    "train.epochs=60",
    "train.batch_size=32",
    "train.device=cpu",
]
KINDS = {
    "n3": "model.harmony=false model.normalise=false model.reciprocal=true model.initial_spread=0.01 train.loss=full"
    " train.optimiser=adagrad train.learning_rate=0.1 train.n3=0.01",
    "harmony": "model.rank=2 train.learning_rate=0.05 train.negatives=16",
    "margin": "model.harmony=false train.loss=linear-margin train.learning_rate=0.05 train.negatives=16",
}


def with_facts(graph: Graph, facts: Triples) -> Graph:
    """These facts by name, as from a file."""
    entities, relations = (Vocabulary(v.ids, None, v.kind) for v in (graph.entities, graph.relations))
    return Graph(entities, relations, facts, facts[:0], facts[:0])


def config_of(kind: str) -> Config:
    return Config.read(None, [*SETTINGS, *KINDS[kind].split()])


def trained(graph: Graph, config: Config) -> GradientGraph:
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=0)
    fit(model, graph, config)
    return model.eval()


def mrr(model: GradientGraph, graph: Graph, facts: Triples) -> float:
    return evaluate_scorer(model, graph, triples=facts).metrics["mrr"]


def whole_graph() -> Graph:
    graph = family(40)
    return replace(graph, train=graph.facts(), valid=graph.valid[:0], test=graph.valid[:0])


def check_frozen(before: GradientGraph, after: GradientGraph, change: GraphChange, entities: torch.Tensor) -> None:
    """Everything but the rows that moved is the same, bit for bit."""
    fixed = torch.ones(len(before.entity), dtype=torch.bool)
    fixed[entities[entities < len(fixed)]] = False
    assert torch.equal(after.entity[: len(fixed)][fixed], before.entity[fixed])
    assert torch.equal(after.relation[: before.n_relations], before.relation[: before.n_relations])
    for name, value in before.form.state_dict().items():
        assert torch.equal(after.form.state_dict()[name], value)
    ends = torch.cat([change.added.head, change.added.tail, change.removed.head, change.removed.tail])
    assert set(entities.tolist()) == set(ends.tolist())


@pytest.mark.parametrize("kind", list(KINDS))
def test_added_facts_are_learned_and_nothing_else_moves(kind: str) -> None:
    graph, config = make_graph(40, sizes=(150, 0, 0)), config_of(kind)
    changed = torch.arange(len(graph.train)) % 12 == 0
    fewer = replace(graph, train=graph.train[~changed])
    model = trained(fewer, config)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    change = change_graph(fewer, with_facts(graph, graph.train[changed]), None)
    refitted = refit(model, change, config.train)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    check_frozen(model, refitted.model, change, refitted.entities)
    facts = change.added
    before, after = mrr(model, change.graph, facts), mrr(refitted.model, change.graph, facts)
    assert after > max(0.5, before + 0.2)
    assert mrr(refitted.model, change.graph, fewer.train) > mrr(model, change.graph, fewer.train) - 0.1
    again = refit(model, change, config.train)
    assert torch.equal(again.model.entity, refitted.model.entity)
    assert all(parameter.requires_grad for parameter in refitted.model.parameters())


def test_other_facts_of_moved_entities_keep_their_ranks() -> None:
    graph, config = family(40), config_of("n3")
    changed = torch.arange(len(graph.train)) % 20 == 0
    fewer = replace(graph, train=graph.train[~changed])
    model = trained(fewer, config)
    change = change_graph(fewer, with_facts(graph, graph.train[changed]), None)
    refitted = refit(model, change, config.train)
    for facts in (fewer.train, graph.valid):
        others = facts[torch.isin(facts.head, refitted.entities) | torch.isin(facts.tail, refitted.entities)]
        assert mrr(refitted.model, change.graph, others) > mrr(model, change.graph, others) - 0.02


def test_five_updates_in_a_row_do_not_wear_a_model_out() -> None:
    graph, config = family(40), config_of("n3")
    parts = torch.arange(len(graph.train)) % 30
    current = replace(graph, train=graph.train[parts >= 5])
    model = trained(current, config)
    began = mrr(model, current, current.train)
    for part in range(5):
        change = change_graph(current, with_facts(graph, graph.train[parts == part]), None)
        model, current = refit(model, change, config.train).model, change.graph
    assert mrr(model, current, current.train) > began - 0.05


def test_removed_facts_are_forgotten() -> None:
    graph, config = family(40), config_of("n3")
    model = trained(graph, config)
    facts = graph.train[::20]
    change = change_graph(graph, None, with_facts(graph, facts))
    refitted = refit(model, change, config.train)
    check_frozen(model, refitted.model, change, refitted.entities)
    assert mrr(refitted.model, change.graph, facts) < 0.7 * mrr(model, change.graph, facts)
    assert mrr(refitted.model, change.graph, change.graph.train) > mrr(model, change.graph, change.graph.train) - 0.1


@pytest.mark.parametrize("kind", ["n3", "harmony"])
def test_new_entities_and_relations_answer_their_facts(kind: str) -> None:
    graph, config = whole_graph(), config_of(kind)
    is_new = (graph.train.head >= 38) | (graph.train.tail >= 38) | (graph.train.relation == 2)
    names = Vocabulary(graph.entities.ids[:38]), Vocabulary(graph.relations.ids[:2], kind="relation")
    fewer = replace(graph, entities=names[0], relations=names[1], train=graph.train[~is_new])
    model = trained(fewer, config)
    change = change_graph(fewer, with_facts(graph, graph.train[is_new]), None)
    refitted = refit(model, change, config.train)
    assert sorted(change.new_entities) == ["person 38", "person 39"] and change.new_relations == ["twin"]
    assert refitted.model.entity.shape[0] == 40 and refitted.relations.tolist() == [2]
    assert refitted.model.relation.shape[0] == (6 if model.reciprocal else 3)
    halves = [table.split(count) for table, count in ((model.relation, 2), (refitted.model.relation, 3))]
    assert all(torch.equal(new[:2], old) for old, new in zip(*halves, strict=True))
    about = change.added[change.has_new(change.added)]
    started = mrr(extend_model(model, change), change.graph, about)
    assert mrr(refitted.model, change.graph, about) > max(0.3, started)


@pytest.mark.parametrize("composition", sorted(Composition.registry))
def test_every_composition_can_be_refitted(composition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harmonium.training.refit.local_refit.REFIT_STEPS", 5)
    graph = make_graph()
    config = ModelConfig(composition, 4, reciprocal=composition == "distmult")
    model = build_model(config, graph.n_entities, graph.n_relations, seed=0)
    given = Graph(
        Vocabulary(["e0", "new"]), Vocabulary(["r0", "kind"]), *(Triples.from_rows([[0, 0, 1], [1, 1, 0]]),) * 3
    )
    change = change_graph(graph, replace(given, valid=given.train[:0], test=given.train[:0]), None)
    refitted = refit(model, change, TrainConfig(device="cpu"))
    assert refitted.model.score_slot(Slot.TAIL, change.added).isfinite().all()
    assert refitted.model.n_entities == 13 and refitted.model.n_relations == 4


def test_a_change_of_false_facts_alone_moves_nothing() -> None:
    graph = make_graph()
    model = build_model(ModelConfig("complex", 4), 12, 3, seed=0)
    others = make_graph(seed=5).train
    unknown = others[~graph.known_answers(Slot.TAIL).contain(others)]
    change = change_graph(graph, None, with_facts(graph, unknown))
    refitted = refit(model, change, TrainConfig(device="cpu"))
    assert len(change.graph.rejected) == len(unknown) > 0
    assert not len(refitted.entities) and torch.equal(refitted.model.entity, model.entity)
