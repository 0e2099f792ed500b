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
import torch
from harmony_uses import Measured, Setup

import harmonium
from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Slot, Triples
from harmonium.model.build import build_model
from small import make_graph

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
