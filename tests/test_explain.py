from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.analysis import explain
from harmonium.analysis.explain import Explainer
from harmonium.analysis.influence import Influence
from harmonium.config import Config, EvaluateConfig
from harmonium.evaluation import evaluate
from harmonium.graph import Slot, Triples
from harmonium.run import Run
from harmonium.training import History
from small import make_graph
from test_influence import random_model

MODELS = [{}, {"rank": 2}, {"faithfulness": 3.0}, {"reciprocal": True}, {"faithfulness": math.inf}]


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_harmony_falls_into_parts_and_directions(settings: dict) -> None:
    """From the definitions, in float64."""
    graph = make_graph()
    model, triple = random_model(graph, **settings), graph.test[:1]
    found, harmony = Explainer(model, graph).explain(triple, count=99), model.harmony
    x = model.compose(triple)[0]
    token, empty = harmony.optimise(x), harmony.optimise(torch.zeros_like(x))
    for name, hidden, given in (("composed", x, x), ("token", token, x), ("empty", empty, torch.zeros_like(x))):
        parts = found.harmony[name]
        assert parts.core == pytest.approx(harmony.coherence(hidden).item())
        assert parts.total == pytest.approx(harmony(hidden, given).item())
    assert found.score == pytest.approx(found.harmony["token"].total - found.harmony["empty"].total)
    assert found.shift.length == pytest.approx((token - x).norm().item())
    assert found.shift.gain == pytest.approx((harmony(token, x) - harmony(x, x)).item())
    assert found.shift.shared == pytest.approx(empty.norm().item())
    assert found.shift.own == pytest.approx((token - x - empty).norm().item(), abs=1e-12)

    assert len(found.directions) == settings.get("rank", 5)
    assert sum(d.push for d in found.directions) + found.rest == pytest.approx(found.score)
    form, pushes = harmony.fold(), [abs(d.push) for d in found.directions]
    assert pushes == sorted(pushes, reverse=True)
    assert sum(d.quadratic for d in found.directions) == pytest.approx((x @ form.matrix @ x).item())
    values, vectors = torch.linalg.eigh(harmony.matrix())
    by_strength = {w.item() / 2 / (1 - harmony.tau * w.item()): u for w, u in zip(values, vectors.T, strict=True)}
    for direction in found.directions:
        u = next(u for a, u in by_strength.items() if a == pytest.approx(direction.strength))
        assert direction.reach == pytest.approx(abs((u @ x).item()))
        assert direction.quadratic == pytest.approx(direction.strength * direction.reach**2)
        assert direction.linear == pytest.approx(((u @ form.vector) * (u @ x)).item())


