from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.answers import fold_in
from harmonium.answers.fold_in import add_entities, extend, n_steps, start_vectors
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import History, Run
from harmonium.runtime.config import Config
from harmonium.runtime.errors import HarmoniumError
from small import family, make_graph

FAST = ["model.composition=complex", "model.entity_dim=16", "train.epochs=60", "train.learning_rate=0.05"]
FAST += ["train.batch_size=32", "train.negatives=16", "train.device=cpu"]
KINDS = {"plain": ["model.harmony=false"], "harmony": ["model.rank=2"], "reciprocal": ["model.reciprocal=true"]}
KINDS["n3"] = ["model.harmony=false", "model.normalise=false", "train.n3=0.001", "train.loss=full"]


def facts_of(*rows: tuple[str, str, str], labels: dict[str, str] | None = None) -> Graph:
    entities = list(dict.fromkeys(name for head, _, tail in rows for name in (head, tail)))
    relations = list(dict.fromkeys(row[1] for row in rows))
    ids = [[entities.index(h), relations.index(r), entities.index(t)] for h, r, t in rows]
    names = [labels.get(text, text) for text in entities] if labels else None
    train = Triples.from_rows(ids)
    return Graph(Vocabulary(entities, names), Vocabulary(relations, kind="relation"), train, train[:0], train[:0])


def run_without_two_people(kind: str) -> tuple[Run, Graph, Graph]:
    """A run on a ring in which two people are missing, facts about them, and the rest of what is true of them."""
    whole = family(40)
    facts = whole.facts()
    about = (facts.head >= 38) | (facts.tail >= 38)
    people, none = Vocabulary(whole.entities.ids[:38]), facts[:0]
    fewer = replace(whole, entities=people, train=facts[~about], valid=none, test=none)
    names = whole.names_of(facts[about])
    held = [("person 38", "next", "person 39"), ("person 38", "before", "person 37"), ("person 39", "next", "person 0")]
    run = harmonium.train(fewer, "paper", overrides=[*FAST, *KINDS[kind]])
    return run, facts_of(*(n for n in names if n not in held)), facts_of(*held)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_new_entities_answer_what_was_not_given(kind: str) -> None:
    run, given, held = run_without_two_people(kind)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    extended, added = harmonium.add(run, given)
    assert sorted(added.names) == ["person 38", "person 39"]
    for name, value in extended.model.state_dict().items():
        assert torch.equal(value[: len(before[name])] if value.dim() else value, before[name])
        assert torch.equal(run.model.state_dict()[name], before[name])
    assert extended.model.entity.shape[0] == extended.graph.n_entities == 40
    trainable = [[p.requires_grad for p in each.model.parameters()] for each in (run, extended)]
    assert trainable[0] == trainable[1]

    rows = Triples.cat([extended.graph.triple(*names) for names in held.names_of(held.train)])
    with torch.no_grad():
        guess = with_rows(extended, start_vectors(run.model, added))
        solved, started = (
            m.scorer().for_batch(added.facts).entity_cross_entropy().item() for m in (extended.model, guess)
        )
    assert solved < 0.7 * started
    ranks = evaluate_scorer(extended.model, extended.graph, triples=rows).ranks.values()
    assert ranks.mean() < 10  # 20 is chance
    again = harmonium.add(run, given)[0]
    assert torch.equal(again.model.entity, extended.model.entity)


@pytest.mark.parametrize("kind", ["harmony", "reciprocal"])
def test_new_entities_learn_where_they_do_not_belong(kind: str) -> None:
    """One fact says nothing of that; without known facts to meet, they take over 1.2 % of the chance of known answers."""
    run, _, _ = run_without_two_people(kind)
    extended, added = harmonium.add(run, facts_of(("Zoe", "next", "person 3")))
    for slot in (Slot.HEAD, Slot.TAIL):
        chance = extended.model.score_slot(slot, run.graph.train).softmax(-1)
        assert chance[:, added.first :].sum(1).mean() < 0.01


def with_rows(run: Run, rows: torch.Tensor) -> GradientGraph:
    model = build_model(run.config.model, run.graph.n_entities, run.graph.n_relations)
    state = run.model.state_dict()
    model.load_state_dict(state | {"entity": torch.cat([state["entity"][: -len(rows)], rows])})
    return model


