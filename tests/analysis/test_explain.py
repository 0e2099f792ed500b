from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium
from harmonium.analysis.explain import Explainer, Explanation, NecessaryFact
from harmonium.analysis.figures import explain_figure
from harmonium.analysis.influence import Influence
from harmonium.analysis.necessary_facts import facts_of_ends, find_necessary_facts
from harmonium.analysis.score_anatomy import ScoreAnatomy, ScoreDetails
from harmonium.answers.open_run import open_run
from harmonium.answers.reasons import find_reasons
from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.gradient_graph import GradientGraph
from small import make_run, random_model


def details(model: GradientGraph, graph: Graph, triple: Triples, *arguments: Any) -> ScoreDetails:
    return ScoreAnatomy(model, graph, model.prepare()).details(triple, *arguments)


MODELS = [{}, {"rank": 2}, {"faithfulness": 3.0}, {"reciprocal": True}, {"faithfulness": math.inf}]


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_harmony_falls_into_parts_and_directions(graph: Graph, settings: dict) -> None:
    """From the definitions, in float64."""
    model, triple = random_model(graph, **settings), graph.test[:1]
    found, harmony = details(model, graph, triple, 99), model.harmony
    explained = Explainer(make_run(graph, model)).explain(triple)
    x = model.compose(triple)[0]
    token, empty = harmony.optimise(x), harmony.optimise(torch.zeros_like(x))
    for name, hidden, given in (("composed", x, x), ("token", token, x), ("empty", empty, torch.zeros_like(x))):
        parts = found.harmony[name]
        assert parts.core == pytest.approx(harmony.coherence(hidden).item())
        assert parts.total == pytest.approx(harmony(hidden, given).item())
    assert explained.score == pytest.approx(found.harmony["token"].total - found.harmony["empty"].total)
    assert found.shift.length == pytest.approx((token - x).norm().item())
    assert found.shift.gain == pytest.approx((harmony(token, x) - harmony(x, x)).item())
    assert found.shift.shared == pytest.approx(empty.norm().item())
    assert found.shift.specific == pytest.approx((token - x - empty).norm().item(), abs=1e-12)

    assert len(found.directions) == settings.get("rank", 5)
    assert sum(d.contribution for d in found.directions) + found.rest == pytest.approx(explained.score)
    form, contributions = harmony.fold(), [abs(d.contribution) for d in found.directions]
    assert contributions == sorted(contributions, reverse=True)
    assert sum(d.quadratic for d in found.directions) == pytest.approx((x @ form.matrix @ x).item())
    values, vectors = torch.linalg.eigh(harmony.matrix())
    by_eigenvalue = {w.item() / 2 / (1 - harmony.tau * w.item()): u for w, u in zip(values, vectors.T, strict=True)}
    for direction in found.directions:
        u = next(u for a, u in by_eigenvalue.items() if a == pytest.approx(direction.eigenvalue))
        assert direction.projection == pytest.approx(abs((u @ x).item()))
        assert direction.quadratic == pytest.approx(direction.eigenvalue * direction.projection**2)
        assert direction.linear == pytest.approx(((u @ form.vector) * (u @ x)).item())


@pytest.mark.parametrize("settings", [{}, {"rank": 2, "faithfulness": 3.0}, {"harmony": False}], ids=str)
@pytest.mark.parametrize("same_relation", [True, False])
def test_nearest_facts_are_nearest_by_token(graph: Graph, same_relation: bool, settings: dict) -> None:
    model, triple = random_model(graph, **settings), graph.train[4:5]
    found = details(model, graph, triple, 4, same_relation)
    vectors = model.tokens if settings.get("harmony", True) else model.compose
    others = [i for i in range(40) if i != 4 and (not same_relation or graph.train.relation[i] == triple.relation)]
    others = graph.train[torch.tensor(others)]
    far = (vectors(others) - vectors(triple)).norm(dim=-1)
    best = far.argsort()[:4]
    expected = list(zip(graph.names_of(others[best]), far[best].tolist(), strict=True))
    assert [(near.fact, pytest.approx(near.distance)) for near in found.nearest] == expected


def test_facts_and_evidence_are_those_of_their_modules(graph: Graph) -> None:
    run, triple = make_run(graph, random_model(graph)), graph.test[:1]
    influence = Influence(run.model, graph)
    facts = facts_of_ends(influence, triple)
    effects = influence.of_removing(facts, triple)
    order = effects.abs().argsort(descending=True)[:3]
    found = Explainer(run).explain(triple, 3)
    assert [r.fact for r in found.reasons] == graph.names_of(facts[order])
    assert [r.effect for r in found.reasons] == pytest.approx(effects[order].tolist())
    necessary = find_necessary_facts(influence, triple)
    assert [(n.fact, n.rank) for n in found.necessary] == list(
        zip(graph.names_of(necessary.facts), necessary.ranks, strict=True)
    )
    assert found.evidence == find_reasons(open_run(run).evidence, triple)[0].text
    assert found.details is None


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([], "No training fact of the head or the tail supports it."),
        ([7], "Without this fact it would be answer 7 instead of 2."),
        ([2, 3, 1234], "Without these 3 facts it would be answer 1,234 instead of 2."),
        ([2, 2], "No few facts decide it: without these 2 facts it would still be answer 2."),
    ],
)
def test_a_verdict_says_whether_few_facts_decide(ranks: list[int], expected: str) -> None:
    fact = ("a", "r", "b")
    necessary = [NecessaryFact(fact, rank) for rank in ranks]
    found = Explanation(fact, None, 1.0, {"head": 5.0, "tail": 2.0}, 2.0, "known", None, necessary, [], [], None)
    assert found.verdict == found.to_json()["verdict"] == expected


def test_ranks_and_knowledge_are_those_of_evaluation(graph: Graph) -> None:
    model = random_model(graph)
    explainer = Explainer(make_run(graph, model))
    ranks = evaluate_scorer(model, graph, EvaluateConfig(split="test")).ranks.values().tolist()
    found = [explainer.explain(fact) for fact in graph.test.chunks(1)]
    assert [f.rank["head"] for f in found] + [f.rank["tail"] for f in found] == ranks
    assert {f.known for f in found} == {"test"}
    assert explainer.explain(graph.train[:1]).known == "train"
    facts = graph.facts().to_rows().tolist()
    false = next([0, 0, e] for e in range(12) if [0, 0, e] not in facts)
    assert explainer.explain(Triples.from_rows([false])).known is None


def test_a_run_is_asked_by_name_and_drawn(graph: Graph, tmp_path: Path) -> None:
    run = make_run(graph, random_model(graph).float())
    names = graph.names_of(graph.test)[0]
    found = harmonium.explain(run, *names, top=3, details=True)
    printed = json.loads(json.dumps(found.to_json()))
    assert printed["triple"] == list(names)
    assert printed["details"]["harmony"]["token"]["total"] == found.details.harmony["token"].total
    assert [d["contribution"] for d in printed["details"]["directions"]] == [
        d.contribution for d in found.details.directions
    ]
    drawn = explain_figure(found, tmp_path / "why.svg").read_text(encoding="utf-8")
    for text in (" · ".join(found.reasons[0].fact), "all the rest", ", ".join(names)):
        assert f"<!-- {text} -->" in drawn
    plain = harmonium.explain(replace(run, model=random_model(graph, harmony=False)), *names)
    assert "all the rest" not in explain_figure(plain, tmp_path / "plain.svg").read_text(encoding="utf-8")
