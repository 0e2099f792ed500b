from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium import addition
from harmonium.addition import Addition, add_entities, extend, start
from harmonium.config import Config
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate
from harmonium.graph import Graph, Slot, Triples, Vocabulary
from harmonium.objective import full_softmax
from harmonium.run import Run
from harmonium.training import History
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
    none = Triples.from_rows([])
    return Graph(
        Vocabulary(entities, names), Vocabulary(relations, kind="relation"), Triples.from_rows(ids), none, none
    )


def newcomers(kind: str) -> tuple[Run, Graph, Graph]:
    """A run on a ring in which two people are missing, facts about them, and the rest of what is true of them."""
    whole = family(40)
    facts = whole.facts()
    about = (facts.head >= 38) | (facts.tail >= 38)
    fewer = replace(
        whole, entities=Vocabulary(whole.entities.ids[:38]), train=facts[~about], valid=facts[:0], test=facts[:0]
    )
    names = whole.spell(facts[about])
    held = [("person 38", "next", "person 39"), ("person 38", "before", "person 37"), ("person 39", "next", "person 0")]
    run = harmonium.train(data=fewer, sets=[*FAST, *KINDS[kind]])
    return run, facts_of(*(n for n in names if n not in held)), facts_of(*held)


@pytest.mark.parametrize("kind", list(KINDS))
def test_new_entities_answer_what_was_not_told(kind: str) -> None:
    run, told, held = newcomers(kind)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    wider, added = harmonium.add(run, told)
    assert sorted(added.names) == ["person 38", "person 39"]
    for name, value in wider.model.state_dict().items():
        assert torch.equal(value[: len(before[name])] if value.dim() else value, before[name])
        assert torch.equal(run.model.state_dict()[name], before[name])
    assert wider.model.entity.shape[0] == wider.graph.n_entities == 40
    assert all(
        p.requires_grad == q.requires_grad
        for p, q in zip(run.model.parameters(), wider.model.parameters(), strict=True)
    )

    rows = Triples.from_rows([wider.graph.triple(*names).rows()[0].tolist() for names in held.spell(held.train)])
    with torch.no_grad():
        guess = replace(wider, model=with_rows(wider, start(run.model, added)))
        solved, started = (full_softmax(each.model.snapshot(), added.facts).item() for each in (wider, guess))
    assert solved < 0.7 * started
    ranks = evaluate(wider.model, wider.graph, triples=rows).ranks.values()
    assert ranks.mean() < 10  # 20 is chance
    again = harmonium.add(run, told)[0]
    assert torch.equal(again.model.entity, wider.model.entity)


@pytest.mark.parametrize("kind", ["harmony", "reciprocal"])
def test_new_entities_learn_where_they_do_not_belong(kind: str) -> None:
    """One fact says nothing of that; without known facts to meet, they take over 1.2 % of the chance of known answers."""
    run, _, _ = newcomers(kind)
    wider, added = harmonium.add(run, facts_of(("Zoe", "next", "person 3")))
    for slot in (Slot.HEAD, Slot.TAIL):
        chance = wider.model.score_slot(slot, run.graph.train).softmax(-1)
        assert chance[:, added.first :].sum(1).mean() < 0.01


def with_rows(run: Run, rows: torch.Tensor) -> harmonium.GradientGraph:
    model = harmonium.build_model(run.config.model, run.graph.n_entities, run.graph.n_relations)
    state = run.model.state_dict()
    model.load_state_dict(state | {"entity": torch.cat([state["entity"][: -len(rows)], rows])})
    return model


def test_it_starts_where_its_like_are() -> None:
    graph = make_graph()
    model = harmonium.build_model(Config().model, 12, 3)
    added = extend(graph, facts_of(("new", "r1", "e3"), ("e4", "r2", "new")))
    vectors, train = model.entities(), graph.train
    expected = vectors[train.head[train.relation == 1]].mean(0) + vectors[train.tail[train.relation == 2]].mean(0)
    torch.testing.assert_close(start(model, added)[0], expected / expected.norm())


