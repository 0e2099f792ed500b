"""benchmarks/harmony_map.py: what is measured, and how a comparison is chosen and reported."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import harmony_map as script
import harmony_uses as uses
import pytest
import render
import role_retrieval
import torch
from harmony_uses import Measured, Setup

import harmonium
from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.model.harmony import Harmony
from small import family, make_graph

QUICK = ["model.entity_dim=8", "train.epochs=2", "train.batch_size=32"]


def setup(graph: harmonium.Graph | None = None) -> Setup:
    graph = graph or make_graph(40, 4, (250, 60, 60))
    return Setup(graph, QUICK, 0, "cpu")


# Measures ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(script.EXPERIMENTS))
def test_every_experiment_measures_the_harmonic_family_and_a_control(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uses, "N3", (0.02, 0.1))
    more = ["model.entity_dim=8", "train.negatives=4"] if name == "paper-roles" else []
    measured = script.EXPERIMENTS[name](replace(setup(), overrides=[*QUICK, *more]))
    for one in measured:
        assert "harmony" in one.families and len(one.families) > 1
        for variants in one.families.values():
            for values in variants.values():
                assert all(values[split].shape == one.relation[split].shape for split in values)
                assert all(column.isfinite().all() for column in values.values())
    script.write_values(tmp_path / "a.safetensors", measured, {"seed": 0})
    again, about = script.read_values(tmp_path / "a.safetensors")
    assert about == {"seed": 0}
    assert {one.measure for one in again} == {one.measure for one in measured}
    for one in measured:
        read = next(other for other in again if other.measure == one.measure)
        assert set(read.families) == set(one.families)
        torch.testing.assert_close(read.families["harmony"], one.families["harmony"], check_dtype=False)


def test_the_likelihood_of_an_answer_by_hand() -> None:
    """Other known answers do not compete."""
    graph = make_graph(9, 2, (20, 4, 5))
    model = build_model(ModelConfig("complex", 4, harmony=False, reciprocal=True), 9, 2)
    values = uses.log_likelihood(model.prepare(), graph)
    rows = {tuple(row) for row in graph.facts().to_rows().tolist()}
    for number, (h, r, t) in enumerate(graph.test.to_rows().tolist() * 2):
        slot = Slot.HEAD if number < len(graph.test) else Slot.TAIL
        scores = model.score_slot(slot, Triples.from_rows([[h, r, t]]))[0].double().tolist()
        truth = h if slot is Slot.HEAD else t
        others = [e for e in range(9) if (((e, r, t) if slot is Slot.HEAD else (h, r, e)) not in rows) or e == truth]
        expected = scores[truth] - math.log(sum(math.exp(scores[e]) for e in others))
        assert values[number].item() == pytest.approx(expected, rel=1e-4)


def test_fits_find_the_temperature_the_curve_and_the_bias_that_made_the_answers() -> None:
    generator = torch.Generator().manual_seed(0)
    composed = torch.randn(4000, 6, 3, generator=generator)
    vector = torch.ones(3)
    linear = composed.sum(-1)
    log_weight = torch.zeros(4000, 6)

    def questions(scores: torch.Tensor) -> uses.Questions:
        """With answers drawn by the softmax of the scores, the drawn one first."""
        drawn = torch.multinomial(scores.softmax(1), 1, generator=generator)
        order = torch.cat([drawn, torch.tensor([[c for c in range(6) if c != d] for d in drawn[:, 0].tolist()])], dim=1)
        return uses.Questions(
            composed.gather(1, order[..., None].expand(-1, -1, 3)),
            linear.gather(1, order),
            log_weight,
            torch.ones(len(order)),
        )

    curve = uses.fit_curve(questions(0.8 * linear - 0.2 * linear.square()), vector)
    torch.testing.assert_close(curve(composed), 0.8 * linear - 0.2 * linear.square(), rtol=0.1, atol=0.2)
    bias = torch.tensor([0.5, 1.0, 1.5])
    forms = uses.fit_biases(questions(composed @ bias), vector)
    torch.testing.assert_close(forms[f"spread {uses.BIAS_SPREADS[-1]}"].vector, bias, rtol=0.1, atol=0.1)


def test_the_pull_of_an_entity_is_the_gradient_of_the_mean_score_of_its_facts() -> None:
    graph = family()
    model = build_model(ModelConfig("complex", 6, harmony=False, normalise=False, reciprocal=True), graph.n_entities, 3)
    pull, scorer = uses.entity_pull(model, graph), model.scorer()
    for entity in (0, 7):
        state = model.entity[entity].detach().clone().requires_grad_()
        total = torch.zeros(())
        for slot in (Slot.HEAD, Slot.TAIL):
            facts = graph.train[graph.train[slot] == entity]
            total = total + scorer.form(scorer.slot_map(slot, facts).apply(state.expand(len(facts), -1))).sum()
        (gradient,) = torch.autograd.grad(total, state)
        count = int((graph.train.head == entity).sum() + (graph.train.tail == entity).sum())
        torch.testing.assert_close(pull[entity], gradient / count)


# Roles -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [None, 2])
def test_the_metric_is_the_distance_of_tokens(rank: int | None) -> None:
    form = Harmony(5, 1.0, rank=rank).double()
    composed = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = form.optimise(composed).detach()
    expected = torch.cdist(tokens[[0, 3]], tokens).square()
    role = role_retrieval.RoleVectors(composed, composed, torch.tensor([0, 3]))
    distances = role_retrieval.Metric.of_tokens(form).squared_distances(role)
    torch.testing.assert_close(distances, expected)


def test_role_questions_have_training_facts_as_anchors_and_the_most_alike_first() -> None:
    graph = make_graph(12, 2, (120, 20, 20))
    profiles = role_retrieval.fact_profiles(graph)
    train = {tuple(row) for row in graph.train.to_rows().tolist()}
    questions = role_retrieval.role_questions(graph, "test")
    assert len(questions) > 20
    for question in questions:
        h, r, t = question.fact.to_rows()[0].tolist()
        truth = h if question.slot is Slot.HEAD else t
        facts = [(int(x), r, t) if question.slot is Slot.HEAD else (h, r, int(x)) for x in question.anchors]
        assert set(facts) <= train
        every = {(e, r, t) if question.slot is Slot.HEAD else (h, r, e): e for e in range(12)}
        alike = [role_retrieval.jaccard(profiles[e], profiles[truth]) for fact, e in every.items() if fact in train]
        assert role_retrieval.jaccard(profiles[int(question.anchors[0])], profiles[truth]) == max(alike)
        assert truth not in question.known.tolist()


def test_a_space_that_knows_the_answer_ranks_it_first() -> None:
    one = setup()
    model = one.plain
    families = {"harmony": {"entities": role_retrieval.euclidean_entities}}
    values = role_retrieval.measure_roles(one, model, families)
    assert [value.measure for value in values] == ["role, any anchor", "role, alike anchor"]
    question = role_retrieval.role_questions(one.graph, "test")[0]
    answer = int(question.fact[question.slot])

    def oracle(role: role_retrieval.RoleVectors) -> torch.Tensor:
        return (
            torch.nn.functional.one_hot(torch.tensor(answer), len(role.entities)).double().expand(len(role.anchors), -1)
        )

    found = role_retrieval._reciprocal_ranks(model.prepare(), question, {"harmony": {"oracle": oracle}})
    assert found["harmony", "oracle"] == (1.0, 1.0)


def test_the_type_of_a_role_is_the_one_that_its_fillers_share(tmp_path: Path) -> None:
    """Entities 0 to 5 share a hobby, which is what (., likes, 9) selects; all are persons."""
    heads = [[h, 0, 9] for h in range(4)] + [[h, 1, 8] for h in range(4, 8)]
    graph = replace(make_graph(10, 2, (12, 4, 4)), train=Triples.from_rows(heads))
    lines = [f"e{i}\tperson{' sailor' if i < 6 else ''}" for i in range(10)]
    (tmp_path / "types.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one = replace(setup(graph), types=tmp_path / "types.tsv")
    has_type = role_retrieval.read_types(tmp_path / "types.tsv", graph)
    assert has_type.sum(0).tolist() == [10, 6]

    def order(role: role_retrieval.RoleVectors) -> torch.Tensor:
        return -torch.arange(len(role.entities)).double()[None]

    model = build_model(ModelConfig("complex", 4, harmony=False), 10, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(role_retrieval, "NEAREST", 2)
        measured = role_retrieval.measure_types(one, model, {"harmony": {"order": order}})
    values = torch.cat([measured.families["harmony"]["order"][split] for split in ("valid", "test")])
    relation = torch.cat([measured.relation[split] for split in ("valid", "test")])
    assert set(values[relation == 0].tolist()) == {1.0}  # 4 and 5 are the nearest that are no known answers


# Choice and report -------------------------------------------------------------------------------------------------------


def values(shift: float, n: int = 200) -> dict[str, torch.Tensor]:
    noise = torch.randn(n, generator=torch.Generator().manual_seed(int(100 * abs(shift))), dtype=torch.float64)
    return {"valid": torch.full((20,), shift, dtype=torch.float64), "test": shift + 0.1 * noise}


def test_validation_chooses_and_test_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variant b is best on validation, although a is better on test."""
    folder, relation = tmp_path / "values", {"valid": torch.arange(20) % 4, "test": torch.arange(200) % 20}
    for seed in (0, 1, 2):
        a, b, control = values(0.5), values(0.6), values(0.3)
        a["test"] = a["test"] + 1
        families = {"harmony": {"a": a, "b": b}, "control": {"c": control}}
        about = {
            "experiment": "roles",
            "graph": "toy",
            "seed": seed,
            "overrides": [],
            "command": "run",
            "device": "CPU",
        }
        one = Measured("value", relation, families)
        script.write_values(folder / f"toy.roles.{seed}.safetensors", [one], about | {"seconds": 1.0})
    out = tmp_path / "results" / "harmony-map.json"
    out.parent.mkdir()
    script.report(argparse.Namespace(values=folder, out=out, samples=500))
    result = json.loads(out.read_text(encoding="utf-8"))
    (row,) = result["rows"]
    assert (row["model"], row["control"], row["seeds"], row["significant"]) == ("b", "control, c", [0, 1, 2], True)
    assert row["comparison"]["difference"] == pytest.approx(0.3, abs=0.05)
    assert "command" in result and result["device"] == "CPU"
    monkeypatch.setattr(render, "ROOT", tmp_path)
    assert "| roles | toy | value | b | control, c | 0.5927 | 0.2973 |" in render.harmony_map()


def test_later_seeds_train_the_chosen_variants_only() -> None:
    one = Measured(
        "value", {}, {"harmony": {"a": values(0.1), "b": values(0.2)}, "plain": {"a": values(0.3), "c": values(0)}}
    )
    chosen = script.chosen_variants([one])
    assert chosen == {"harmony": {"b"}, "plain": {"a"}}
    later = replace(setup(), variants=chosen)
    assert later.wants("harmony", "b") and not later.wants("harmony", "a") and not later.wants("other", "a")


def test_a_report_needs_values(tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match="no values.*measure"):
        script.report(argparse.Namespace(values=tmp_path, out=tmp_path / "out.json", samples=9))