def test_directions_are_named_by_who_reaches_furthest(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    model, triple = random_model(graph), graph.test[:1]
    found = Explainer(model, graph).explain(triple, count=2)
    for direction in found.directions:
        u = next(u for u in torch.linalg.eigh(model.harmony.matrix())[1].T
                 if abs((u @ model.compose(triple)[0]).item()) == pytest.approx(direction.reach))  # fmt: skip
        u = u * (u @ model.compose(triple)[0]).sign()
        along = model.compose(graph.train) @ u
        names = graph.spell(graph.train)
        best = along.argsort(descending=True)[:2].tolist()
        assert [(e.name, pytest.approx(e.reach)) for e in direction.facts] == [
            (names[i], along[i].item()) for i in best
        ]
        for slot, said in ((Slot.HEAD, direction.heads), (Slot.TAIL, direction.tails)):
            columns = {s: triple[s].repeat(12) for s in Slot} | {slot: torch.arange(12)}
            along_slot = model.compose(Triples(*columns.values())) @ u
            best = along_slot.argsort(descending=True)[:2].tolist()
            assert [(e.name, pytest.approx(e.reach)) for e in said] == [(f"e{i}", along_slot[i].item()) for i in best]
    monkeypatch.setattr(explain, "SURVEYED", 3)
    assert len(Explainer(model, graph).explain(triple).directions[0].facts) == 3


@pytest.mark.parametrize("settings", [{}, {"rank": 2, "faithfulness": 3.0}, {"harmony": False}], ids=str)
@pytest.mark.parametrize("same_relation", [True, False])
def test_nearest_facts_are_nearest_by_token(same_relation: bool, settings: dict) -> None:
    graph = make_graph()
    model, triple = random_model(graph, **settings), graph.train[4:5]
    found = Explainer(model, graph).explain(triple, 4, same_relation)
    place = model.tokens if settings.get("harmony", True) else model.compose
    others = [i for i in range(40) if i != 4 and (not same_relation or graph.train.relation[i] == triple.relation)]
    others = graph.train[torch.tensor(others)]
    far = (place(others) - place(triple)).norm(dim=-1)
    best = far.argsort()[:4]
    effects = Influence(model, graph).of_removing(others[best], triple).tolist()
    expected = list(zip(graph.spell(others[best]), far[best].tolist(), effects, strict=True))
    assert [(r.fact, pytest.approx(r.distance), pytest.approx(r.effect)) for r in found.nearest] == expected


def test_reasons_are_facts_of_the_head_or_tail_by_their_effect() -> None:
    graph = make_graph()
    model, triple = random_model(graph), graph.test[:1]
    ends = {int(triple.head), int(triple.tail)}
    places = [i for i, (h, _, t) in enumerate(graph.train.rows().tolist()) if ends & {h, t}]
    facts = graph.train[torch.tensor(places)]
    effects = Influence(model, graph).of_removing(facts, triple)
    order = effects.abs().argsort(descending=True)[:3]
    found = Explainer(model, graph).explain(triple, 3).reasons
    assert [r.fact for r in found] == graph.spell(facts[order])
    assert [r.effect for r in found] == pytest.approx(effects[order].tolist())


def test_ranks_and_knowledge_are_those_of_evaluation() -> None:
    graph = make_graph()
    model = random_model(graph)
    explainer = Explainer(model, graph)
    ranks = evaluate(model, graph, EvaluateConfig(split="test")).ranks.values().tolist()
    found = [explainer.explain(graph.test[i : i + 1]) for i in range(len(graph.test))]
    assert [f.rank["head"] for f in found] + [f.rank["tail"] for f in found] == ranks
    assert {f.known for f in found} == {"test"}
    assert explainer.explain(graph.train[:1]).known == "train"
    facts = graph.facts().rows().tolist()
    false = next([0, 0, e] for e in range(12) if [0, 0, e] not in facts)
    assert explainer.explain(Triples.from_rows([false])).known is None


def test_plain_models_are_explained_without_harmony() -> None:
    graph = make_graph()
    found = Explainer(random_model(graph, harmony=False, reciprocal=True), graph).explain(graph.test[:1])
    assert (found.harmony, found.shift, found.directions) == ({}, None, [])
    assert found.rest == found.score
    assert found.nearest
    assert found.reasons
    assert "a plain model: no harmony" in found.notes[0]
    assert "reciprocal" in found.notes[1]
    infinite = Explainer(random_model(graph, faithfulness=math.inf), graph).explain(graph.test[:1])
    assert infinite.notes == ["lambda = infinity: the token is the composed vector"]
    assert infinite.shift.length == 0


def test_a_relation_that_was_never_trained_has_no_nearest_facts() -> None:
    graph = make_graph()
    kept = graph.train[graph.train.relation != 0]
    triple = Triples.from_rows([[0, 0, 1]])
    found = Explainer(random_model(graph), replace(graph, train=kept)).explain(triple)
    assert found.nearest == []
    assert found.reasons


def test_the_command_asks_by_name_and_draws(tmp_path: Path) -> None:
    graph = make_graph()
    run = Run(Config(), graph, random_model(graph).float(), History(), {})
    names = graph.spell(graph.test)[0]
    found = harmonium.explain(run, *names, count=3, plot=tmp_path / "why.svg")
    printed = json.loads(json.dumps(found.to_json()))
    assert printed["triple"] == list(names)
    assert printed["harmony"]["token"]["total"] == found.harmony["token"].total
    assert [d["push"] for d in printed["directions"]] == [d.push for d in found.directions]
    drawn = (tmp_path / "why.svg").read_text(encoding="utf-8")
    for text in (" · ".join(found.reasons[0].fact), "all the rest", ", ".join(names)):
        assert f"<!-- {text} -->" in drawn
    plain = replace(run, model=random_model(graph, harmony=False))
    harmonium.explain(plain, *names, plot=tmp_path / "plain.svg")
    assert "all the rest" not in (tmp_path / "plain.svg").read_text(encoding="utf-8")