def test_it_starts_where_its_like_are(graph: Graph) -> None:
    model = build_model(Config().model, 12, 3)
    added = extend(graph, facts_of(("new", "r1", "e3"), ("e4", "r2", "new")))
    vectors, train = model.entities(), graph.train
    expected = vectors[train.head[train.relation == 1]].mean(0) + vectors[train.tail[train.relation == 2]].mean(0)
    torch.testing.assert_close(start_vectors(model, added)[0], expected / expected.norm())


def test_an_extended_graph_keeps_every_id(graph: Graph) -> None:
    known = graph.names_of(graph.train)[0]
    fresh = next(f for f in ((f"e{i}", "r0", "e0") for i in range(12)) if f not in graph.names_of(graph.facts()))
    given = facts_of(("new", "r1", "e3"), ("newer", "r2", "new"), known, fresh)
    added = extend(graph, given)
    assert list(added.graph.entities.ids) == [*graph.entities.ids, "new", "newer"]
    assert added.first == 12
    assert added.facts.to_rows().tolist() == [[12, 1, 3], [13, 2, 12]]
    assert torch.equal(added.graph.train.to_rows()[:40], graph.train.to_rows())
    assert added.graph.names_of(added.graph.train[40:]) == [("new", "r1", "e3"), ("newer", "r2", "new"), fresh]
    assert [note[:14] for note in added.notes] == ["1 facts were k", "1 facts are ab"]
    assert tuple(map(str, added.graph.notes)) == added.notes


def test_entities_are_known_by_identifier_or_name() -> None:
    graph = make_graph()
    names = [f"person {i}" for i in range(11)] + ["person 10"]
    graph = replace(graph, entities=Vocabulary(graph.entities.ids, names))
    added = extend(graph, facts_of(("Q7", "r0", "person 3"), ("e5", "r1", "Q7"), labels={"Q7": "Zoe"}))
    assert added.facts.to_rows().tolist() == [[12, 0, 3], [5, 1, 12]]
    assert added.names == ["Zoe"]
    assert added.graph.entities.ids[12] == "Q7"
    with pytest.raises(HarmoniumError, match="2 of the entity names are 'person 10'; use an identifier: e10, e11"):
        extend(graph, facts_of(("Q7", "r0", "person 10")))


def test_new_relations_and_known_entities_are_refused(graph: Graph) -> None:
    with pytest.raises(HarmoniumError, match="no relation named 'knows' among 3.*relations cannot: train again"):
        extend(graph, facts_of(("new", "knows", "e3")))
    with pytest.raises(HarmoniumError, match="all 2 of its entities are known already.*train again"):
        extend(graph, facts_of(("e1", "r0", "e2")))


def test_steps_grow_with_facts_and_are_watched(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_in, "MIN_STEPS", 3)
    monkeypatch.setattr(fold_in, "BATCH", 2)
    added = extend(graph, facts_of(*((f"n{i}", "r0", "e1") for i in range(5))))
    seen: list[int] = []
    add_entities(build_model(Config().model, 12, 3), added, Config().train, seen.append)
    assert sum(seen) == n_steps(5) == 30
    assert n_steps(1) == 10


def test_an_extended_run_is_a_run(graph: Graph, tmp_path: Path) -> None:
    config = Config.read(None, ["model.entity_dim=8"])
    run = Run(config, graph, build_model(config.model, 12, 3), History())
    facts = tmp_path / "facts.tsv"
    facts.write_text("new\tr1\te3\nnewer\tr2\tnew\n", encoding="utf-8")
    extended, _ = harmonium.add(run, facts, tmp_path / "extended")
    read = Run.load(tmp_path / "extended")
    assert torch.equal(read.model.entity, extended.model.entity)
    assert read.evaluation.queries == 20
    assert read.metrics == evaluate_scorer(extended.model, extended.graph).metrics
    assert harmonium.predict(read, head="new", relation="r1", top=14)
    assert read.graph.known_answers(Slot.TAIL).contain(read.graph.triple("newer", "r2", "new")).item()
    with pytest.raises(HarmoniumError, match="exists; choose another --out"):
        harmonium.add(run, facts, tmp_path / "extended")