def test_an_extended_graph_keeps_every_id() -> None:
    graph = make_graph()
    known = graph.spell(graph.train)[0]
    fresh = next(f for f in ((f"e{i}", "r0", "e0") for i in range(12)) if f not in graph.spell(graph.facts()))
    given = facts_of(("new", "r1", "e3"), ("newer", "r2", "new"), known, fresh)
    added = extend(graph, given)
    assert list(added.graph.entities.ids) == [*graph.entities.ids, "new", "newer"]
    assert added.first == 12
    assert added.facts.rows().tolist() == [[12, 1, 3], [13, 2, 12]]
    assert torch.equal(added.graph.train.rows()[:40], graph.train.rows())
    assert added.graph.spell(added.graph.train[40:]) == [("new", "r1", "e3"), ("newer", "r2", "new"), fresh]
    assert added.notes == (
        "1 facts were known already and left out",
        "1 facts are about known entities alone: kept as known facts, nothing is learned",
    )
    assert added.graph.notes == added.notes


def test_entities_are_known_by_identifier_or_name() -> None:
    graph = make_graph()
    names = [f"person {i}" for i in range(11)] + ["person 10"]
    graph = replace(graph, entities=Vocabulary(graph.entities.ids, names))
    added = extend(graph, facts_of(("Q7", "r0", "person 3"), ("e5", "r1", "Q7"), labels={"Q7": "Zoe"}))
    assert added.facts.rows().tolist() == [[12, 0, 3], [5, 1, 12]]
    assert added.names == ["Zoe"]
    assert added.graph.entities.ids[12] == "Q7"
    with pytest.raises(HarmoniumError, match="2 of the entity names are 'person 10'; use an identifier: e10, e11"):
        extend(graph, facts_of(("Q7", "r0", "person 10")))


def test_what_cannot_be_added_is_said() -> None:
    graph = make_graph()
    with pytest.raises(HarmoniumError, match="no relation named 'knows' among 3.*relations cannot: train again"):
        extend(graph, facts_of(("new", "knows", "e3")))
    with pytest.raises(HarmoniumError, match="all 2 of its entities are known already.*train again"):
        extend(graph, facts_of(("e1", "r0", "e2")))


def test_steps_grow_with_facts_and_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    monkeypatch.setattr(addition, "STEPS", 3)
    monkeypatch.setattr(addition, "BATCH", 2)
    added = extend(graph, facts_of(*((f"n{i}", "r0", "e1") for i in range(5))))
    seen: list[int] = []
    add_entities(harmonium.build_model(Config().model, 12, 3), added, Config().train, seen.append)
    assert sum(seen) == addition.rounds(5) == 30
    assert addition.rounds(1) == 10


def test_a_wider_run_is_a_run(tmp_path: Path) -> None:
    graph = make_graph()
    config = Config.read(None, ["model.entity_dim=8"])
    run = Run(config, graph, harmonium.build_model(config.model, 12, 3), History(), {})
    facts = tmp_path / "facts.tsv"
    facts.write_text("new\tr1\te3\nnewer\tr2\tnew\n", encoding="utf-8")
    wider, added = harmonium.add(run, facts, tmp_path / "wider")
    read = Run.load(tmp_path / "wider")
    assert isinstance(added, Addition)
    assert torch.equal(read.model.entity, wider.model.entity)
    assert read.metrics["queries"] == 20
    assert read.metrics["metrics"] == evaluate(wider.model, wider.graph).metrics
    assert harmonium.predict(read, head="new", relation="r1", top=14)
    assert read.graph.answers(Slot.TAIL).contain(read.graph.triple("newer", "r2", "new")).item()
    with pytest.raises(HarmoniumError, match="exists; choose another --out"):
        harmonium.add(run, facts, tmp_path / "wider")
